/* Inside the stand-in: communicators, links between ranks, works on streams, and the proxy. */
#ifndef TESTBED_COMM_H
#define TESTBED_COMM_H

#include <pthread.h>

#include "bed.h"
#include "nccl.h"
#include "truth.h"

#define STEPS 8 /* NCCL_STEPS: slots of a link, so credits */
#define MAX_CHANNELS 8

enum func {
    FUNC_BROADCAST, FUNC_REDUCE, FUNC_ALL_GATHER, FUNC_REDUCE_SCATTER, FUNC_ALL_REDUCE, FUNC_SEND_RECV, FUNC_SEND, FUNC_RECV,
    FUNC_ALL_TO_ALL, FUNC_GATHER, FUNC_SCATTER, FUNCS
};

/* The slots of one direction to one peer on one channel: written by one side, read by the other. */
struct slots {
    _Atomic uint64_t head, tail;
    _Atomic int32_t sizes[STEPS];
    char data[];
};

struct net_end;
struct proxy_op;
struct pxn_box;

struct link {
    struct ncclComm *comm;
    int peer, channel, is_send, row;
    struct slots *slots;
    struct net_end *net;      /* NULL: shared memory of one host, no proxy; or another process has it */
    struct pxn_box *box;      /* where that process is asked for its work; see pxn.h */
    struct link *next;        /* of those that are served for other processes */
    uint64_t base;            /* steps that earlier operations used */
    struct proxy_op *current; /* an operation waits for the one before it on the link */
};

struct proxy {
    pthread_t thread;
    pthread_mutex_t lock;
    pthread_cond_t changed;
    struct proxy_op *inbox, *active;
    int running;
    _Atomic int ending;
    _Atomic uint32_t left;
};

struct ncclComm {
    uint64_t id;
    int rank, count, nodes, device, channels;
    int hosts[BED_RANKS];
    char name[64];
    _Atomic int aborted, error, opening;
    uint32_t works, splits;
    uint64_t sequence[FUNCS];
    _Atomic uint32_t works_left;
    pthread_mutex_t lock;
    struct link **links, *lent;
    struct pxn_box *in[BED_RANKS], *out[BED_RANKS];
    struct proxy proxy;
    void *profiler;
};

/* One call: what is to be done, and the profiler's handles for it. */
struct task {
    struct task *next;
    struct ncclComm *comm;
    cudaStream_t stream;
    enum func func, api;
    const void *in;
    void *out;
    size_t count;
    ncclDataType_t type;
    ncclRedOp_t op;
    int root; /* or the peer */
    int mask;
    uint64_t tag;
    int used_channels;
    void *group_api, *api_handle, *handle;
};

/* One piece of work of a lane: up to one chunk in, up to one chunk out. */
struct piece { int receives, sends, reduces, keeps; size_t in, out, elements; };

/* What one channel does for one task. */
struct lane {
    struct task task;
    int channel;
    struct link *from, *to;
    size_t start, elements; /* the channel's part */
    uint64_t at, pieces, sends, recvs;
    void *kernel; /* the profiler's handle */
};

struct work {
    struct ncclComm *comm;
    struct truth_work *truth;
    int lanes, started, mask;
    struct lane lane[];
};

struct proxy_op {
    struct proxy_op *next;
    struct link *link;
    struct truth_step *truth;
    uint32_t total, posted, ready, transmitted, received, flushed, done;
    uint64_t base;
    int mask, started, pid; /* pid: of the process that asked for it */
    uint32_t number;
    struct pxn_box *box; /* NULL: of this process */
    size_t moved; /* bytes of the last step */
    void *context; /* of the profiler, as that process has it */
    void *task_handle, *handle, *steps[STEPS];
};

size_t chunk_bytes(void);
size_t type_size(ncclDataType_t type);
void reduce_into(void *out, const void *a, const void *b, size_t elements, ncclDataType_t type, ncclRedOp_t op);
void divide_by(void *data, size_t elements, ncclDataType_t type, int divisor);
int library_version(void);

/* Rendezvous: everybody of a meeting says something and learns what the others said. */
struct meet_word { _Atomic uint32_t here; int32_t host, color, key; };
ncclResult_t meet(uint64_t about, int rank, int count, struct meet_word *own, struct meet_word *all, _Atomic int *aborted);

/* Links. Publishing never waits; finishing waits for the peer to publish. */
struct link *link_publish(struct ncclComm *comm, int p2p, int channel, int peer, int is_send);
ncclResult_t link_finish(struct link *link);
/* The same two parts for a link that this process serves; 0, or negative. Ready: 1 once the peer is connected. */
int link_open_net(struct link *link);
int link_is_ready(struct link *link);
ncclResult_t links_of_ring(struct ncclComm *comm);
void links_close(struct ncclComm *comm);

/* Group and launch. */
void group_enter(void);
ncclResult_t group_leave(void);
ncclResult_t group_add(const struct task *task);
void group_forget(void);
int group_depth(void);
void lane_piece(const struct lane *lane, uint64_t index, struct piece *piece);
void lane_plan(struct lane *lane);
int work_run(void *work);

ncclResult_t proxy_start(struct ncclComm *comm);
void proxy_stop(struct ncclComm *comm);
void proxy_append(struct ncclComm *comm, struct proxy_op *op);
void proxy_truth(struct proxy_op *op);

#endif
