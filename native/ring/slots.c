/* Slots of proxy operations and queue pairs. */
#include <string.h>

#include "ring/internal.h"

uint32_t shim_active_proxy_ops;
uint32_t shim_used_queue_pairs;

static unsigned char busy[SHIM_MAX_PROXY_OPS]; /* claimed and not ended */
static uint32_t turn;                          /* slots are taken in turn: what ended last stays readable longest */
static struct shim_table by_key;

/* Clears a slot but for its first two fields, state and generation, which tell whoever looks that it is being changed. */
__attribute__((no_sanitize("thread"))) static void clear_slot(void *slot, size_t size)
{
    uint64_t *word = slot;

    for (size_t each = 1; each < size / sizeof *word; each++)
        SHIM_STORE(word[each], 0u);
}

static bool try_busy(uint32_t slot)
{
    unsigned char idle = 0;

    return SHIM_LOAD(busy[slot]) == 0 &&
           __atomic_compare_exchange_n(&busy[slot], &idle, 1, false, __ATOMIC_ACQUIRE, __ATOMIC_RELAXED);
}

static struct shim_proxy_op *cleared(struct shim_proxy_op *op)
{
    __atomic_store_n(&op->state, SHIM_SLOT_FREE, __ATOMIC_RELAXED);
    __atomic_store_n(&op->generation, op->generation + 1, __ATOMIC_RELAXED);
    __atomic_thread_fence(__ATOMIC_RELEASE);
    clear_slot(op, sizeof *op);
    op->comm = SHIM_NO_COMM;
    op->waiting = 0xFFFFFFFFu;
    return op;
}

struct shim_proxy_op *shim_proxy_op_claim(void)
{
    uint32_t count = shim_log.proxy_op_count < SHIM_MAX_PROXY_OPS ? shim_log.proxy_op_count : SHIM_MAX_PROXY_OPS;

    if (!shim_on() || count == 0)
        return NULL;
    for (uint32_t step = 0; step < count; step++) {
        uint32_t slot = SHIM_ADD(turn, 1u) % count;

        if (try_busy(slot))
            return cleared(&shim_log.proxy_ops[slot]);
    }
    SHIM_ADD(shim_log.live->lost_proxy_ops, 1u);
    return NULL;
}

void shim_proxy_op_publish(struct shim_proxy_op *op)
{
    if (op == NULL || !shim_on())
        return;
    __atomic_store_n(&op->state, SHIM_SLOT_ACTIVE, __ATOMIC_RELEASE);
    SHIM_ADD(shim_active_proxy_ops, 1u);
}

void shim_proxy_op_end(struct shim_proxy_op *op)
{
    if (op == NULL || !shim_on())
        return;
    SHIM_STORE(op->end, shim_now());
    if (__atomic_exchange_n(&op->state, SHIM_SLOT_ENDED, __ATOMIC_ACQ_REL) == SHIM_SLOT_ACTIVE)
        __atomic_fetch_sub(&shim_active_proxy_ops, 1u, __ATOMIC_RELAXED);
    __atomic_store_n(&busy[op - shim_log.proxy_ops], 0, __ATOMIC_RELEASE);
}

static uint64_t queue_pair_key(uint64_t context, uint32_t number)
{
    return (context ^ ((uint64_t)number * 0x9E3779B97F4A7C15ull)) | 2u; /* never a reserved key of the table */
}

/* `context` as it is stored, here and below. */
static struct shim_queue_pair *find(uint64_t context, uint32_t number)
{
    struct shim_queue_pair *qp;
    uint32_t slot;

    slot = shim_table_find(&by_key, queue_pair_key(context, number));
    if (slot == SHIM_NOT_FOUND)
        return NULL;
    qp = &shim_log.queue_pairs[slot];
    return qp->context == context && qp->number == number ? qp : NULL;
}

struct shim_queue_pair *shim_queue_pair_find(uint64_t context, uint32_t number)
{
    return shim_on() ? find(shim_masked(context), number) : NULL;
}

/* The slot to take, and how often the number was used on its device as far as the slots remember. */
static struct shim_queue_pair *choose(uint64_t context, uint32_t number, uint32_t *generation)
{
    uint32_t count = shim_log.queue_pair_count < SHIM_MAX_QUEUE_PAIRS ? shim_log.queue_pair_count : SHIM_MAX_QUEUE_PAIRS;
    struct shim_queue_pair *oldest = NULL;

    for (uint32_t each = 0; each < shim_used_queue_pairs; each++) {
        struct shim_queue_pair *qp = &shim_log.queue_pairs[each];

        if (qp->context == context && qp->number == number && qp->generation > *generation)
            *generation = qp->generation;
        if (SHIM_LOAD(qp->state) == SHIM_SLOT_ENDED && (oldest == NULL || qp->last_post < oldest->last_post))
            oldest = qp;
    }
    return shim_used_queue_pairs < count ? &shim_log.queue_pairs[SHIM_ADD(shim_used_queue_pairs, 1u)] : oldest;
}

static struct shim_queue_pair *claim(uint64_t context, uint32_t number)
{
    uint32_t generation = 0;
    struct shim_queue_pair *qp = choose(context, number, &generation);

    if (qp == NULL) {
        SHIM_ADD(shim_log.live->lost_queue_pairs, 1u);
        return NULL;
    }
    __atomic_store_n(&qp->state, SHIM_SLOT_FREE, __ATOMIC_RELAXED);
    __atomic_store_n(&qp->generation, generation + 1, __ATOMIC_RELAXED);
    __atomic_thread_fence(__ATOMIC_RELEASE);
    clear_slot(qp, sizeof *qp);
    memset(shim_queue_pair_bins(qp), 0, SHIM_EPOCH_BINS * sizeof(struct shim_epoch_bin));
    qp->context = context;
    qp->number = number;
    qp->timeout = qp->retry_count = 255;
    __atomic_store_n(&qp->state, SHIM_SLOT_ACTIVE, __ATOMIC_RELEASE);
    (void)shim_table_put(&by_key, queue_pair_key(context, number), shim_queue_pair_slot(qp));
    return qp;
}

static void end(struct shim_queue_pair *qp)
{
    __atomic_store_n(&qp->state, SHIM_SLOT_ENDED, __ATOMIC_RELEASE);
    shim_table_remove(&by_key, queue_pair_key(qp->context, qp->number));
}

struct shim_queue_pair *shim_queue_pair_claim(uint64_t context, uint32_t number)
{
    struct shim_queue_pair *qp;

    if (!shim_on())
        return NULL;
    context = shim_masked(context);
    shim_lock();
    qp = find(context, number);
    if (qp != NULL)
        end(qp); /* its end was not seen */
    qp = claim(context, number);
    shim_unlock();
    return qp;
}

void shim_queue_pair_end(struct shim_queue_pair *qp)
{
    if (qp == NULL || !shim_on())
        return;
    shim_lock();
    end(qp);
    shim_unlock();
}

void shim_slots_forget(void)
{
    if (turn != 0)
        memset(busy, 0, sizeof busy);
    if (shim_used_queue_pairs != 0)
        shim_table_clear(&by_key);
    turn = shim_active_proxy_ops = shim_used_queue_pairs = 0;
}
