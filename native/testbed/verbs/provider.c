/* Two providers: what a context's operation table points at. They do the same in functions of their own, so that a program
 * that keeps one pointer for all contexts is found out. */
#include <errno.h>
#include <string.h>

#include "wire.h"

static void reap_recvs(struct bed_qp *qp)
{
    uint32_t next = atomic_load(&qp->wire->reaped);

    for (; next != atomic_load(&qp->wire->delivered); next++) {
        struct wire_recv *recv = &qp->wire->recvs[next % WIRE_RECVS];
        struct ibv_wc completion = {.wr_id = recv->wr_id, .opcode = IBV_WC_RECV_RDMA_WITH_IMM, .byte_len = recv->length};

        completion.imm_data = recv->immediate;
        completion.qp_num = qp->qp.qp_num;
        completion.wc_flags = 2;
        truth_count(&qp->truth->recv_cqes);
        complete((struct bed_cq *)qp->qp.recv_cq, &completion);
    }
    atomic_store(&qp->wire->reaped, next);
}

static int poll_any(struct bed_cq *cq, int wanted, struct ibv_wc *completions)
{
    int count = 0;

    pthread_mutex_lock(&cq->lock);
    for (struct bed_qp *qp = cq->qps[RECEIVES]; qp != NULL; qp = qp->next[RECEIVES]) {
        pthread_mutex_lock(&qp->lock);
        reap_recvs(qp); /* before the queue moves: what arrived comes before the flush */
        pthread_mutex_unlock(&qp->lock);
    }
    for (struct bed_qp *qp = cq->qps[SENDS]; qp != NULL; qp = qp->next[SENDS]) {
        pthread_mutex_lock(&qp->lock);
        send_progress(qp);
        pthread_mutex_unlock(&qp->lock);
    }
    pthread_mutex_unlock(&cq->lock);
    pthread_mutex_lock(&cq->ring_lock);
    while (count < wanted && cq->first != cq->last)
        completions[count++] = cq->ring[cq->first++ % cq->size];
    pthread_mutex_unlock(&cq->ring_lock);
    return count;
}

static int take(struct bed_qp *qp, const struct ibv_send_wr *given)
{
    struct send_request *request = &qp->sends[qp->last % WIRE_SENDS];

    if (qp->last - qp->first == WIRE_SENDS)
        return ENOMEM;
    if (given->num_sge > WIRE_SGES)
        return EINVAL;
    *request = (struct send_request){.wr_id = given->wr_id, .opcode = given->opcode, .flags = given->send_flags};
    request->remote = given->wr.rdma.remote_addr;
    request->key = given->wr.rdma.rkey;
    request->immediate = given->imm_data;
    request->pieces = given->num_sge;
    for (int piece = 0; piece < given->num_sge; piece++) {
        request->sges[piece] = given->sg_list[piece];
        if ((given->send_flags & IBV_SEND_INLINE) && request->length + given->sg_list[piece].length > WIRE_INLINE)
            return EINVAL;
        if (given->send_flags & IBV_SEND_INLINE)
            memcpy(request->inlined + request->length, (void *)(uintptr_t)given->sg_list[piece].addr,
                given->sg_list[piece].length);
        request->length += given->sg_list[piece].length;
    }
    qp->last++;
    truth_count(&qp->truth->sends);
    if (given->send_flags & IBV_SEND_SIGNALED)
        truth_count(&qp->truth->signaled);
    return 0;
}

static int send_any(struct bed_qp *qp, struct ibv_send_wr *chain, struct ibv_send_wr **bad)
{
    int status = qp->qp.state < IBV_QPS_RTS ? EINVAL : 0;

    pthread_mutex_lock(&qp->lock);
    for (; chain != NULL && status == 0; chain = status == 0 ? chain->next : chain)
        status = take(qp, chain);
    send_progress(qp);
    pthread_mutex_unlock(&qp->lock);
    if (status != 0 && bad != NULL)
        *bad = chain;
    return status;
}

static int receive_any(struct bed_qp *qp, struct ibv_recv_wr *chain, struct ibv_recv_wr **bad)
{
    uint32_t next;

    pthread_mutex_lock(&qp->lock);
    next = atomic_load(&qp->wire->posted);
    for (; chain != NULL && next - atomic_load(&qp->wire->reaped) < WIRE_RECVS; chain = chain->next) {
        qp->wire->recvs[next % WIRE_RECVS].wr_id = chain->wr_id;
        atomic_store(&qp->wire->posted, ++next);
        truth_count(&qp->truth->recvs);
    }
    if (qp->qp.state == IBV_QPS_ERR)
        flush(qp);
    pthread_mutex_unlock(&qp->lock);
    if (chain != NULL && bad != NULL)
        *bad = chain;
    return chain != NULL ? ENOMEM : 0;
}

static int first_poll(struct ibv_cq *cq, int wanted, struct ibv_wc *completions)
{
    return poll_any((struct bed_cq *)cq, wanted, completions);
}

static int first_send(struct ibv_qp *qp, struct ibv_send_wr *chain, struct ibv_send_wr **bad)
{
    return send_any((struct bed_qp *)qp, chain, bad);
}

static int first_receive(struct ibv_qp *qp, struct ibv_recv_wr *chain, struct ibv_recv_wr **bad)
{
    return receive_any((struct bed_qp *)qp, chain, bad);
}

/* The second provider hands out one completion at a time, as some do when a queue wraps. */
static int second_poll(struct ibv_cq *cq, int wanted, struct ibv_wc *completions)
{
    return poll_any((struct bed_cq *)cq, wanted > 1 ? 1 : wanted, completions);
}

static int second_send(struct ibv_qp *qp, struct ibv_send_wr *chain, struct ibv_send_wr **bad)
{
    return send_any((struct bed_qp *)qp, chain, bad);
}

static int second_receive(struct ibv_qp *qp, struct ibv_recv_wr *chain, struct ibv_recv_wr **bad)
{
    return receive_any((struct bed_qp *)qp, chain, bad);
}

static int no_events(struct ibv_cq *cq, int solicited)
{
    (void)cq, (void)solicited;
    return ENOSYS;
}

const struct ibv_context_ops PROVIDERS[WIRE_NICS] = {
    {.poll_cq = first_poll, .req_notify_cq = no_events, .post_send = first_send, .post_recv = first_receive},
    {.poll_cq = second_poll, .req_notify_cq = no_events, .post_send = second_send, .post_recv = second_receive},
};
