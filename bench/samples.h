/* Measured times, kept one by one and sorted once at the end, so that percentiles are exact. */
#pragma once

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

struct samples {
    int64_t *values; /* nanoseconds */
    size_t count, room;
};

static inline void add_sample(struct samples *to, int64_t value) {
    if (to->count == to->room) {
        to->room = to->room ? to->room * 2 : 1024;
        to->values = realloc(to->values, to->room * sizeof *to->values);
        if (!to->values)
            abort();
    }
    to->values[to->count++] = value;
}

static inline int ascending(const void *a, const void *b) {
    int64_t x = *(const int64_t *)a, y = *(const int64_t *)b;
    return (x > y) - (x < y);
}

static inline double microseconds_at(const struct samples *of, double quantile) {
    return of->count ? (double)of->values[(size_t)(quantile * (double)(of->count - 1))] / 1000 : 0;
}

/* Prints `, "name": {...}` in microseconds. */
static inline void print_samples(const char *name, struct samples *of) {
    if (of->count)
        qsort(of->values, of->count, sizeof *of->values, ascending);
    printf(", \"%s\": {\"p50\": %.1f, \"p95\": %.1f, \"p99\": %.1f, \"max\": %.1f}", name, microseconds_at(of, 0.5),
        microseconds_at(of, 0.95), microseconds_at(of, 0.99), microseconds_at(of, 1));
}
