/* The wire: what the devices of all hosts share, a mapped file of the job. A queue pair is found by device and number, as by
 * GID and queue pair number on a real fabric; the numbers of two devices overlap and are used again. */
#ifndef TESTBED_WIRE_H
#define TESTBED_WIRE_H

#include "bed.h"
#include "truth.h"
#include "verbs.h"

#define WIRE_NICS 2
#define WIRE_DEVICES (16 * WIRE_NICS)
#define WIRE_QPS 256
#define WIRE_QPN_BASE 0x48
#define WIRE_RECVS 256
#define WIRE_REGIONS 4096
#define WIRE_SENDS 512
#define WIRE_SGES 4
#define WIRE_INLINE 64

/* A receive: posted and reaped by the owner, filled by the sender. */
struct wire_recv {
    uint64_t wr_id;
    uint32_t length, immediate;
};

struct wire_qp {
    _Atomic uint32_t used, state; /* state: enum ibv_qp_state */
    _Atomic int32_t pid, rank;
    _Atomic uint32_t posted, delivered, reaped;
    struct wire_recv recvs[WIRE_RECVS];
};

/* A registered piece of memory; path is empty where it is private to its process and so out of reach for the others. */
struct wire_region {
    _Atomic uint32_t key; /* 0: unused */
    uint64_t address, length, offset;
    char path[BED_PATH];
};

struct wire {
    _Atomic uint32_t regions_made;
    struct wire_qp qps[WIRE_DEVICES][WIRE_QPS];
    struct wire_region regions[WIRE_REGIONS];
};

/* A send work request, as it waits in the queue. */
struct send_request {
    uint64_t wr_id, remote, started;
    uint32_t key, immediate, length;
    int opcode, flags, pieces;
    struct ibv_sge sges[WIRE_SGES];
    char inlined[WIRE_INLINE];
};

/* The private halves of what a program sees. */
struct bed_device { struct ibv_device device; int slot, provider; };
struct bed_context { struct ibv_context context; struct bed_device *device; };

/* A completion queue knows the queue pairs that receive into it and those that send into it. */
enum role { RECEIVES, SENDS, ROLES };

struct bed_qp {
    struct ibv_qp qp;
    struct bed_qp *next[ROLES];
    struct wire_qp *wire, *remote;
    struct truth_qp *truth;
    pthread_mutex_t lock;
    int signal_all, watched; /* watched: a descriptor of the peer's process */
    long executed;
    uint32_t destination, remote_slot, recvs_flushed;
    uint64_t silence_us, silent_since, free_at;
    struct ibv_qp_attr attributes;
    uint64_t first, last; /* of the send queue */
    struct send_request sends[WIRE_SENDS];
};

struct bed_cq {
    struct ibv_cq cq;
    pthread_mutex_t lock, ring_lock; /* of the lists; of the ring */
    struct bed_qp *qps[ROLES];
    uint64_t first, last;
    uint32_t size;
    struct ibv_wc *ring;
};

struct wire *wire(void);
/* Registers memory; returns its key. */
uint32_t wire_register(const void *address, size_t length);
void wire_forget(uint32_t key);
/* This process's view of remote memory, or NULL where the key, the range or the reach is wrong. */
void *wire_reach(uint32_t key, uint64_t address, size_t length);
/* Whether local memory is covered by a key. */
int wire_covers(uint32_t key, uint64_t address, size_t length);

/* Moves what can move in the send queue of a queue pair; the caller holds its lock. */
void send_progress(struct bed_qp *qp);
/* Everything that waits completes with the flush status; the caller holds the lock. */
void flush(struct bed_qp *qp);
void complete(struct bed_cq *cq, const struct ibv_wc *completion);

extern const struct ibv_context_ops PROVIDERS[WIRE_NICS];

#endif
