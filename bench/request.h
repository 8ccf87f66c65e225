/* The one request that a load run sends over and over, and its salt.
 *
 * A salt place is the text salt-0000000000000000 in the body; its digits can be made fresh before each sending, so that
 * a proxy that remembers what it has seen meets something new there. */
#pragma once

#include "http.h"

#define SALT_PLACE "salt-0000000000000000"
enum { SALT_DIGITS = 16, REQUEST_HEAD_MAX = 8 << 10 };

struct request {
    char *bytes; /* head and body */
    size_t size;
    size_t *salts, salt_count; /* where digits stand in `bytes` */
};

static inline void find_salts(struct request *request, size_t from) {
    const char *at = request->bytes + from, *end = request->bytes + request->size;
    while ((at = memmem(at, (size_t)(end - at), SALT_PLACE, strlen(SALT_PLACE)))) {
        at += strlen(SALT_PLACE);
        request->salts = realloc(request->salts, (request->salt_count + 1) * sizeof *request->salts);
        if (!request->salts)
            die("realloc");
        request->salts[request->salt_count++] = (size_t)(at - request->bytes) - SALT_DIGITS;
    }
}

/* `headers`: further header lines, each ending in "\r\n". */
static inline struct request build_request(const char *path, const char *headers, const char *body_file) {
    static const char pattern[] = "POST %s HTTP/1.1\r\nhost: 127.0.0.1\r\ncontent-type: application/json\r\n"
                                  "authorization: Bearer bench\r\n%scontent-length: %zu\r\n\r\n";
    char *body = NULL;
    size_t body_size = 0, room = 0;
    FILE *file = fopen(body_file, "rb");
    if (!file || (getdelim(&body, &room, EOF, file) < 0 && ferror(file)))
        die(body_file);
    body_size = (size_t)ftell(file);
    fclose(file);
    struct request request = {.bytes = malloc(REQUEST_HEAD_MAX + body_size)};
    int head_size = snprintf(request.bytes, REQUEST_HEAD_MAX, pattern, path, headers, body_size);
    if (head_size >= REQUEST_HEAD_MAX)
        die("headers too long");
    memcpy(request.bytes + head_size, body, body_size);
    free(body);
    request.size = (size_t)head_size + body_size;
    find_salts(&request, (size_t)head_size);
    return request;
}

/* Writes digits never used before into every salt place of a copy: a counter that starts from the clock, mixed. */
static inline void put_salts(const struct request *request, char *copy) {
    static const char digits[] = "0123456789abcdef";
    static uint64_t counter;
    if (!counter)
        counter = (uint64_t)now_ns();
    for (size_t i = 0; i < request->salt_count; i++) {
        uint64_t mixed = ++counter * 0x9E3779B97F4A7C15u;
        for (int d = 0; d < SALT_DIGITS; d++, mixed >>= 4)
            copy[request->salts[i] + (size_t)d] = digits[mixed & 15];
    }
}
