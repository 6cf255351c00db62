/* The clock of the records: a CPU counter where the kernel trusts it, else CLOCK_MONOTONIC. */
#ifndef FORENSICS_RING_TICKS_H
#define FORENSICS_RING_TICKS_H

#include <stdint.h>
#include <time.h>

#include "forensics/clock.h"
#include "ring/hot.h"

#if defined(__x86_64__)
#include <x86intrin.h>
#endif

/* What is hidden anyway must also be known to be, or each access goes through a table. */
#pragma GCC visibility push(hidden)

uint64_t shim_monotonic_ns(void);

/* Now, in ticks of shim_ticks_kind. Not ordered with the instructions around it: a fence would cost more than it tells. */
static inline uint64_t shim_now(void)
{
#if defined(__x86_64__)
    if (__builtin_expect(__atomic_load_n(&shim_hot.ticks, __ATOMIC_RELAXED) == FORENSICS_COUNTER_TSC, 1))
        return __rdtsc();
#elif defined(__aarch64__)
    if (__builtin_expect(__atomic_load_n(&shim_hot.ticks, __ATOMIC_RELAXED) == FORENSICS_COUNTER_CNTVCT, 1)) {
        uint64_t value;

        __asm__ volatile("mrs %0, cntvct_el0" : "=r"(value));
        return value;
    }
#endif
    return shim_monotonic_ns();
}

#pragma GCC visibility pop

#endif
