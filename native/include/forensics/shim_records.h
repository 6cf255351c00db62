/* The 64-byte records of the rings: docs/formats/shim-log.md. */
#ifndef FORENSICS_SHIM_RECORDS_H
#define FORENSICS_SHIM_RECORDS_H

#include <stddef.h>
#include <stdint.h>

#define SHIM_RECORD_BYTES 64u
#define SHIM_BUSY (1ull << 63) /* in a record's sequence: being written */
#define SHIM_NO_COMM 0xFFFFu

/* Kinds of record; those below 64 are NCCL functions and bits of hooked[0] and called[0]. */
enum shim_kind {
    SHIM_ALL_REDUCE = 1, SHIM_ALL_GATHER = 2, SHIM_REDUCE_SCATTER = 3, SHIM_REDUCE = 4, SHIM_BROADCAST = 5,
    SHIM_ALL_TO_ALL = 6, SHIM_GATHER = 7, SHIM_SCATTER = 8, SHIM_SEND = 9, SHIM_RECV = 10, SHIM_PUT_SIGNAL = 11,
    SHIM_SIGNAL = 12, SHIM_WAIT_SIGNAL = 13, SHIM_LAST_OPERATION = 15,
    SHIM_GROUP_START = 16, SHIM_GROUP_END = 17, SHIM_GROUP_SIMULATE_END = 18,
    SHIM_GET_UNIQUE_ID = 32, SHIM_INIT_RANK = 33, SHIM_INIT_RANK_CONFIG = 34, SHIM_INIT_RANK_SCALABLE = 35,
    SHIM_INIT_ALL = 36, SHIM_SPLIT = 37, SHIM_SHRINK = 38, SHIM_GROW = 39, SHIM_FINALIZE = 40, SHIM_DESTROY = 41,
    SHIM_ABORT = 42, SHIM_REVOKE = 43, SHIM_ASYNC_ERROR = 44, SHIM_SUSPEND = 45, SHIM_RESUME = 46,
    SHIM_WINDOW_REGISTER = 47, SHIM_WINDOW_DEREGISTER = 48, SHIM_DEV_COMM_CREATE = 49, SHIM_DEV_COMM_DESTROY = 50,
    SHIM_THREAD = 64,      /* a thread took the ring */
    SHIM_QP_EVENT = 65,    /* a queue pair was made, connected, destroyed, or failed */
    SHIM_PROXY_STATE = 80, /* sample of a proxy operation in progress; SHIM_PROXY_WAITS follows */
    SHIM_PROXY_DONE = 81,  /* a proxy operation ended; SHIM_PROXY_WAITS follows */
    SHIM_PROXY_WAITS = 82,
    SHIM_OP_DONE = 83,     /* every proxy operation (or kernel) of an NCCL operation ended */
    SHIM_QP_STATE = 84,    /* sample of a queue pair; SHIM_QP_RATE follows */
    SHIM_QP_RATE = 85,
};

#define SHIM_TOLD_BY_PROFILER 0x80u /* in shim_call.depth */
#define SHIM_NO_RESULT 0xFFu
#define SHIM_LEFT 1u

/* Every record begins with `sequence` and `time` and ends with kind, generation, comm and check. */
struct shim_call {
    uint64_t sequence; /* position in the ring + 1; SHIM_BUSY set while being written; 0 never written */
    uint64_t enter;
    uint64_t leave; /* 0: still inside; SHIM_LEFT: it returned before the next sweep of the heartbeat, and the moment was not taken */
    uint64_t count;
    uint64_t stream;
    uint32_t op_number;  /* of this communicator, from 1; 0 for what is no operation */
    uint32_t p2p_number; /* of this communicator, peer and direction, from 1; 0 unknown */
    int32_t peer;        /* peer or root, -1 none */
    uint8_t dtype;       /* ncclDataType_t; 255 none */
    uint8_t redop;       /* ncclRedOp_t; 255 none, 254 made by the program */
    uint8_t depth;       /* bits 0-6: open groups around the call; bit 7: SHIM_TOLD_BY_PROFILER */
    uint8_t result;      /* ncclResult_t; SHIM_NO_RESULT while inside */
    uint8_t kind;
    uint8_t generation; /* low byte of shim_comm.generation */
    uint16_t comm;      /* slot, or SHIM_NO_COMM */
    uint32_t check;     /* low half of the sequence, written right after SHIM_BUSY */
};

/* SHIM_PROXY_STATE, SHIM_PROXY_DONE. */
struct shim_proxy_record {
    uint64_t sequence;
    uint64_t time;
    uint32_t op_number; /* as in shim_proxy_op */
    int32_t peer;
    uint16_t slot;
    uint8_t channel;
    uint8_t direction;
    uint32_t total;
    uint32_t posted;
    uint32_t ready;  /* sender: gpu_ready; receiver: received */
    uint32_t passed; /* sender: transmitted; receiver: flushed */
    uint32_t done;   /* sender: done; receiver: consumed */
    uint64_t bytes;
    uint8_t kind;
    uint8_t generation;
    uint16_t comm;
    uint32_t check;
};

enum shim_wait {
    SHIM_WAIT_GPU = 0,     /* sender: the GPU has not produced */
    SHIM_WAIT_CREDIT = 1,  /* sender: the peer has not asked */
    SHIM_WAIT_NIC = 2,     /* sender: handed to the NIC, not completed */
    SHIM_WAIT_WIRE = 3,    /* receiver: posted, not arrived */
    SHIM_WAIT_FLUSH = 4,   /* receiver: arrived, not visible to the GPU */
    SHIM_WAIT_CONSUME = 5, /* receiver: visible, not consumed by the GPU */
    SHIM_WAITS = 6,
};

/* SHIM_PROXY_WAITS: the second half of the record before it in the same ring. */
struct shim_waits_record {
    uint64_t sequence;
    uint64_t time;
    uint64_t start;         /* of the proxy operation */
    float wait[SHIM_WAITS]; /* ticks summed over steps */
    float stuck;            /* ticks since a counter changed */
    uint16_t slot;
    uint8_t channel;
    uint8_t direction;
    uint8_t kind;
    uint8_t generation;
    uint16_t comm;
    uint32_t check;
};

/* SHIM_OP_DONE. */
struct shim_done_record {
    uint64_t sequence;
    uint64_t start;
    uint64_t end;
    uint64_t bytes;
    uint64_t parent;     /* opaque handle of the operation */
    uint32_t op_number;
    uint32_t p2p_number;
    int32_t peer;
    uint8_t operation; /* enum shim_kind of the operation */
    uint8_t algorithm; /* ncclAlgo number, 255 unknown */
    uint8_t protocol;  /* 0 LL, 1 LL128, 2 simple, 255 unknown */
    uint8_t channels;
    uint8_t kind;
    uint8_t generation;
    uint16_t comm;
    uint32_t check;
};

/* SHIM_QP_STATE. */
struct shim_qp_record {
    uint64_t sequence;
    uint64_t time;
    uint64_t posted_wrs;
    uint64_t completed_wrs;
    uint64_t posted_bytes;
    uint64_t completed_bytes;
    float oldest;      /* age in ticks of the oldest signaled request in flight; 0 none */
    uint16_t slot;
    uint16_t in_flight; /* signaled requests in flight, saturating */
    uint8_t kind;
    uint8_t generation;
    uint16_t comm;
    uint32_t check;
};

/* SHIM_QP_RATE: the second half of the record before it in the same ring. */
struct shim_rate_record {
    uint64_t sequence;
    uint64_t time;
    uint64_t busy; /* ticks with signaled work in flight */
    uint64_t window_bytes;
    uint64_t window_ticks;
    uint64_t received_bytes;
    float poll_gap; /* longest time between two polls since the sample before, ticks */
    uint16_t slot;
    uint16_t tail;  /* unsignaled requests after the last signaled one: unknown, not stuck; saturating */
    uint8_t kind;
    uint8_t generation;
    uint16_t comm;
    uint32_t check;
};

enum shim_qp_event {
    SHIM_QP_CREATED = 1,
    SHIM_QP_CONNECTED = 2, /* ready to receive: the remote end is known */
    SHIM_QP_READY = 3,     /* ready to send */
    SHIM_QP_DESTROYED = 4,
    SHIM_QP_FAILED = 5,
    SHIM_QP_SEEN = 6, /* first post of a queue pair whose making was not seen */
};

/* SHIM_QP_EVENT. */
struct shim_qp_event_record {
    uint64_t sequence;
    uint64_t time;
    uint64_t wr_id;   /* of the first failed request */
    uint64_t context; /* opaque: tells devices of one process apart */
    uint32_t number;
    uint32_t remote_number;
    uint32_t status; /* ibv_wc_status */
    uint32_t vendor_error;
    uint32_t slot;
    uint8_t event; /* enum shim_qp_event */
    uint8_t port;
    uint8_t timeout;
    uint8_t retry_count;
    uint8_t kind;
    uint8_t generation;
    uint16_t comm;
    uint32_t check;
};

/* Any record. */
struct shim_record {
    uint64_t sequence;
    uint64_t time;
    uint8_t payload[40];
    uint8_t kind;
    uint8_t generation;
    uint16_t comm;
    uint32_t check;
};

_Static_assert(sizeof(struct shim_record) == SHIM_RECORD_BYTES, "layout is a contract");
_Static_assert(sizeof(struct shim_call) == SHIM_RECORD_BYTES, "layout is a contract");
_Static_assert(sizeof(struct shim_proxy_record) == SHIM_RECORD_BYTES, "layout is a contract");
_Static_assert(sizeof(struct shim_waits_record) == SHIM_RECORD_BYTES, "layout is a contract");
_Static_assert(sizeof(struct shim_done_record) == SHIM_RECORD_BYTES, "layout is a contract");
_Static_assert(sizeof(struct shim_qp_record) == SHIM_RECORD_BYTES, "layout is a contract");
_Static_assert(sizeof(struct shim_rate_record) == SHIM_RECORD_BYTES, "layout is a contract");
_Static_assert(sizeof(struct shim_qp_event_record) == SHIM_RECORD_BYTES, "layout is a contract");
_Static_assert(offsetof(struct shim_call, kind) == 56 && offsetof(struct shim_call, check) == 60, "tail of every record");

#endif
