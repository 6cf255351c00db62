/* The state pages, "what is true now": communicators, proxy operations, queue pairs: docs/formats/shim-log.md. */
#ifndef FORENSICS_SHIM_STATES_H
#define FORENSICS_SHIM_STATES_H

#include <stdint.h>

#include "forensics/shim_records.h"

enum shim_comm_state {
    SHIM_COMM_FREE = 0,
    SHIM_COMM_STARTING = 1, /* its init call was entered and has not returned a ready communicator */
    SHIM_COMM_READY = 2,
    SHIM_COMM_FAILED = 3, /* its init call returned an error */
    SHIM_COMM_FINALIZED = 4,
    SHIM_COMM_DESTROYED = 5,
    SHIM_COMM_ABORTED = 6,
    SHIM_COMM_REVOKED = 7,
};

#define SHIM_COMM_FROM_PROFILER 1u /* flags: no API call was seen for it */
#define SHIM_COMM_NONBLOCKING 2u
#define SHIM_COMM_GRAPH 4u      /* used under stream capture: replays are not seen */
#define SHIM_COMM_LOCAL_ID 8u   /* identity means nothing outside of this process */

struct shim_comm {
    uint32_t state;      /* enum shim_comm_state; stored last when the slot is filled */
    uint32_t generation; /* counts uses of the slot, from 1 */
    uint64_t handle;     /* ncclComm_t; reused by NCCL after destroy */
    uint64_t identity;   /* the same on every member; 0 unknown */
    uint64_t parent;     /* identity of the communicator it was split from, 0 none */
    uint64_t comm_id;    /* NCCL's own identity, as a profiler sees it; 0 unknown */
    int32_t rank;
    int32_t ranks;
    int32_t color;  /* of a split, -1 none */
    int32_t device; /* CUDA device, -1 unknown */
    int32_t nodes;  /* -1 unknown */
    uint32_t flags;
    uint64_t init_enter;
    uint64_t init_leave;
    uint64_t closed;      /* destroy or abort entered */
    uint64_t ops;         /* operations enqueued at the last sweep of the heartbeat: op_number of the last one. Newer records say more */
    uint64_t last_enter;  /* of that operation */
    uint64_t last_leave;  /* as in its record */
    uint32_t inside;      /* OS thread id inside that call, 0 none */
    uint32_t inside_kind; /* enum shim_kind */
    uint64_t profiler_ops; /* operations announced by the profiler */
    uint64_t ops_done;    /* of these, finished */
    int32_t async_error;  /* last error that ncclCommGetAsyncError gave, 0 none */
    uint32_t splits;      /* children made from it */
    uint8_t reserved0[64];
    char name[64];
    uint8_t reserved1[112];
};

enum shim_direction { SHIM_DIRECTION_SEND = 0, SHIM_DIRECTION_RECV = 1 };
enum shim_slot_state { SHIM_SLOT_FREE = 0, SHIM_SLOT_ACTIVE = 1, SHIM_SLOT_ENDED = 2 };

#define SHIM_FLOW_PAIRS 4u /* queue pairs of a flow that are told, the first ones */
#define SHIM_STEPS 8u /* steps of a proxy operation that may live together (NCCL_STEPS) */

struct shim_step {
    uint32_t state; /* 0 free, else 1 + enum shim_wait of what it waits for */
    uint32_t number;
    uint64_t since;
    uint64_t bytes;
};

/* One proxy operation: a channel and direction of one NCCL operation. */
struct shim_proxy_op {
    uint32_t state;      /* enum shim_slot_state; stored last when the slot is filled */
    uint32_t generation; /* counts uses of the slot, from 1 */
    uint16_t comm;
    uint8_t channel;
    uint8_t direction;
    int32_t peer;
    uint64_t parent;   /* opaque handle of the operation; of another process when pid differs */
    uint32_t pid;      /* process of the operation (a proxy may work for another process) */
    uint32_t op_number; /* operation of the communicator, as the profiler counts them; 0 unknown */
    uint32_t total;
    uint32_t posted;
    uint32_t gpu_ready;
    uint32_t transmitted;
    uint32_t done;
    uint32_t received;
    uint32_t flushed;
    uint32_t consumed;
    uint64_t bytes;
    uint64_t start;
    uint64_t last_change;
    uint64_t end;
    uint64_t wait[SHIM_WAITS]; /* ticks summed over finished waits of steps */
    uint8_t operation;         /* enum shim_kind, 0 unknown */
    uint8_t comm_generation;
    uint16_t reserved0;
    uint32_t chunk_bytes;
    struct shim_step steps[SHIM_STEPS];
    uint32_t waiting;     /* enum shim_wait of the oldest step, 0xFFFFFFFF none */
    uint32_t unbalanced;  /* steps stopped twice, or never started */
    uint16_t pairs[SHIM_FLOW_PAIRS]; /* 1 + slot of queue pairs that its steps, or its credits, were posted to; 0 none */
    uint32_t p2p_number; /* of a point-to-point operation: of this communicator, peer and direction, from 1; 0 unknown */
    uint8_t reserved1[148];
};

#define SHIM_WINDOW 64u /* completions in the sliding window of a queue pair */
#define SHIM_EPOCH_BINS 128u

struct shim_queue_pair {
    uint32_t state;      /* enum shim_slot_state */
    uint32_t generation; /* counts uses of the number on its device */
    uint64_t context;    /* opaque */
    uint32_t number;
    uint32_t remote_number;
    char device[32];
    uint8_t port;
    uint8_t timeout;     /* 4.096 us x 2^timeout; 255 unknown */
    uint8_t retry_count; /* 255 unknown */
    uint8_t link;        /* 0 unknown, 1 InfiniBand (lid), 2 Ethernet (gid) */
    uint16_t lid;
    uint16_t remote_lid;
    uint8_t gid[16];
    uint8_t remote_gid[16];
    uint64_t created;
    uint64_t connected; /* ready to send; 0 never */
    uint64_t posted_wrs;
    uint64_t posted_bytes;
    uint64_t completed_wrs;
    uint64_t completed_bytes;
    uint64_t received_wrs;
    uint64_t received_bytes;
    uint64_t signaled_posted;
    uint64_t signaled_completed;
    uint64_t oldest_post; /* of the oldest signaled request in flight; 0 none, or unknown while more were posted than completed */
    uint64_t last_post;
    uint64_t last_completion;
    uint64_t tail_wrs; /* unsignaled requests after the last signaled one: unknown, not stuck */
    uint64_t busy;     /* ticks with signaled work in flight, up to last_completion */
    uint64_t window_bytes; /* of the last SHIM_WINDOW completions */
    uint64_t window_ticks; /* ticks with something in flight for them: idle time between does not count */
    uint64_t poll_gap;     /* longest time between two polls since the last sample, ticks */
    uint64_t marks_lost;   /* signaled requests posted while the mark queue was full: completions are then a lower bound */
    uint64_t error_time;
    uint64_t error_wr_id;
    uint32_t error_status; /* first status that was an error; 0 none */
    uint32_t error_vendor;
    uint64_t errors;
    uint64_t bins; /* epoch bins begun since the start; bin n lies at n % SHIM_EPOCH_BINS */
    uint16_t gid_index;
    uint16_t mtu;
    uint32_t reserved0;
    uint64_t post_errors;
    int32_t flow_peer;       /* of the first flow that it carried, as in shim_proxy_op */
    uint16_t flow_comm;
    uint8_t flow_generation; /* of the communicator's slot */
    uint8_t flow_channel;
    uint8_t flow_direction;
    uint8_t flows; /* 0: it is not known what it carries; 1: this flow; 2: others too */
    uint16_t reserved2;
    uint8_t reserved1[196];
};

struct shim_epoch_bin {
    uint64_t epoch;    /* tick >> epoch_shift; stored last; 0 never written */
    uint32_t bytes;    /* share of completions spread over [completion before or post, poll], saturating */
    uint32_t poll_gap; /* longest time without a poll that ended in this epoch, ticks, saturating */
};

_Static_assert(sizeof(struct shim_comm) == 384, "layout is a contract");
_Static_assert(sizeof(struct shim_proxy_op) == 512, "layout is a contract");
_Static_assert(sizeof(struct shim_queue_pair) == 512, "layout is a contract");
_Static_assert(sizeof(struct shim_epoch_bin) == 16, "layout is a contract");

#endif
