/* Reads the clocks of a host together, with a bound on how far apart the reads were.
 *
 * Every other clock is read between two reads of CLOCK_MONOTONIC. A preemption inside the bracket makes it wide, never
 * wrong, so of several attempts the narrowest is the best one and its width is an honest bound. */
#define _GNU_SOURCE /* CLOCK_BOOTTIME */

#include "forensics/clock.h"

#include <errno.h>
#include <stddef.h>
#include <time.h>

#if defined(__x86_64__)
#include <x86intrin.h>
#endif

_Static_assert(sizeof(struct forensics_clock_reading) == 48, "layout is a contract");
_Static_assert(offsetof(struct forensics_clock_reading, bound_ns) == 32, "layout is a contract");
_Static_assert(offsetof(struct forensics_clock_reading, layout) == 46, "layout is a contract");

static int read_ns(clockid_t clock, int64_t *ns)
{
    struct timespec now;

    if (clock_gettime(clock, &now) != 0)
        return -errno;
    *ns = (int64_t)now.tv_sec * 1000000000 + now.tv_nsec;
    return 0;
}

/* The fences keep the read inside the bracket: neither counter is ordered with the instructions around it. */
static uint16_t read_counter(uint64_t *value)
{
#if defined(__x86_64__)
    _mm_lfence();
    *value = __rdtsc();
    _mm_lfence();
    return FORENSICS_COUNTER_TSC;
#elif defined(__aarch64__)
    __asm__ volatile("isb; mrs %0, cntvct_el0; isb" : "=r"(*value) : : "memory");
    return FORENSICS_COUNTER_CNTVCT;
#else
    *value = 0;
    return FORENSICS_COUNTER_NONE;
#endif
}

static int read_once(struct forensics_clock_reading *reading)
{
    int64_t before = 0, after = 0;
    int status;

    if ((status = read_ns(CLOCK_MONOTONIC, &before)) != 0)
        return status;
    if ((status = read_ns(CLOCK_REALTIME, &reading->realtime_ns)) != 0)
        return status;
    if ((status = read_ns(CLOCK_BOOTTIME, &reading->boottime_ns)) != 0)
        return status;
    reading->counter_kind = read_counter(&reading->counter);
    if ((status = read_ns(CLOCK_MONOTONIC, &after)) != 0)
        return status;
    reading->monotonic_ns = before + (after - before) / 2;
    reading->bound_ns = after > before ? after - before : 1; /* times are cut to whole nanoseconds: never claim 0 */
    return 0;
}

int forensics_clock_read(struct forensics_clock_reading *out, int attempts)
{
    struct forensics_clock_reading best = {.bound_ns = INT64_MAX};

    if (out == NULL || attempts < 1)
        return -EINVAL;
    for (int attempt = 0; attempt < attempts; attempt++) {
        struct forensics_clock_reading reading = {0};
        int status = read_once(&reading);

        if (status != 0)
            return status;
        if (reading.bound_ns < best.bound_ns)
            best = reading;
    }
    best.attempts = (uint32_t)attempts;
    best.layout = FORENSICS_CLOCK_LAYOUT;
    *out = best;
    return 0;
}
