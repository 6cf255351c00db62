/* One reading of the clocks of a host, taken together. Layout: docs/formats/clock-reading.md; mirrored by forensics/native.py. */
#ifndef FORENSICS_CLOCK_H
#define FORENSICS_CLOCK_H

#include <stdint.h>

#include "forensics/export.h"

#define FORENSICS_CLOCK_LAYOUT 1u

enum forensics_counter {
    FORENSICS_COUNTER_NONE = 0,
    FORENSICS_COUNTER_TSC = 1,    /* x86-64 time-stamp counter */
    FORENSICS_COUNTER_CNTVCT = 2, /* AArch64 virtual counter */
};

struct forensics_clock_reading {
    int64_t realtime_ns;
    int64_t monotonic_ns; /* middle of the bracket */
    int64_t boottime_ns;
    uint64_t counter;
    int64_t bound_ns; /* width of the bracket: no clock was read further than this from another */
    uint32_t attempts;
    uint16_t counter_kind; /* enum forensics_counter */
    uint16_t layout;       /* FORENSICS_CLOCK_LAYOUT */
};

/* Reads the clocks `attempts` times and keeps the reading with the narrowest bracket.
 * Returns 0, or a negative errno: -EINVAL for a null pointer or attempts < 1, else what clock_gettime said. */
FORENSICS_EXPORT int forensics_clock_read(struct forensics_clock_reading *out, int attempts);

#endif
