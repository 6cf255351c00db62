/* The ground truth of a run, written only when TESTBED_TRUTH names a folder: what a log is compared with.
 *
 * One file per rank and kind, <folder>/<rank>.<kind>: a header of 64 bytes, then rows of 64 bytes. The files are mapped, so
 * they are whole after SIGKILL. tests/native/testbed.py reads them. */
#ifndef TESTBED_TRUTH_H
#define TESTBED_TRUTH_H

#include <stdatomic.h>
#include <stdint.h>

#define TRUTH_ROWS 65535

enum truth_kind { TRUTH_CALLS, TRUTH_WORKS, TRUTH_STEPS, TRUTH_QPS, TRUTH_KINDS };

struct truth_header {
    _Atomic uint64_t rows; /* more than TRUTH_ROWS: the later ones were not kept */
    uint64_t reserved[7];
};

/* A call of the public interface that carries data. */
struct truth_call {
    uint64_t comm, count;
    int32_t func, datatype, peer, depth;
    uint64_t reserved[4];
};

/* A kernel of the communication library on a stream. */
struct truth_work {
    uint64_t comm;
    int32_t func;
    uint32_t number; /* of the communicator's works */
    _Atomic uint32_t started, finished, moved, total; /* moved, total: steps of its lanes */
    uint64_t reserved[4];
};

/* What the proxy did for one operation, channel, peer and direction: the counters of a profiler that misses nothing. */
struct truth_step {
    uint64_t comm;
    uint32_t number;
    int16_t channel;
    int16_t is_send;
    int32_t peer;
    uint32_t total;
    _Atomic uint32_t posted, ready, transmitted, received, flushed, done;
    int32_t pid; /* of the process whose operation it is */
    int32_t reserved0;
    uint64_t reserved;
};

/* What a queue pair carried. Work requests are counted, not posts. */
struct truth_qp {
    uint32_t number, device;
    uint32_t destination;
    int32_t other;                                   /* rank at the other end */
    _Atomic uint32_t sends, signaled, send_cqes, recvs; /* sends: all work requests of the send queue */
    _Atomic uint32_t recv_cqes, errors, first_status, executed;
    _Atomic uint64_t bytes;
    uint64_t reserved;
};

_Static_assert(sizeof(struct truth_header) == 64 && sizeof(struct truth_call) == 64, "read by the tests");
_Static_assert(sizeof(struct truth_work) == 64 && sizeof(struct truth_step) == 64, "read by the tests");
_Static_assert(sizeof(struct truth_qp) == 64, "read by the tests");

/* A new row of the kind; where no truth was asked for, memory that nobody reads. Never NULL. */
void *truth_row(enum truth_kind kind);

static inline void truth_count(_Atomic uint32_t *counter)
{
    atomic_fetch_add_explicit(counter, 1, memory_order_relaxed);
}

#endif
