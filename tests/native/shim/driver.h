/* What the drivers of the collector's hooks share: checks, and looks into the log of this process. */
#ifndef DRIVER_H
#define DRIVER_H

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "ring/log.h"

#define CHECK(condition)                                                                    \
    do {                                                                                    \
        if (!(condition)) {                                                                 \
            fprintf(stderr, "%s:%d: %s\n", __func__, __LINE__, #condition);                 \
            exit(1);                                                                        \
        }                                                                                   \
    } while (0)
#define EQUAL(found, wanted)                                                                                    \
    do {                                                                                                        \
        unsigned long long found_ = (unsigned long long)(found), wanted_ = (unsigned long long)(wanted);        \
        if (found_ != wanted_) {                                                                                \
            fprintf(stderr, "%s:%d: %s is %llu, not %llu\n", __func__, __LINE__, #found, found_, wanted_);      \
            exit(1);                                                                                            \
        }                                                                                                       \
    } while (0)

static uint64_t dice = 88172645463325252ull;

__attribute__((unused)) static uint32_t roll(uint32_t sides)
{
    dice ^= dice << 13;
    dice ^= dice >> 7;
    dice ^= dice << 17;
    return (uint32_t)(dice >> 33) % sides;
}

/* The newest record of a kind in any ring, or NULL; *count tells how many there are. Looks while others write, as any reader
 * of the file does. */
__attribute__((unused, no_sanitize("thread"))) static const struct shim_record *newest(uint8_t kind, uint64_t *count)
{
    const struct shim_record *best = NULL;

    *count = 0;
    for (uint32_t each = 0; each < shim_log.ring_count; each++) {
        const struct shim_ring *ring = &shim_log.rings[each];
        uint64_t kept = ring->head < ring->records ? ring->head : ring->records;

        for (uint64_t at = 0; at < kept; at++) {
            const struct shim_record *record = &shim_log.records[ring->first + at];

            if (record->kind != kind)
                continue;
            (*count)++;
            if (best == NULL || record->time >= best->time)
                best = record;
        }
    }
    return best;
}

#endif
