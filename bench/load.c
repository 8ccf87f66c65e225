/* A closed-loop load generator: every connection has one request in flight and sends the next when the answer is whole.
 *
 *   load [options] PORT PATH BODY_FILE
 *     -c N       connections (16)               -s SECONDS  measured (1)          -w SECONDS  warm-up before that (0.3)
 *     -a ANSWER  what the upstream shall answer, its x-bench-answer ("json 400")
 *     -i MICROS  at most one request per connection every MICROS (0: as fast as it goes)
 *     -S         salt: fresh digits in each place of the body that reads salt-0000000000000000
 *     -H LINE    a further request header
 *
 * Connections start staggered over the warm-up, so that streams do not all tick in the same moment. stderr says "begin"
 * and "end" at the borders of the measured time, for whoever reads CPU clocks; stdout gets one line of JSON. What ends
 * in the measured time counts. An error is a status other than 2xx or a connection that breaks; an event is lost when a
 * stream ends without it or out of its order. Lag is the time from the upstream's send() to this program's reading.
 *
 * How it thinks: a connection is WAITING for its start, SENDING its request, then reading HEAD and BODY of an answer. */
#define _GNU_SOURCE
#include "request.h"
#include "samples.h"

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <signal.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

enum { HEAD_MAX = 16 << 10, MARK_MAX = 40, RETRY_NS = 10000000 };

struct conn {
    int fd; /* -1: not connected */
    enum { WAITING, SENDING, HEAD, BODY } state;
    char *copy; /* of the request, with a salt of its own */
    size_t sent;
    bool blocked; /* the socket is full: wait for EPOLLOUT */
    int64_t start_at, started, first_byte, last_event;
    char head[HEAD_MAX];
    size_t head_size;
    int status;
    bool last_answer; /* the server said "connection: close" */
    struct body body;
    bool in_mark;
    char mark[MARK_MAX];
    size_t mark_size;
    int next_event;
};

static struct {
    int connections, port, events;
    double seconds, warm_up;
    int64_t interval;
    bool salted;
    const char *path, *body_file;
    char headers[4096];
} want = {.connections = 16, .seconds = 1, .warm_up = 0.3};

static struct request request;
static int epoll, waiting;
static bool measuring;
static char inbox[256 << 10];
static struct samples latency, first_byte, lag, gap;
static size_t requests, errors, connects, events, lost, received, statuses[600];

static void add(struct samples *to, int64_t nanoseconds) {
    if (measuring)
        add_sample(to, nanoseconds);
}

static void count(size_t *counter, size_t amount) {
    if (measuring)
        *counter += amount;
}

/* Connections */

static void watch(struct conn *c, uint32_t wanted, int operation) {
    struct epoll_event event = {.events = wanted, .data.ptr = c};
    if (epoll_ctl(epoll, operation, c->fd, &event))
        die("epoll_ctl");
}

static void close_connection(struct conn *c) {
    close(c->fd);
    c->fd = -1;
    c->blocked = false;
}

static bool open_connection(struct conn *c) {
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_port = htons((uint16_t)want.port)};
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    int on = 1;
    c->fd = socket(AF_INET, SOCK_STREAM, 0);
    if (connect(c->fd, (struct sockaddr *)&address, sizeof address))
        return false;
    setsockopt(c->fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
    fcntl(c->fd, F_SETFL, O_NONBLOCK);
    watch(c, EPOLLIN, EPOLL_CTL_ADD);
    count(&connects, 1);
    return true;
}

static void wait_until(struct conn *c, int64_t when) {
    c->state = WAITING;
    c->start_at = when;
    waiting++;
}

static void fail(struct conn *c) {
    count(&errors, 1);
    if (c->fd >= 0)
        close_connection(c);
    wait_until(c, now_ns() + RETRY_NS);
}

static void send_more(struct conn *c) {
    while (c->sent < request.size) {
        ssize_t sent = send(c->fd, c->copy + c->sent, request.size - c->sent, MSG_NOSIGNAL);
        if (sent < 0 && errno == EAGAIN) {
            if (!c->blocked)
                watch(c, EPOLLIN | EPOLLOUT, EPOLL_CTL_MOD);
            c->blocked = true;
            return;
        }
        if (sent < 0) {
            fail(c);
            return;
        }
        c->sent += (size_t)sent;
    }
    if (c->blocked)
        watch(c, EPOLLIN, EPOLL_CTL_MOD);
    c->blocked = false;
    c->state = HEAD;
}

static void begin(struct conn *c) {
    waiting--;
    if (want.salted)
        put_salts(&request, c->copy);
    c->sent = c->head_size = c->mark_size = 0;
    c->first_byte = c->last_event = c->next_event = 0;
    c->in_mark = false;
    c->state = SENDING;
    c->started = now_ns();
    if (c->fd < 0 && !open_connection(c))
        fail(c);
    else
        send_more(c);
}

/* The answer */

static void take_event(struct conn *c) {
    int number;
    long long sent;
    c->mark[c->mark_size] = 0;
    if (sscanf(c->mark, "%d:%lld", &number, &sent) != 2)
        return;
    int64_t now = now_ns();
    if (number == c->next_event)
        c->next_event++;
    count(&events, 1);
    add(&lag, now - sent);
    if (c->last_event)
        add(&gap, now - c->last_event);
    c->last_event = now;
}

/* Finds the marks @number:nanoseconds@, wherever the bytes happen to be split. */
static void on_payload(void *owner, const char *data, size_t size) {
    struct conn *c = owner;
    count(&received, size);
    while (want.events && size) {
        const char *at = memchr(data, '@', size);
        size_t before = at ? (size_t)(at - data) : size;
        if (c->in_mark && c->mark_size + before < MARK_MAX)
            c->mark_size = (size_t)((char *)mempcpy(c->mark + c->mark_size, data, before) - c->mark);
        if (!at)
            return;
        if (c->in_mark)
            take_event(c);
        c->in_mark = !c->in_mark;
        c->mark_size = 0;
        data += before + 1;
        size -= before + 1;
    }
}

static void finish(struct conn *c) {
    int64_t now = now_ns();
    bool good = c->status >= 200 && c->status < 300;
    count(good ? &requests : &errors, 1);
    count(&statuses[c->status], 1);
    if (good) {
        add(&latency, now - c->started);
        add(&first_byte, c->first_byte - c->started);
        count(&lost, (size_t)(want.events - c->next_event));
    }
    if (c->last_answer)
        close_connection(c);
    int64_t next = c->started + want.interval;
    wait_until(c, next > now ? next : now);
    if (next <= now)
        begin(c);
}

/* Returns how many of the new bytes belonged to the head; 0 means that the connection has failed. */
static size_t take_head(struct conn *c, const char *data, size_t size) {
    size_t before = c->head_size, room = HEAD_MAX - 1 - before, take = size < room ? size : room;
    memcpy(c->head + before, data, take);
    size_t whole = head_length(c->head, before + take);
    c->head_size += take;
    if (!whole)
        return take;
    c->head[whole - 2] = 0;
    if (sscanf(c->head, "HTTP/1.%*d %d", &c->status) != 1 || c->status < 100 || c->status > 599)
        return 0;
    c->last_answer = header_is(c->head, "connection", "close");
    c->body = body_of(c->head, true);
    c->state = BODY;
    return whole - before;
}

static void consume(struct conn *c, const char *data, size_t size) {
    if (!c->first_byte)
        c->first_byte = now_ns();
    while (size) {
        size_t used = c->state == HEAD ? take_head(c, data, size) : body_feed(&c->body, data, size, on_payload, c);
        if (!used) {
            fail(c);
            return;
        }
        data += used;
        size -= used;
        if (c->state == BODY && c->body.at == BODY_DONE) {
            finish(c); /* may have begun the next request: nothing of this answer is left */
            return;
        }
    }
}

static void on_readable(struct conn *c) {
    ssize_t got = recv(c->fd, inbox, sizeof inbox, 0);
    if (got < 0 && errno == EAGAIN)
        return;
    if (got > 0 && (c->state == HEAD || c->state == BODY)) {
        consume(c, inbox, (size_t)got);
    } else if (got == 0 && c->state == BODY && c->body.at == UNTIL_CLOSE) {
        c->last_answer = true;
        finish(c);
    } else if (c->state == WAITING) {
        close_connection(c); /* an idle connection may be closed by the server at any time */
    } else {
        fail(c); /* closed or answered in the middle of a request */
    }
}

static void on_event(struct conn *c, uint32_t ready) {
    if (ready & EPOLLOUT && c->state == SENDING)
        send_more(c);
    if (ready & ~(uint32_t)EPOLLOUT && c->fd >= 0)
        on_readable(c);
}

/* The run */

static void start_waiting(struct conn *conns) {
    int64_t now = now_ns();
    for (int i = 0; waiting && i < want.connections; i++)
        if (conns[i].state == WAITING && conns[i].start_at <= now)
            begin(&conns[i]);
}

static void run_until(struct conn *conns, int64_t end) {
    struct epoll_event ready[256];
    for (int64_t now = now_ns(); now < end; now = now_ns()) {
        start_waiting(conns);
        int timeout = waiting ? 1 : (int)((end - now) / 1000000) + 1;
        int n = epoll_wait(epoll, ready, 256, timeout);
        for (int i = 0; i < n; i++)
            on_event(ready[i].data.ptr, ready[i].events);
    }
}

static void print_result(double seconds) {
    printf("{\"seconds\": %.4f, \"requests\": %zu, \"errors\": %zu", seconds, requests, errors);
    printf(", \"connects\": %zu, \"requests_per_second\": %.1f", connects, (double)requests / seconds);
    print_samples("latency_us", &latency);
    print_samples("first_byte_us", &first_byte);
    print_samples("lag_us", &lag);
    print_samples("gap_us", &gap);
    printf(", \"events\": %zu, \"lost_events\": %zu, \"body_bytes\": %zu, \"statuses\": {", events, lost, received);
    for (int i = 0, first = 1; i < 600; i++)
        if (statuses[i])
            printf("%s\"%d\": %zu", first ? "" : ", ", i, statuses[i]), first = 0;
    printf("}}\n");
}

static void want_header(const char *name, const char *value) {
    size_t used = strlen(want.headers);
    snprintf(want.headers + used, sizeof want.headers - used, "%s%s\r\n", name, value);
}

static void read_options(int argc, char **argv) {
    const char *answer = "json 400";
    for (int option; (option = getopt(argc, argv, "c:s:w:a:i:SH:")) != -1;)
        switch (option) {
        case 'c': want.connections = atoi(optarg); break;
        case 's': want.seconds = atof(optarg); break;
        case 'w': want.warm_up = atof(optarg); break;
        case 'a': answer = optarg; break;
        case 'i': want.interval = atoll(optarg) * 1000; break;
        case 'S': want.salted = true; break;
        case 'H': want_header("", optarg); break;
        default: exit(2);
        }
    if (argc - optind != 3) {
        fprintf(stderr, "usage: load [options] PORT PATH BODY_FILE (see the top of load.c)\n");
        exit(2);
    }
    want.port = atoi(argv[optind]);
    want.path = argv[optind + 1];
    want.body_file = argv[optind + 2];
    want_header("x-bench-answer: ", answer);
    sscanf(answer, "sse %d", &want.events);
}

int main(int argc, char **argv) {
    read_options(argc, argv);
    request = build_request(want.path, want.headers, want.body_file);
    signal(SIGPIPE, SIG_IGN);
    epoll = epoll_create1(0);
    int64_t start = now_ns(), warm = (int64_t)(want.warm_up * 1e9);
    struct conn *conns = calloc((size_t)want.connections, sizeof *conns);
    for (int i = 0; i < want.connections; i++) {
        conns[i].fd = -1;
        conns[i].copy = memcpy(malloc(request.size), request.bytes, request.size);
        wait_until(&conns[i], start + warm * i / want.connections);
    }
    run_until(conns, start + warm);
    fputs("begin\n", stderr);
    measuring = true;
    int64_t from = now_ns();
    run_until(conns, from + (int64_t)(want.seconds * 1e9));
    double seconds = (double)(now_ns() - from) / 1e9;
    fputs("end\n", stderr);
    print_result(seconds);
}
