/* The clock of the records: a CPU counter where the kernel trusts it, else CLOCK_MONOTONIC. */
#ifndef FORENSICS_RING_TICKS_H
#define FORENSICS_RING_TICKS_H

#include <stdint.h>
#include <time.h>

#include "forensics/clock.h"

#if defined(__x86_64__)
#include <x86intrin.h>
#endif

/* What is hidden anyway must also be known to be, or each access goes through a table. */
#pragma GCC visibility push(hidden)

struct shim_comm;

/* What every call reads, in one cache line: in the middle of a training step each further line is a trip to memory. */
struct shim_hot {
    uint16_t recording;     /* 1 while records are taken */
    uint16_t ticks;         /* enum forensics_counter, or SHIM_TICKS_MONOTONIC_NS; decided before the first record */
    uint32_t incarnation;   /* changes in a forked child: what a door remembers of slots is then void */
    struct shim_comm *comms; /* the slots of shim_log */
    uint64_t covered[3][2]; /* coverage bits that are set already, of this process */
} __attribute__((aligned(64)));
extern struct shim_hot shim_hot;

uint64_t shim_monotonic_ns(void);

/* Now, in ticks of shim_ticks_kind. Not ordered with the instructions around it: a fence would cost more than it tells. */
static inline uint64_t shim_now(void)
{
#if defined(__x86_64__)
    if (__builtin_expect(shim_hot.ticks == FORENSICS_COUNTER_TSC, 1))
        return __rdtsc();
#elif defined(__aarch64__)
    if (__builtin_expect(shim_hot.ticks == FORENSICS_COUNTER_CNTVCT, 1)) {
        uint64_t value;

        __asm__ volatile("mrs %0, cntvct_el0" : "=r"(value));
        return value;
    }
#endif
    return shim_monotonic_ns();
}

#pragma GCC visibility pop

#endif
