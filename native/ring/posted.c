/* Which queue pairs a thread has posted to since it last told of a step: what connects a flow with its queue pairs. NCCL's proxy posts
 * the requests of a step, or the credit for it, right before it tells the profiler so, in the same thread. */
#include "ring/internal.h"

#define THREADS 64u /* that ever posted; of others no flow is connected */
#define TRIES 8u

struct posted {
    const void *thread; /* the address of its shim_self; a later thread may have it again */
    uint32_t incarnation, count;
    bool taken; /* a step was connected with them: the next post begins anew */
    uint16_t slots[SHIM_FLOW_PAIRS];
} __attribute__((aligned(64)));

static struct posted by_thread[THREADS];

/* Its own of each thread: claimed once, and from then on nobody else's to write. */
static struct posted *mine(void)
{
    const void *me = shim_me();
    uint32_t at = (uint32_t)(((uint64_t)(uintptr_t)me * 0x9E3779B97F4A7C15ull) >> 58);

    for (uint32_t tries = 0; tries < TRIES; tries++) {
        struct posted *each = &by_thread[(at + tries) % THREADS];
        const void *found = __atomic_load_n(&each->thread, __ATOMIC_RELAXED);

        if (found == me)
            return each;
        if (found == NULL && __atomic_compare_exchange_n(&each->thread, &found, me, false, __ATOMIC_RELAXED, __ATOMIC_RELAXED))
            return each;
    }
    return NULL;
}

void shim_posted_on(const struct shim_queue_pair *qp)
{
    struct posted *posted = mine();
    uint16_t slot = (uint16_t)shim_queue_pair_slot(qp);

    if (posted == NULL)
        return;
    if (posted->taken || posted->incarnation != shim_incarnation)
        posted->count = 0;
    posted->taken = false;
    posted->incarnation = shim_incarnation;
    for (uint32_t each = 0; each < posted->count; each++)
        if (posted->slots[each] == slot)
            return;
    if (posted->count < SHIM_FLOW_PAIRS)
        posted->slots[posted->count++] = slot;
}

void shim_posted_forget(void)
{
    struct posted *posted = mine();

    if (posted != NULL)
        posted->count = 0;
}

static void add_pair(struct shim_proxy_op *op, uint16_t slot)
{
    for (uint32_t each = 0; each < SHIM_FLOW_PAIRS; each++) {
        uint16_t known = SHIM_LOAD(op->pairs[each]);

        if (known == slot + 1)
            return;
        if (known == 0) {
            SHIM_STORE(op->pairs[each], (uint16_t)(slot + 1));
            return;
        }
    }
}

static bool is_flow_of(const struct shim_queue_pair *qp, const struct shim_proxy_op *op)
{
    return qp->flow_comm == op->comm && qp->flow_generation == op->comm_generation && qp->flow_channel == op->channel &&
           qp->flow_direction == op->direction && qp->flow_peer == op->peer;
}

static void add_flow(struct shim_queue_pair *qp, const struct shim_proxy_op *op)
{
    uint8_t flows = SHIM_LOAD(qp->flows);

    if (flows == 0) {
        qp->flow_comm = op->comm;
        qp->flow_generation = op->comm_generation;
        qp->flow_channel = op->channel;
        qp->flow_direction = op->direction;
        qp->flow_peer = op->peer;
        __atomic_store_n(&qp->flows, 1, __ATOMIC_RELEASE);
    } else if (flows == 1 && !is_flow_of(qp, op)) {
        SHIM_STORE(qp->flows, 2);
    }
}

/* One receive may grant the buffers of several flows, which are told one after the other; a send is that of one flow, and one that
 * NCCL keeps back for company is posted with a later one: it is connected with nothing. */
void shim_flow_posted(struct shim_proxy_op *op)
{
    struct posted *posted = mine();
    bool is_recv = op->direction == SHIM_DIRECTION_RECV;

    if (posted == NULL || posted->incarnation != shim_incarnation || (posted->taken && !is_recv))
        return;
    for (uint32_t each = 0; each < posted->count; each++) {
        if (posted->slots[each] >= shim_log.queue_pair_count)
            continue;
        add_pair(op, posted->slots[each]);
        add_flow(&shim_log.queue_pairs[posted->slots[each]], op);
    }
    posted->taken = true;
    if (!is_recv)
        posted->count = 0;
}
