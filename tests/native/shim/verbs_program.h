/* A program that reaches the provider through the hook, as NCCL does. */
#ifndef VERBS_PROGRAM_H
#define VERBS_PROGRAM_H

#include "verbs_provider.h"

static struct verbs_context *(*open_it)(struct verbs_device *);
static int (*close_it)(struct verbs_context *);
static struct verbs_qp *(*create_it)(struct verbs_pd *, struct verbs_qp_init *);
static int (*modify_it)(struct verbs_qp *, struct verbs_qp_attributes *, int);
static int (*destroy_it)(struct verbs_qp *);
static int (*destroy_cq_it)(struct verbs_cq *);
static int (*query_gid_it)(struct verbs_context *, uint8_t, int, uint8_t *);

#define LOOK_UP(name, fake, target) memcpy(&(target), (void *[]){hook_for(name, (void *)(fake))}, sizeof(void *))

static void look_everything_up(void)
{
    LOOK_UP("ibv_open_device", fake_open, open_it);
    LOOK_UP("ibv_close_device", fake_close, close_it);
    LOOK_UP("ibv_create_qp", fake_create, create_it);
    LOOK_UP("ibv_modify_qp", fake_modify, modify_it);
    LOOK_UP("ibv_destroy_qp", fake_destroy, destroy_it);
    LOOK_UP("ibv_destroy_cq", fake_destroy_cq, destroy_cq_it);
    LOOK_UP("ibv_query_gid", fake_query_gid, query_gid_it);
    CHECK(open_it != fake_open && hook_for("ibv_reg_mr", (void *)fake_open) == (void *)fake_open);
    CHECK(hook_for("ibv_open_device", (void *)fake_close) == (void *)fake_close); /* of a second library: left alone */
}

static struct fake_cq *new_cq(struct verbs_context *context)
{
    struct fake_cq *cq = calloc(1, sizeof *cq);

    cq->cq.context = context;
    pthread_mutex_init(&cq->lock, NULL);
    return cq;
}

static struct fake_qp *new_qp(struct verbs_context *context, struct fake_cq *cq, bool all_signaled)
{
    struct verbs_pd pd = {.context = context};
    struct verbs_qp_init init = {.send_cq = &cq->cq, .recv_cq = &cq->cq, .all_signaled = all_signaled};
    struct verbs_qp_attributes ready_to_receive = {.state = QPS_RTR, .dest_number = 4242, .path_mtu = 5,
        .address = {.gid = {0xFE, 0x80}, .gid_index = 3, .is_global = 1, .port = 1}};
    struct verbs_qp_attributes ready_to_send = {.state = QPS_RTS, .timeout = 20, .retry_count = 7};
    struct verbs_qp *qp = create_it(&pd, &init);

    EQUAL(modify_it(qp, &ready_to_receive, ATTR_STATE | ATTR_AV | ATTR_DEST_NUMBER | ATTR_PATH_MTU), 0);
    EQUAL(modify_it(qp, &ready_to_send, ATTR_STATE | ATTR_TIMEOUT | ATTR_RETRY_COUNT), 0);
    return (struct fake_qp *)qp;
}

static const struct shim_queue_pair *slot_of(const struct fake_qp *qp)
{
    const struct shim_queue_pair *slot = shim_queue_pair_find((uint64_t)(uintptr_t)qp->qp.context, qp->qp.number);

    CHECK(slot != NULL);
    return slot;
}

static int post(struct fake_qp *qp, struct verbs_send_wr *wr, struct verbs_send_wr **bad)
{
    return qp->qp.context->operations.post_send(&qp->qp, wr, bad);
}

static int poll(struct fake_cq *cq, int room, struct verbs_wc *wc)
{
    return cq->cq.context->operations.poll(&cq->cq, room, wc);
}

static int drain(struct fake_cq *cq)
{
    struct verbs_wc wc[16];
    int count, total = 0;

    while ((count = poll(cq, 16, wc)) > 0)
        total += count;
    return total;
}

/* What NCCL posts for a request: unsignaled writes, closed by a signaled one. */
static int post_chain(struct fake_qp *qp, uint32_t wrs, uint32_t bytes, bool signaled, struct verbs_send_wr *chain,
                      uint32_t *taken)
{
    struct verbs_sge sge = {.length = bytes};
    struct verbs_send_wr *bad = NULL;
    int result;

    for (uint32_t each = 0; each < wrs; each++)
        chain[each] = (struct verbs_send_wr){.wr_id = each, .next = each + 1 < wrs ? &chain[each + 1] : NULL, .sges = &sge,
                                             .sge_count = 1, .flags = each + 1 == wrs && signaled ? SEND_SIGNALED : 0};
    result = post(qp, chain, &bad);
    *taken = result == 0 ? wrs : (uint32_t)(bad - chain);
    return result;
}

#endif
