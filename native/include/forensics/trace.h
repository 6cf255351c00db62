/* Events of a trace file (the JSON of Chrome's trace viewer, as kineto writes it) as columns, read block by block.
 *
 * Only complete events ("ph": "X") of the kinds below are kept; all others are stepped over. Operators are kept where the head of
 * the file states that there is no device ("deviceProperties": []). Nothing is kept of a file but these columns. Read by ingest/kineto/native.py. */
#ifndef FORENSICS_TRACE_H
#define FORENSICS_TRACE_H

#include <stdint.h>

#include "forensics/export.h"

#define FORENSICS_TRACE_LAYOUT 3u

/* Of which kind an event is; ingest/kineto/events.py has the same numbers. */
enum forensics_trace_kind {
    FORENSICS_TRACE_ANNOTATION = 1,        /* user_annotation: record_function, ProfilerStep, nccl:all_reduce */
    FORENSICS_TRACE_DEVICE_ANNOTATION = 2, /* gpu_user_annotation */
    FORENSICS_TRACE_KERNEL = 3,
    FORENSICS_TRACE_COPY = 4,     /* gpu_memcpy, gpu_memset */
    FORENSICS_TRACE_LAUNCH = 5,   /* a runtime call that puts work on a stream */
    FORENSICS_TRACE_GRADIENT = 6, /* autograd::engine::evaluate_function */
    FORENSICS_TRACE_CALL = 7,     /* record_param_comms */
    FORENSICS_TRACE_UPDATE = 8,   /* an operator that only optimizers call */
    FORENSICS_TRACE_OPERATOR = 9, /* any other operator of the host */
};

/* One value a kept event, but for the last ones. Absent numbers are -1. */
enum forensics_trace_column {
    FORENSICS_TRACE_KINDS = 0,        /* uint8 */
    FORENSICS_TRACE_NAMES = 1,        /* int32, number of the distinct name */
    FORENSICS_TRACE_TRACKS = 2,       /* int32, number of the distinct "pid/tid" */
    FORENSICS_TRACE_BEGINS = 3,       /* int64, ns */
    FORENSICS_TRACE_DURATIONS = 4,    /* int64, ns */
    FORENSICS_TRACE_EXTERNALS = 5,    /* int64, "External id" */
    FORENSICS_TRACE_CORRELATIONS = 6, /* int64, "correlation" */
    FORENSICS_TRACE_DETAILS = 7,      /* int32, number of the event's own text, where it says more of a collective */
    FORENSICS_TRACE_NAME_BYTES = 8,   /* texts one after the other, as JSON escapes them ... */
    FORENSICS_TRACE_NAME_ENDS = 9,    /* ... and uint64 where each ends */
    FORENSICS_TRACE_TRACK_BYTES = 10,
    FORENSICS_TRACE_TRACK_ENDS = 11,
    FORENSICS_TRACE_DETAIL_BYTES = 12,
    FORENSICS_TRACE_DETAIL_ENDS = 13,
    FORENSICS_TRACE_COLUMNS = 14,
};

struct forensics_trace_tally {
    uint64_t kept;
    uint64_t broken;       /* events that are no valid JSON */
    uint64_t first_broken; /* offset of the first one in the file */
};

struct forensics_trace;

/* FORENSICS_TRACE_LAYOUT of this library. */
FORENSICS_EXPORT uint32_t forensics_trace_layout(void);

/* A reader that takes at most `memory` bytes for its columns; null for want of memory. */
FORENSICS_EXPORT struct forensics_trace *forensics_trace_open(uint64_t memory);

FORENSICS_EXPORT void forensics_trace_close(struct forensics_trace *trace);

/* Reads whole events of the next `size` bytes of the file; `is_last` when no more will come. Returns how many bytes are done
 * with: the rest must come again in front of the next block. -1 when memory does not do; what was read before stays. */
FORENSICS_EXPORT int64_t forensics_trace_feed(struct forensics_trace *trace, const char *block, uint64_t size, int is_last);

/* Where a column lies and its size in bytes; valid until the next feed. */
FORENSICS_EXPORT const void *forensics_trace_column(const struct forensics_trace *trace, uint32_t column, uint64_t *bytes);

FORENSICS_EXPORT void forensics_trace_tallied(const struct forensics_trace *trace, struct forensics_trace_tally *tally);

#endif
