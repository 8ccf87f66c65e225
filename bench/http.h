/* The little HTTP/1.1 that both programs share: a clock, header look-up, and a reader that follows a body to its end.
 *
 * The body reader is incremental: it may be fed any split of the bytes, keeps only counters between calls and hands the
 * payload to a callback, so that neither program ever holds a body in memory. */
#pragma once

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <time.h>

static inline int64_t now_ns(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return t.tv_sec * 1000000000LL + t.tv_nsec;
}

static inline void die(const char *what) {
    perror(what);
    exit(1);
}

/* Length of the head including its blank line; 0 while it is incomplete. */
static inline size_t head_length(const char *data, size_t size) {
    const char *end = memmem(data, size, "\r\n\r\n", 4);
    return end ? (size_t)(end - data) + 4 : 0;
}

/* The value of a header in a NUL-terminated head (it runs up to "\r\n"), or NULL. */
static inline const char *header(const char *head, const char *name) {
    size_t length = strlen(name);
    for (const char *line = strstr(head, "\r\n"); line; line = strstr(line, "\r\n")) {
        line += 2;
        if (!strncasecmp(line, name, length) && line[length] == ':')
            return line + length + 1 + strspn(line + length + 1, " \t");
    }
    return NULL;
}

static inline bool header_is(const char *head, const char *name, const char *value) {
    const char *found = header(head, name);
    return found && !strncasecmp(found, value, strlen(value));
}

enum body_state { BY_LENGTH, UNTIL_CLOSE, CHUNK_SIZE, CHUNK_EXTENSION, CHUNK_DATA, CHUNK_END, TRAILER, BODY_DONE };

struct body {
    enum body_state at;
    uint64_t left;    /* payload bytes to come: of the body (BY_LENGTH) or of this chunk */
    bool empty_line;  /* in the trailer: nothing on this line yet */
};

typedef void payload_fn(void *owner, const char *data, size_t size);

/* How the body behind this head is framed. Unframed, a request has no body, and an answer runs until the close. */
static inline struct body body_of(const char *head, bool is_answer) {
    const char *length = header(head, "content-length");
    if (header_is(head, "transfer-encoding", "chunked"))
        return (struct body){.at = CHUNK_SIZE};
    if (!length)
        return (struct body){.at = is_answer ? UNTIL_CLOSE : BODY_DONE};
    uint64_t left = strtoull(length, NULL, 10);
    return (struct body){.at = left ? BY_LENGTH : BODY_DONE, .left = left};
}

static inline int hex_digit(char c) {
    if (c >= '0' && c <= '9')
        return c - '0';
    c |= 0x20;
    return c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
}

/* One byte of chunked framing, which is to say: of anything but payload. */
static inline void body_framing(struct body *body, char c) {
    switch (body->at) {
    case CHUNK_SIZE:
    case CHUNK_EXTENSION:
        if (c == '\n') {
            body->at = body->left ? CHUNK_DATA : TRAILER;
            body->empty_line = true;
        } else if (body->at == CHUNK_SIZE && hex_digit(c) >= 0) {
            body->left = body->left * 16 + (uint64_t)hex_digit(c);
        } else {
            body->at = CHUNK_EXTENSION;
        }
        break;
    case CHUNK_END:
        if (c == '\n')
            body->at = CHUNK_SIZE;
        break;
    default: /* TRAILER: header lines, then an empty one */
        if (c == '\n' && body->empty_line)
            body->at = BODY_DONE;
        else if (c != '\r')
            body->empty_line = c == '\n';
    }
}

/* Feeds bytes; returns how many belonged to this body. It has ended when `at` is BODY_DONE. */
static inline size_t body_feed(struct body *body, const char *data, size_t size, payload_fn *payload, void *owner) {
    size_t used = 0;
    while (used < size && body->at != BODY_DONE) {
        if (body->at == UNTIL_CLOSE) {
            payload(owner, data + used, size - used);
            return size;
        }
        if (body->at != BY_LENGTH && body->at != CHUNK_DATA) {
            body_framing(body, data[used++]);
            continue;
        }
        size_t take = body->left < size - used ? (size_t)body->left : size - used;
        payload(owner, data + used, take);
        used += take;
        body->left -= take;
        if (!body->left)
            body->at = body->at == BY_LENGTH ? BODY_DONE : CHUNK_END;
    }
    return used;
}
