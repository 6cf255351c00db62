/* Completion queues and queue pairs: creation, states, and what the far end of a queue pair is. */
#define _GNU_SOURCE

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "wire.h"

#define API TESTBED_API

static int slot_of(const struct ibv_qp *qp)
{
    return ((struct bed_context *)qp->context)->device->slot;
}

API struct ibv_cq *ibv_create_cq(struct ibv_context *context, int entries, void *data, struct ibv_comp_channel *channel,
    int vector)
{
    struct bed_cq *made = calloc(1, sizeof *made);

    (void)vector;
    if (made == NULL || entries < 1)
        return NULL;
    made->size = (uint32_t)entries + 2 * WIRE_SENDS;
    made->ring = calloc(made->size, sizeof *made->ring);
    made->cq.context = context;
    made->cq.cq_context = data;
    made->cq.channel = channel;
    made->cq.cqe = entries;
    pthread_mutex_init(&made->lock, NULL);
    pthread_mutex_init(&made->ring_lock, NULL);
    return &made->cq;
}

API int ibv_destroy_cq(struct ibv_cq *cq)
{
    struct bed_cq *own = (struct bed_cq *)cq;

    if (own->qps[RECEIVES] != NULL || own->qps[SENDS] != NULL)
        return EBUSY;
    pthread_mutex_destroy(&own->lock);
    pthread_mutex_destroy(&own->ring_lock);
    free(own->ring);
    free(own);
    return 0;
}

void complete(struct bed_cq *cq, const struct ibv_wc *completion)
{
    pthread_mutex_lock(&cq->ring_lock);
    if (cq->last - cq->first < cq->size) /* a full ring overruns and loses, as hardware does */
        cq->ring[cq->last++ % cq->size] = *completion;
    pthread_mutex_unlock(&cq->ring_lock);
}

static void attach(struct ibv_cq *cq, struct bed_qp *qp, enum role role)
{
    struct bed_cq *own = (struct bed_cq *)cq;

    pthread_mutex_lock(&own->lock);
    qp->next[role] = own->qps[role];
    own->qps[role] = qp;
    pthread_mutex_unlock(&own->lock);
}

static void detach(struct ibv_cq *cq, struct bed_qp *qp, enum role role)
{
    struct bed_cq *own = (struct bed_cq *)cq;
    struct bed_qp **at = &own->qps[role];

    pthread_mutex_lock(&own->lock);
    while (*at != NULL && *at != qp)
        at = &(*at)->next[role];
    if (*at != NULL)
        *at = qp->next[role];
    pthread_mutex_unlock(&own->lock);
}

/* The lowest number that is free, so that numbers come back soon. */
static struct wire_qp *claim(int slot, uint32_t *number)
{
    for (uint32_t index = 0; index < WIRE_QPS; index++) {
        struct wire_qp *row = &wire()->qps[slot][index];
        uint32_t unused = 0;

        if (!atomic_compare_exchange_strong(&row->used, &unused, 1))
            continue;
        atomic_store(&row->posted, 0);
        atomic_store(&row->delivered, 0);
        atomic_store(&row->reaped, 0);
        atomic_store(&row->pid, getpid());
        atomic_store(&row->rank, bed_rank());
        atomic_store(&row->state, IBV_QPS_RESET);
        *number = WIRE_QPN_BASE + index;
        return row;
    }
    return NULL;
}

API struct ibv_qp *ibv_create_qp(struct ibv_pd *pd, struct ibv_qp_init_attr *wanted)
{
    struct bed_qp *made = calloc(1, sizeof *made);

    if (made == NULL)
        return NULL;
    made->qp.context = pd->context;
    made->qp.pd = pd;
    made->qp.qp_context = wanted->qp_context;
    made->qp.send_cq = wanted->send_cq;
    made->qp.recv_cq = wanted->recv_cq;
    made->qp.qp_type = wanted->qp_type;
    made->signal_all = wanted->sq_sig_all;
    made->wire = claim(slot_of(&made->qp), &made->qp.qp_num);
    if (made->wire == NULL) {
        free(made);
        errno = ENOMEM;
        return NULL;
    }
    pthread_mutex_init(&made->lock, NULL);
    made->truth = truth_row(TRUTH_QPS);
    made->truth->number = made->qp.qp_num;
    made->truth->device = (uint32_t)slot_of(&made->qp);
    attach(wanted->recv_cq, made, RECEIVES);
    attach(wanted->send_cq, made, SENDS);
    return &made->qp;
}

static uint64_t silence(const struct ibv_qp_attr *attributes)
{
    long override = bed_number("TESTBED_RETRY_MS", 0);
    uint64_t one = attributes->timeout > 0 ? (4096ull << attributes->timeout) / 1000 : 0;

    return override > 0 ? (uint64_t)override * 1000 : one * (attributes->retry_cnt ? attributes->retry_cnt : 1u);
}

static void connect_qp(struct bed_qp *qp, const struct ibv_qp_attr *attributes)
{
    const uint8_t *gid = attributes->ah_attr.grh.dgid.raw;
    int slot = gid[14] * WIRE_NICS + gid[15] - 1;
    uint32_t index = attributes->dest_qp_num - WIRE_QPN_BASE;

    qp->destination = attributes->dest_qp_num;
    if (slot >= 0 && slot < WIRE_DEVICES && index < WIRE_QPS)
        qp->remote = &wire()->qps[slot][index];
    qp->truth->destination = attributes->dest_qp_num;
    qp->truth->other = qp->remote != NULL ? atomic_load(&qp->remote->rank) : -1;
}

API int ibv_modify_qp(struct ibv_qp *qp, struct ibv_qp_attr *attributes, int mask)
{
    struct bed_qp *own = (struct bed_qp *)qp;

    pthread_mutex_lock(&own->lock);
    if (mask & IBV_QP_AV)
        own->attributes.ah_attr = attributes->ah_attr;
    if (mask & IBV_QP_TIMEOUT)
        own->attributes.timeout = attributes->timeout;
    if (mask & IBV_QP_RETRY_CNT)
        own->attributes.retry_cnt = attributes->retry_cnt;
    own->silence_us = silence(&own->attributes);
    if ((mask & IBV_QP_DEST_QPN) && (mask & IBV_QP_AV))
        connect_qp(own, attributes);
    if (mask & IBV_QP_STATE) {
        qp->state = attributes->qp_state;
        atomic_store(&own->wire->state, (uint32_t)attributes->qp_state);
    }
    if ((mask & IBV_QP_STATE) && attributes->qp_state == IBV_QPS_ERR)
        flush(own);
    pthread_mutex_unlock(&own->lock);
    return 0;
}

API int ibv_query_qp(struct ibv_qp *qp, struct ibv_qp_attr *attributes, int mask, struct ibv_qp_init_attr *initial)
{
    struct bed_qp *own = (struct bed_qp *)qp;

    (void)mask;
    *attributes = own->attributes;
    attributes->qp_state = attributes->cur_qp_state = qp->state;
    attributes->dest_qp_num = own->destination;
    attributes->cap = (struct ibv_qp_cap){WIRE_SENDS, WIRE_RECVS, WIRE_SGES, 1, WIRE_INLINE};
    if (initial != NULL)
        *initial = (struct ibv_qp_init_attr){
            qp->qp_context, qp->send_cq, qp->recv_cq, qp->srq, attributes->cap, qp->qp_type, own->signal_all,
        };
    return 0;
}

API int ibv_destroy_qp(struct ibv_qp *qp)
{
    struct bed_qp *own = (struct bed_qp *)qp;

    detach(qp->recv_cq, own, RECEIVES);
    detach(qp->send_cq, own, SENDS);
    atomic_store(&own->wire->state, IBV_QPS_RESET);
    atomic_store(&own->wire->used, 0);
    pthread_mutex_destroy(&own->lock);
    if (own->watched > 0)
        close(own->watched);
    free(own);
    return 0;
}
