/* How a work request crosses the wire. There is no thread: a queue moves when its owner posts or polls, so a device works as
 * long as somebody asks it for completions, and what it wrote into another process needs nothing of that process. */
#define _GNU_SOURCE

#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "fault.h"
#include "wire.h"

enum outcome { DONE, LATER, BROKEN };

static void report(struct bed_qp *qp, const struct send_request *request, int status)
{
    static const int OPCODES[] = {IBV_WC_RDMA_WRITE, IBV_WC_RDMA_WRITE, 0, 0, IBV_WC_RDMA_READ};
    struct ibv_wc completion = {.wr_id = request->wr_id, .status = status, .qp_num = qp->qp.qp_num};

    if (status != IBV_WC_SUCCESS) {
        uint32_t none = 0;

        completion.opcode = 0x7f; /* invalid on error, and so is the length */
        completion.byte_len = 0xdeadbeef;
        completion.vendor_err = status == IBV_WC_RETRY_EXC_ERR ? 129 : status == IBV_WC_WR_FLUSH_ERR ? 249 : 136;
        truth_count(&qp->truth->errors);
        atomic_compare_exchange_strong(&qp->truth->first_status, &none, (uint32_t)status);
    } else {
        completion.opcode = OPCODES[request->opcode];
        completion.byte_len = request->length;
        truth_count(&qp->truth->send_cqes);
    }
    complete((struct bed_cq *)qp->qp.send_cq, &completion);
}

static void flush_recvs(struct bed_qp *qp)
{
    uint32_t from = atomic_load(&qp->wire->delivered);

    if (qp->recvs_flushed > from)
        from = qp->recvs_flushed;
    for (; from != atomic_load(&qp->wire->posted); from++) {
        struct ibv_wc completion = {.wr_id = qp->wire->recvs[from % WIRE_RECVS].wr_id, .qp_num = qp->qp.qp_num};

        completion.status = IBV_WC_WR_FLUSH_ERR;
        completion.opcode = 0x7f;
        truth_count(&qp->truth->errors);
        complete((struct bed_cq *)qp->qp.recv_cq, &completion);
    }
    qp->recvs_flushed = from;
}

void flush(struct bed_qp *qp)
{
    qp->qp.state = IBV_QPS_ERR;
    atomic_store(&qp->wire->state, IBV_QPS_ERR);
    while (qp->first != qp->last)
        report(qp, &qp->sends[qp->first++ % WIRE_SENDS], IBV_WC_WR_FLUSH_ERR);
    flush_recvs(qp);
}

/* A killed process stays in the table until its parent asks for it; a descriptor of it tells at once. */
static int is_gone(struct bed_qp *qp)
{
    struct pollfd ready = {.events = POLLIN};

    if (qp->watched == 0) {
        qp->watched = (int)syscall(SYS_pidfd_open, atomic_load(&qp->remote->pid), 0);
        if (qp->watched < 0 && errno == ESRCH)
            return 1;
    }
    ready.fd = qp->watched;
    return qp->watched > 0 ? poll(&ready, 1, 0) > 0 : kill(atomic_load(&qp->remote->pid), 0) != 0 && errno == ESRCH;
}

static int answers(struct bed_qp *qp)
{
    uint32_t state = qp->remote != NULL ? atomic_load(&qp->remote->state) : IBV_QPS_RESET;

    if (state != IBV_QPS_RTR && state != IBV_QPS_RTS)
        return 0;
    if (fault_on_link(FAULT_LINK_DOWN, atomic_load(&qp->remote->rank)) != NULL)
        return 0;
    return atomic_load(&qp->remote->rank) == bed_rank() || !is_gone(qp);
}

static enum outcome keep_silent(struct bed_qp *qp, struct send_request *request, uint64_t now)
{
    const struct fault *fault = fault_on_link(FAULT_LINK_DOWN, qp->remote != NULL ? atomic_load(&qp->remote->rank) : -1);
    uint64_t limit = fault != NULL && fault->ms > 0 ? (uint64_t)fault->ms * 1000 : qp->silence_us;

    if (qp->silent_since == 0)
        qp->silent_since = now;
    if (limit == 0 || now - qp->silent_since < limit)
        return LATER;
    report(qp, request, IBV_WC_RETRY_EXC_ERR);
    return BROKEN;
}

static int is_slow(struct bed_qp *qp, struct send_request *request, uint64_t now)
{
    const struct fault *fault = fault_on_link(FAULT_LINK_SLOW, atomic_load(&qp->remote->rank));

    if (fault == NULL)
        return 0;
    if (request->started == 0) {
        request->started = now > qp->free_at ? now : qp->free_at;
        qp->free_at = request->started + (uint64_t)fault->us;
    }
    return now < request->started + (uint64_t)fault->us;
}

static int breaks(struct bed_qp *qp, struct send_request *request)
{
    const struct fault *fault = fault_on_link(FAULT_CQE_ERROR, atomic_load(&qp->remote->rank));

    if (fault == NULL || (fault->rank >= 0 && fault->rank != bed_rank()) || qp->executed < fault->after)
        return 0;
    report(qp, request, (int)fault->status);
    return 1;
}

/* Copies between the pieces of local memory and one piece of remote memory. */
static int move(struct send_request *request)
{
    char *remote = request->length > 0 ? wire_reach(request->key, request->remote, request->length) : (char *)"";

    if (remote == NULL)
        return IBV_WC_REM_ACCESS_ERR;
    if (request->flags & IBV_SEND_INLINE) {
        memcpy(remote, request->inlined, request->length);
        return IBV_WC_SUCCESS;
    }
    for (int piece = 0; piece < request->pieces; piece++) {
        const struct ibv_sge *sge = &request->sges[piece];
        void *local = (void *)(uintptr_t)sge->addr; /* NOLINT: an address is what the interface carries */

        if (!wire_covers(sge->lkey, sge->addr, sge->length))
            return IBV_WC_LOC_PROT_ERR;
        if (sge->length == 0)
            continue;
        if (request->opcode == IBV_WR_RDMA_READ)
            memcpy(local, remote, sge->length);
        else
            memcpy(remote, local, sge->length);
        remote += sge->length;
    }
    return IBV_WC_SUCCESS;
}

/* Fills the receiver's next receive; without one the sender would be told to come again. */
static int deliver(struct bed_qp *qp, const struct send_request *request)
{
    struct wire_qp *remote = qp->remote;
    uint32_t next = atomic_load(&remote->delivered);

    if (next == atomic_load(&remote->posted))
        return 0;
    remote->recvs[next % WIRE_RECVS].length = request->length;
    remote->recvs[next % WIRE_RECVS].immediate = request->immediate;
    atomic_store(&remote->delivered, next + 1);
    return 1;
}

static enum outcome carry(struct bed_qp *qp, struct send_request *request)
{
    int status, takes_recv = request->opcode == IBV_WR_RDMA_WRITE_WITH_IMM;

    if (takes_recv && atomic_load(&qp->remote->delivered) == atomic_load(&qp->remote->posted))
        return LATER;
    status = move(request);
    if (status == IBV_WC_SUCCESS && takes_recv && !deliver(qp, request))
        return LATER;
    if (status != IBV_WC_SUCCESS) {
        report(qp, request, status);
        return BROKEN;
    }
    if (qp->signal_all || (request->flags & IBV_SEND_SIGNALED))
        report(qp, request, IBV_WC_SUCCESS);
    return DONE;
}

static enum outcome execute(struct bed_qp *qp, struct send_request *request)
{
    uint64_t now = bed_now_us();
    enum outcome outcome;

    if (!answers(qp))
        return keep_silent(qp, request, now);
    qp->silent_since = 0;
    if (is_slow(qp, request, now))
        return LATER;
    if (breaks(qp, request))
        return BROKEN;
    outcome = carry(qp, request);
    if (outcome == DONE) {
        qp->executed++;
        truth_count(&qp->truth->executed);
        atomic_fetch_add(&qp->truth->bytes, request->length);
    }
    return outcome;
}

void send_progress(struct bed_qp *qp)
{
    while (qp->qp.state == IBV_QPS_RTS && qp->first != qp->last) {
        enum outcome outcome = execute(qp, &qp->sends[qp->first % WIRE_SENDS]);

        if (outcome == LATER)
            return;
        qp->first++;
        if (outcome == BROKEN)
            flush(qp);
    }
    if (qp->qp.state == IBV_QPS_ERR)
        flush(qp);
}
