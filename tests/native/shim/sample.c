/* Makes fixtures/samples/shim_log: a log with one of everything, by the writer's own sources. */
#define _GNU_SOURCE
#include <string.h>
#include <unistd.h>

#include "ring/internal.h"

static void call(struct shim_comm *comm, enum shim_kind kind, uint32_t number, uint64_t count, int32_t peer, bool returned)
{
    enum shim_ring_class ring = kind < SHIM_GET_UNIQUE_ID ? SHIM_RING_CALLS : SHIM_RING_RARE;
    struct shim_call *record = (struct shim_call *)shim_reserve(ring);

    record->enter = shim_now();
    record->count = count;
    record->stream = 0x7000;
    record->op_number = number;
    record->p2p_number = kind == SHIM_SEND || kind == SHIM_RECV;
    record->peer = peer;
    record->dtype = number != 0 ? 7 : 255;
    record->redop = kind == SHIM_ALL_REDUCE ? 0 : 255;
    record->depth = kind == SHIM_SEND || kind == SHIM_RECV;
    record->kind = (uint8_t)kind;
    record->generation = 1;
    record->comm = comm != NULL ? 0 : SHIM_NO_COMM;
    usleep(100);
    record->leave = returned ? shim_now() : 0;
    record->result = returned ? 0 : SHIM_NO_RESULT;
    shim_publish((struct shim_record *)record, ring);
}

static void operations(struct shim_comm *comm)
{
    call(comm, SHIM_INIT_RANK, 0, 0, -1, true);
    call(comm, SHIM_ALL_REDUCE, 1, 1024, -1, true);
    call(NULL, SHIM_GROUP_START, 0, 0, -1, true);
    call(comm, SHIM_SEND, 2, 64, 2, true);
    call(comm, SHIM_RECV, 3, 64, 0, true);
    call(NULL, SHIM_GROUP_END, 0, 0, -1, true);
    call(comm, SHIM_BROADCAST, 4, 8, 0, false);
    call(NULL, SHIM_GROUP_SIMULATE_END, 0, 0, -1, true);
    comm->ops = comm->profiler_ops = 4;
    comm->ops_done = 1;
    comm->last_enter = shim_now();
    comm->inside = (uint32_t)getpid();
    comm->inside_kind = SHIM_BROADCAST;
}

static struct shim_proxy_op *proxy(uint32_t number, enum shim_kind kind)
{
    struct shim_proxy_op *op = shim_proxy_op_claim();

    op->comm = 0;
    op->comm_generation = 1;
    op->channel = 3;
    op->peer = 2;
    op->operation = (uint8_t)kind;
    op->op_number = number;
    op->pid = (uint32_t)getpid();
    op->total = 8;
    op->start = op->last_change = shim_now();
    shim_proxy_op_publish(op);
    return op;
}

/* The first operation ended; the second waits for credit of its peer. */
static void proxies(void)
{
    struct shim_proxy_op *op = proxy(1, SHIM_ALL_REDUCE);
    struct shim_done_record done = {.start = op->start, .end = shim_now(), .bytes = 4096, .op_number = 1, .peer = -1,
                                    .operation = SHIM_ALL_REDUCE, .algorithm = 1, .protocol = 2, .channels = 1, .generation = 1};

    op->posted = op->gpu_ready = op->transmitted = op->done = 8;
    op->bytes = 4096;
    op->wait[SHIM_WAIT_NIC] = 5000;
    shim_record_proxy(op, SHIM_PROXY_DONE, SHIM_RING_FLOWS, shim_now());
    shim_proxy_op_end(op);
    shim_record_done(&done);
    op = proxy(2, SHIM_SEND);
    op->posted = op->gpu_ready = 5;
    op->transmitted = 3;
    op->done = 2;
    op->bytes = 640;
    op->steps[3] = (struct shim_step){.state = 1 + SHIM_WAIT_CREDIT, .number = 3, .since = op->start, .bytes = 320};
    op->waiting = SHIM_WAIT_CREDIT;
}

static void pairs(void)
{
    static const uint8_t mapped[12] = {0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xFF, 0xFF};
    struct shim_queue_pair *qp = shim_queue_pair_claim(0xC0FFEE, 77);

    strcpy(qp->device, "mlx5_0");
    qp->remote_number = 88;
    qp->port = 1;
    qp->timeout = 20;
    qp->retry_count = 7;
    qp->link = 2;
    memcpy(qp->gid, mapped, sizeof mapped);
    memcpy(qp->gid + 12, "\x0a\x00\x00\x01", 4);
    memcpy(qp->remote_gid, mapped, sizeof mapped);
    memcpy(qp->remote_gid + 12, "\x0a\x00\x00\x02", 4);
    qp->created = qp->connected = qp->last_post = qp->last_completion = qp->oldest_post = shim_now();
    qp->posted_wrs = 10;
    qp->completed_wrs = 6;
    qp->posted_bytes = 5000;
    qp->completed_bytes = 3000;
    qp->signaled_posted = 4;
    qp->signaled_completed = 3;
    qp->tail_wrs = 2;
    qp->window_bytes = 3000;
    qp->window_ticks = qp->busy = 90000;
    qp->error_status = 12;
    qp->error_vendor = 129;
    qp->error_time = shim_now();
    qp->errors = 1;
    shim_epoch_add(qp, shim_now(), 3000, 500);
    shim_record_qp_event(qp, SHIM_QP_FAILED, shim_now());
}

/* Nothing of the machine it was made on stays in it. */
static void neutralise(struct shim_head *head)
{
    shim_copy_text(head->host, sizeof head->host, "node-1");
    shim_copy_text(head->boot_id, sizeof head->boot_id, "00000000-0000-4000-8000-000000000001");
    shim_copy_text(head->executable, sizeof head->executable, "/usr/bin/python3");
    head->checksum = 0;
    head->checksum = shim_crc32(head, SHIM_HEAD_BYTES);
}

int main(void)
{
    struct shim_comm *comm;

    if (!shim_start())
        return 1;
    neutralise(shim_log.head);
    comm = shim_comm_claim(0xAB, 0, 1, 4);
    comm->device = 1;
    shim_comm_name(comm, "tp");
    shim_comm_bind(comm, 0x5000);
    operations(comm);
    proxies();
    pairs();
    shim_log.live->nccl_version = 22703;
    shim_log.live->profiler_version = 4;
    shim_cover_function(SHIM_CALLED, SHIM_ALL_REDUCE);
    shim_cover_hook(SHIM_CALLED, SHIM_HOOK_PROFILER);
    shim_cover_hook(SHIM_CALLED, SHIM_HOOK_PROFILER_PROXY_OP);
    shim_cover_hook(SHIM_HOOKED, SHIM_HOOK_VERBS_CONTEXT);
    usleep(400000); /* some sweeps of the heartbeat */
    _exit(0);
}
