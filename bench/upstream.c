/* A loopback LLM provider: one thread, epoll, HTTP/1.1 keep-alive without end.
 *
 *   upstream [PORT]        PORT 0 or none takes a free one; the first line on stdout is the port
 *
 * The request's header `x-bench-answer` says how it is answered:
 *   json SIZE              one JSON answer with SIZE bytes of text (default: json 400)
 *   sse EVENTS GAP SIZE    a stream of EVENTS text events, one every GAP microseconds, with SIZE bytes of text each
 * A path that holds "/messages" is answered as Anthropic does, any other as OpenAI chat completions. Request bodies are
 * read and thrown away; four of their bytes are reported as one input token. Every event carries `@number:nanoseconds@`:
 * its position from 0, and CLOCK_MONOTONIC at the moment of sending. Each event is one send() without Nagle, as a
 * provider does.
 *
 * How it thinks: a connection reads a head, then a body, then answers; a stream stays in the list `streams` until its
 * last event. One timer serves all streams: it is set to the earliest due time, found by a plain walk (fine for some
 * hundred). */
#define _GNU_SOURCE
#include "answers.h"
#include "http.h"

#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <signal.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <sys/timerfd.h>
#include <unistd.h>

enum { HEAD_MAX = 16 << 10, TEXT_MAX = 1 << 20, STREAMS_MAX = 4096, BYTES_PER_TOKEN = 4 };

struct conn {
    int fd;
    enum { READING_HEAD, READING_BODY, STREAMING } state;
    char kept[HEAD_MAX]; /* the beginning of a head that has not come whole */
    size_t kept_size;
    struct body body;
    size_t body_size;
    const struct shape *shape;
    int events, gap_us, text_size; /* the answer asked for; no events: JSON */
    bool last_request; /* the client said "connection: close" */
    char *out; /* bytes to send; nearly always empty between calls */
    size_t out_size, out_sent, out_room;
    bool blocked; /* the socket is full: wait for EPOLLOUT */
    int slot, next_event;
    int64_t due; /* when the next event goes out */
};

static int epoll, timer;
static struct conn *streams[STREAMS_MAX];
static int stream_count;
static char inbox[256 << 10], text[TEXT_MAX], scratch[TEXT_MAX + 4096];

/* Sending */

static void watch(int fd, void *owner, uint32_t events, int operation) {
    struct epoll_event wanted = {.events = events, .data.ptr = owner};
    if (epoll_ctl(epoll, operation, fd, &wanted))
        die("epoll_ctl");
}

static void append(struct conn *c, const char *data, size_t size) {
    if (c->out_size + size > c->out_room) {
        c->out_room = (c->out_size + size) * 2;
        c->out = realloc(c->out, c->out_room);
        if (!c->out)
            die("realloc");
    }
    memcpy(c->out + c->out_size, data, size);
    c->out_size += size;
}

static void append_chunk(struct conn *c, const char *data, int size) {
    char line[16];
    append(c, line, (size_t)sprintf(line, "%x\r\n", (unsigned)size));
    append(c, data, (size_t)size);
    append(c, "\r\n", 2);
}

/* Sends what the socket takes. False: the connection is to be closed. */
static bool flush(struct conn *c) {
    while (c->out_sent < c->out_size) {
        ssize_t sent = send(c->fd, c->out + c->out_sent, c->out_size - c->out_sent, MSG_NOSIGNAL);
        if (sent < 0 && errno != EAGAIN)
            return false;
        if (sent < 0) {
            if (!c->blocked)
                watch(c->fd, c, EPOLLIN | EPOLLOUT, EPOLL_CTL_MOD);
            return c->blocked = true;
        }
        c->out_sent += (size_t)sent;
    }
    c->out_size = c->out_sent = 0;
    if (c->blocked)
        watch(c->fd, c, EPOLLIN, EPOLL_CTL_MOD);
    c->blocked = false;
    return !(c->last_request && c->state == READING_HEAD);
}

/* Writes one of the shape's texts into scratch; returns its size. */
static int render(struct conn *c, const char *pattern) {
    char *to = scratch;
    for (const char *p = pattern; *p; p++) {
        if (*p == '\'')
            *to++ = '"';
        else if (*p != '$')
            *to++ = *p;
        else if (*++p == 'n')
            to += sprintf(to, "%zu", c->body_size / BYTES_PER_TOKEN);
        else if (*p == 'm')
            to += sprintf(to, "@%d:%lld@", c->next_event, (long long)now_ns());
        else
            to = mempcpy(to, text, (size_t)c->text_size);
    }
    return (int)(to - scratch);
}

/* Streams */

static void leave_streams(struct conn *c) {
    streams[c->slot] = streams[--stream_count];
    streams[c->slot]->slot = c->slot;
    c->state = READING_HEAD;
}

static bool end_stream(struct conn *c) {
    append_chunk(c, scratch, render(c, c->shape->last));
    append(c, "0\r\n\r\n", 5);
    leave_streams(c);
    return flush(c);
}

/* Sends all events that are due. False: the connection is to be closed. */
static bool send_due(struct conn *c, int64_t now) {
    while (!c->blocked && c->due <= now) {
        if (c->next_event == c->events)
            return end_stream(c);
        append_chunk(c, scratch, render(c, c->shape->event));
        if (!flush(c))
            return false;
        if (++c->next_event < c->events) /* the end follows the last event without a gap */
            c->due += c->gap_us * 1000LL;
    }
    return true;
}

static void arm_timer(void) {
    int64_t first = 0;
    for (int i = 0; i < stream_count; i++)
        if (!streams[i]->blocked && (!first || streams[i]->due < first))
            first = streams[i]->due;
    struct itimerspec at = {.it_value = {first / 1000000000, first % 1000000000}};
    timerfd_settime(timer, TFD_TIMER_ABSTIME, &at, NULL);
}

static bool begin_stream(struct conn *c) {
    static const char head[] = "HTTP/1.1 200 OK\r\ncontent-type: text/event-stream; charset=utf-8\r\n"
                               "cache-control: no-cache\r\ntransfer-encoding: chunked\r\n\r\n";
    if (stream_count == STREAMS_MAX)
        return false;
    append(c, head, sizeof head - 1);
    append_chunk(c, scratch, render(c, c->shape->first));
    c->state = STREAMING;
    c->next_event = 0;
    c->due = now_ns() + c->gap_us * 1000LL;
    c->slot = stream_count;
    streams[stream_count++] = c;
    bool alive = flush(c);
    arm_timer();
    return alive;
}

/* Requests */

static bool answer(struct conn *c) {
    if (c->events)
        return begin_stream(c);
    char head[160];
    int size = render(c, c->shape->json);
    static const char pattern[] = "HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: %d\r\n\r\n";
    append(c, head, (size_t)sprintf(head, pattern, size));
    append(c, scratch, (size_t)size);
    c->state = READING_HEAD;
    return flush(c);
}

static void read_wish(struct conn *c, const char *wish) {
    c->events = c->gap_us = 0;
    c->text_size = 400;
    if (wish && sscanf(wish, "sse %d %d %d", &c->events, &c->gap_us, &c->text_size) != 3)
        sscanf(wish, "json %d", &c->text_size);
    if (c->text_size < 0 || c->text_size > TEXT_MAX - 1)
        c->text_size = TEXT_MAX - 1;
}

static void read_head(struct conn *c, char *head, size_t size) {
    head[size - 2] = 0; /* the blank line: what is before it still ends in "\r\n" */
    const char *line_end = strstr(head, "\r\n"), *messages = strstr(head, "/messages");
    c->shape = messages && messages < line_end ? &ANTHROPIC : &CHAT;
    c->body = body_of(head, false);
    c->body_size = 0;
    c->last_request = header_is(head, "connection", "close");
    read_wish(c, header(head, "x-bench-answer"));
    if (header_is(head, "expect", "100-continue"))
        append(c, "HTTP/1.1 100 Continue\r\n\r\n", 25);
    c->state = READING_BODY;
}

static void count_bytes(void *owner, const char *data, size_t size) {
    (void)data;
    ((struct conn *)owner)->body_size += size;
}

/* Takes bytes as they come. False: the connection is to be closed. */
static bool consume(struct conn *c, char *data, size_t size) {
    while (size) {
        size_t used;
        if (c->state == STREAMING)
            return false; /* nobody pipelines behind a stream */
        if (c->state == READING_HEAD) {
            used = head_length(data, size);
            if (!used && size >= HEAD_MAX)
                return false;
            if (!used) {
                memcpy(c->kept, data, size);
                c->kept_size = size;
                return true;
            }
            read_head(c, data, used);
        } else {
            used = body_feed(&c->body, data, size, count_bytes, c);
        }
        data += used;
        size -= used;
        if (c->body.at == BODY_DONE && !answer(c))
            return false;
    }
    return flush(c);
}

static bool on_readable(struct conn *c) {
    size_t kept = c->kept_size;
    memcpy(inbox, c->kept, kept);
    ssize_t got = recv(c->fd, inbox + kept, sizeof inbox - kept, 0);
    if (got <= 0)
        return got < 0 && errno == EAGAIN;
    c->kept_size = 0;
    return consume(c, inbox, kept + (size_t)got);
}

/* Connections */

static void drop(struct conn *c) {
    if (c->state == STREAMING)
        leave_streams(c);
    close(c->fd);
    free(c->out);
    free(c);
}

static void on_event(struct conn *c, uint32_t events) {
    bool alive = true;
    if (events & EPOLLOUT)
        alive = flush(c) && (c->state != STREAMING || send_due(c, now_ns()));
    if (alive && events & ~(uint32_t)EPOLLOUT)
        alive = on_readable(c);
    if (!alive)
        drop(c);
    else if (events & EPOLLOUT)
        arm_timer();
}

/* Runs after the batch of socket events, so that no event of a batch can meet a connection dropped here. */
static void on_timer(void) {
    uint64_t fired;
    if (read(timer, &fired, sizeof fired) < 0)
        return;
    struct conn *c;
    int64_t now = now_ns();
    for (int i = stream_count - 1; i >= 0; i--) /* backwards: a stream that leaves is replaced by one already seen */
        if (!send_due(c = streams[i], now))
            drop(c);
    arm_timer();
}

static void accept_all(int listener) {
    int fd, on = 1;
    while ((fd = accept4(listener, NULL, NULL, SOCK_NONBLOCK)) >= 0) {
        struct conn *c = calloc(1, sizeof *c);
        if (!c)
            die("calloc");
        c->fd = fd;
        setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
        watch(fd, c, EPOLLIN, EPOLL_CTL_ADD);
    }
}

static int listen_on(int port) {
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_port = htons((uint16_t)port)};
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    socklen_t size = sizeof address;
    int on = 1, listener = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK, 0);
    setsockopt(listener, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
    if (bind(listener, (struct sockaddr *)&address, size) || listen(listener, 4096))
        die("listen");
    getsockname(listener, (struct sockaddr *)&address, &size);
    printf("%d\n", ntohs(address.sin_port));
    fflush(stdout);
    return listener;
}

int main(int argc, char **argv) {
    static const char words[] = "the quick brown fox jumps over the lazy dog ";
    for (size_t i = 0; i < TEXT_MAX - 1; i++)
        text[i] = words[i % (sizeof words - 1)];
    signal(SIGPIPE, SIG_IGN);
    int listener = listen_on(argc > 1 ? atoi(argv[1]) : 0);
    epoll = epoll_create1(0);
    timer = timerfd_create(CLOCK_MONOTONIC, TFD_NONBLOCK);
    watch(listener, &listener, EPOLLIN, EPOLL_CTL_ADD);
    watch(timer, &timer, EPOLLIN, EPOLL_CTL_ADD);
    struct epoll_event ready[256];
    for (;;) {
        int count = epoll_wait(epoll, ready, 256, -1);
        bool ticked = false;
        for (int i = 0; i < count; i++) {
            if (ready[i].data.ptr == &listener)
                accept_all(listener);
            else if (ready[i].data.ptr == &timer)
                ticked = true;
            else
                on_event(ready[i].data.ptr, ready[i].events);
        }
        if (ticked)
            on_timer();
    }
}
