/* The network transport over the stand-in verbs, in the pattern of NCCL's: credits written by the receiver into the sender's
 * list, data as RDMA writes closed by a signaled write with immediate, a signaled read on a loopback queue pair as flush. */
#ifndef TESTBED_NET_H
#define TESTBED_NET_H

#include "comm.h"
#include "verbs.h"

#define CREDITS 256
#define MAX_QPS 4 /* of a connection: NCCL_IB_QPS_PER_CONNECTION */

struct credit { uint64_t address; uint32_t key; _Atomic uint32_t number; };

/* The memory of an end, a file of the job: `credits` is the sender's list, `slots` what the GPU reads or writes. */
struct net_memory { struct credit credits[CREDITS]; struct slots slots; };

struct net_address { union ibv_gid gid; uint32_t qpns[MAX_QPS], key; uint64_t memory; };

struct net_end {
    struct ibv_cq *cq;
    struct ibv_qp *qps[MAX_QPS], *loop;
    uint32_t sent_on[MAX_QPS], arrived_on[MAX_QPS];
    struct ibv_mr *mr;
    struct net_memory *memory;
    struct net_address own, remote;
    uint32_t posted, sent, arrived, flush_posted, flushed; /* in steps since the link was opened */
    int32_t lengths[STEPS];
    char *flush_target;
};

struct net_end *net_create(const char *file, int is_send);
int net_connect(struct net_end *end);
void net_destroy(struct net_end *end);
size_t net_memory_size(void);
/* 1: posted. 0: the peer gave no credit. Negative: broken. */
int net_send(struct net_end *end, uint32_t slot, size_t size);
int net_receive(struct net_end *end, uint32_t slot);
int net_flush(struct net_end *end, uint32_t slot);
/* Takes completions; the counters move. Negative: one of them was an error. */
int net_poll(struct net_end *end);

#endif
