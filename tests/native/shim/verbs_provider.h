/* A small provider: send queues that complete in order when `carry` lets them, failures, a full queue; two of them with poll
 * functions that must not be mixed up. */
#ifndef VERBS_PROVIDER_H
#define VERBS_PROVIDER_H

#include <errno.h>
#include <pthread.h>
#include <sys/wait.h>
#include <unistd.h>

#include "driver.h"
#include "verbs/hooks.h"

#define DEPTH 4096u

struct fake_qp {
    struct verbs_qp qp; /* first: what the program sees */
    unsigned char rest[96];
    bool failed;
    uint32_t posted, carried; /* requests in `queue` */
    uint32_t room;
    struct { uint64_t wr_id; bool signaled; } queue[DEPTH];
};

struct fake_cq {
    struct verbs_cq cq;
    unsigned char rest[96];
    uint32_t head, tail;
    struct verbs_wc ready[DEPTH];
    pthread_mutex_t lock;
};

struct fake_context { struct verbs_context context; unsigned char rest[64]; int provider; };

static struct verbs_device device = {.name = "mlx5_7"};
static uint32_t next_number = 100;
static int closed;

static void complete(struct fake_cq *cq, uint64_t wr_id, int status, int opcode, uint32_t bytes, uint32_t number)
{
    pthread_mutex_lock(&cq->lock);
    CHECK(cq->head - cq->tail < DEPTH);
    cq->ready[cq->head++ % DEPTH] = (struct verbs_wc){.wr_id = wr_id, .status = status, .opcode = status != 0 ? 0x7777 : opcode,
        .byte_count = status != 0 ? 0xDEAD : bytes, .qp_number = number, .vendor_error = status != 0 ? 0x81 : 0};
    pthread_mutex_unlock(&cq->lock);
}

static int fake_post_send(struct verbs_qp *verbs, struct verbs_send_wr *wr, struct verbs_send_wr **bad)
{
    struct fake_qp *qp = (struct fake_qp *)verbs;

    for (; wr != NULL; wr = wr->next) {
        if (qp->posted - __atomic_load_n(&qp->carried, __ATOMIC_ACQUIRE) >= qp->room) {
            *bad = wr;
            return ENOMEM;
        }
        qp->queue[qp->posted % DEPTH].wr_id = wr->wr_id;
        qp->queue[qp->posted % DEPTH].signaled = (wr->flags & SEND_SIGNALED) != 0;
        __atomic_store_n(&qp->posted, qp->posted + 1, __ATOMIC_RELEASE);
    }
    return 0;
}

static int fake_post_recv(struct verbs_qp *qp, struct verbs_recv_wr *wr, struct verbs_recv_wr **bad)
{
    (void)qp, (void)wr, (void)bad;
    return 0;
}

/* The wire: the next `count` requests arrive. */
static void carry(struct fake_qp *qp, uint32_t count)
{
    for (; count > 0 && qp->carried != __atomic_load_n(&qp->posted, __ATOMIC_ACQUIRE); count--) {
        uint32_t at = qp->carried % DEPTH;

        if (qp->queue[at].signaled)
            complete((struct fake_cq *)qp->qp.send_cq, qp->queue[at].wr_id, 0, 1, 0, qp->qp.number);
        __atomic_store_n(&qp->carried, qp->carried + 1, __ATOMIC_RELEASE);
    }
}

/* The link is dead: one error, then every request is flushed, signaled or not. */
static void fail(struct fake_qp *qp, int status)
{
    for (; qp->carried != qp->posted; qp->carried++, status = WC_FLUSHED)
        complete((struct fake_cq *)qp->qp.send_cq, qp->queue[qp->carried % DEPTH].wr_id, status, 0, 0, qp->qp.number);
}

static int take(struct verbs_cq *verbs, int room, struct verbs_wc *wc)
{
    struct fake_cq *cq = (struct fake_cq *)verbs;
    int count = 0;

    pthread_mutex_lock(&cq->lock);
    for (; count < room && cq->tail != cq->head; count++)
        wc[count] = cq->ready[cq->tail++ % DEPTH];
    pthread_mutex_unlock(&cq->lock);
    return count;
}

static int poll_one(struct verbs_cq *cq, int room, struct verbs_wc *wc)
{
    EQUAL(((struct fake_context *)cq->context)->provider, 1);
    return take(cq, room, wc);
}

static int poll_two(struct verbs_cq *cq, int room, struct verbs_wc *wc)
{
    EQUAL(((struct fake_context *)cq->context)->provider, 2);
    return take(cq, room, wc);
}

static int provider = 1;

static struct verbs_context *fake_open(struct verbs_device *opened)
{
    struct fake_context *context = calloc(1, sizeof *context);

    context->provider = provider;
    context->context.device = opened;
    context->context.operations.poll = provider == 1 ? poll_one : poll_two;
    context->context.operations.post_send = fake_post_send;
    context->context.operations.post_recv = fake_post_recv;
    return &context->context;
}

static int fake_close(struct verbs_context *context)
{
    CHECK(context->operations.post_send == fake_post_send); /* as the provider left it */
    free(context);
    closed++;
    return 0;
}

static struct verbs_qp *fake_create(struct verbs_pd *pd, struct verbs_qp_init *init)
{
    struct fake_qp *qp = calloc(1, sizeof *qp);

    qp->qp = (struct verbs_qp){.context = pd->context, .send_cq = init->send_cq, .recv_cq = init->recv_cq,
                               .number = next_number++};
    qp->room = DEPTH / 2;
    return &qp->qp;
}

static int fake_modify(struct verbs_qp *qp, struct verbs_qp_attributes *attributes, int mask)
{
    (void)qp, (void)attributes, (void)mask;
    return 0;
}

static int fake_destroy(struct verbs_qp *qp) { free(qp); return 0; }
static int fake_destroy_cq(struct verbs_cq *cq) { free(cq); return 0; }

static int fake_query_gid(struct verbs_context *context, uint8_t port, int index, uint8_t *gid)
{
    (void)context;
    memset(gid, port * 16 + index, 16);
    return 0;
}

#endif
