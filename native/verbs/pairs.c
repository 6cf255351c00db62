/* Queue pairs: made, connected, seen, destroyed. What is private to the count lies beside the slot in the log. */
#define _GNU_SOURCE

#include <errno.h>
#include <string.h>
#include <sys/mman.h>

#include "verbs/hooks.h"

#define TRIES 2000u /* some microseconds: whoever counts needs some nanoseconds, unless it lost its CPU */

static struct pair *pairs; /* by slot of the log; memory is taken page by page as they are used */
static uint32_t met;       /* slots below this one were used */
static bool full;          /* no slot was free: not asked again with every post */

struct pair *pair_at(uint32_t index)
{
    return index < LOAD(met) ? &pairs[index] : NULL;
}

/* The other thread lost its CPU in the middle. Waiting would hold up the job, so the count of this queue pair ends here. */
bool pair_enter_slowly(struct pair *pair)
{
    for (uint32_t tries = 0; tries < TRIES; tries++)
        if (__atomic_exchange_n(&pair->taken, 1u, __ATOMIC_ACQUIRE) == 0)
            return true;
    STORE(pair->blind, true);
    STORE(pair->slot->oldest_post, 0u);
    GROW(pair->slot->marks_lost, 1);
    return false;
}

struct pair *pair_of_number(const struct verbs_context *context, uint32_t number)
{
    struct shim_queue_pair *slot = shim_queue_pair_find((uint64_t)(uintptr_t)context, number);
    struct pair *pair = slot != NULL ? pair_at(shim_queue_pair_slot(slot)) : NULL;

    return pair != NULL && __atomic_load_n(&pair->slot, __ATOMIC_ACQUIRE) == slot ? pair : NULL;
}

static bool make_room(void)
{
    void *memory;

    if (__atomic_load_n(&pairs, __ATOMIC_ACQUIRE) != NULL)
        return true;
    memory = mmap(NULL, PAIRS * sizeof *pairs, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (memory == MAP_FAILED)
        return false;
    __atomic_store_n(&pairs, memory, __ATOMIC_RELEASE);
    return true;
}

static void clear(struct pair *pair, struct verbs_qp *qp, bool all_signaled)
{
    memset(pair, 0, offsetof(struct pair, marks));
    pair->qp = qp;
    pair->send_cq = qp->send_cq;
    pair->all_signaled = all_signaled;
    for (uint32_t at = place_of(qp->send_cq, CQS), step = 0; step < CQS; at = (at + 1) & (CQS - 1), step++) {
        const struct verbs_cq *known = __atomic_load_n(&polled_cqs[at].cq, __ATOMIC_ACQUIRE);

        pair->polled |= known == qp->send_cq && polled_cqs[at].context == qp->context;
        if (known == NULL)
            return;
    }
}

static void describe(struct shim_queue_pair *slot, const struct verbs_context *context)
{
    if (context->device == NULL)
        return;
    memcpy(slot->device, context->device->name, sizeof slot->device - 1);
}

static struct pair *begin(struct verbs_qp *qp, bool all_signaled, enum shim_qp_event event)
{
    struct shim_queue_pair *slot = make_room() ? shim_queue_pair_claim((uint64_t)(uintptr_t)qp->context, qp->number) : NULL;
    uint32_t index = slot != NULL ? shim_queue_pair_slot(slot) : PAIRS;
    uint64_t now = shim_now();

    if (index >= PAIRS) {
        STORE(full, true);
        return NULL;
    }
    clear(&pairs[index], qp, all_signaled);
    describe(slot, qp->context);
    STORE(slot->created, event == SHIM_QP_CREATED ? now : 0);
    __atomic_store_n(&pairs[index].slot, slot, __ATOMIC_RELEASE);
    for (uint32_t known = LOAD(met); known <= index; known = LOAD(met))
        (void)__atomic_compare_exchange_n(&met, &known, index + 1, false, __ATOMIC_RELEASE, __ATOMIC_RELAXED);
    shim_record_qp_event(slot, event, now);
    return &pairs[index];
}

void pair_created(struct verbs_qp *qp, bool all_signaled)
{
    if (shim_on())
        (void)begin(qp, all_signaled, SHIM_QP_CREATED);
}

/* Made in a way we do not see (mlx5dv_create_qp): met when it is used. */
static struct pair *meet(struct verbs_qp *qp)
{
    int error = errno;
    struct pair *pair;

    if (!shim_on() || LOAD(full))
        return NULL;
    verbs_lock();
    pair = pair_of_number(qp->context, qp->number);
    if (pair == NULL)
        pair = begin(qp, false, SHIM_QP_SEEN);
    verbs_unlock();
    errno = error;
    return pair;
}

struct pair *pair_of(struct verbs_qp *qp)
{
    struct pair *pair = pair_of_number(qp->context, qp->number);

    return __builtin_expect(pair != NULL, 1) ? pair : meet(qp);
}

static void learn_peer(struct shim_queue_pair *slot, const struct verbs_context *context,
                       const struct verbs_qp_attributes *attributes, int mask)
{
    const struct verbs_address *address = &attributes->address;

    if (mask & ATTR_DEST_NUMBER)
        STORE(slot->remote_number, attributes->dest_number);
    if (mask & ATTR_PATH_MTU)
        slot->mtu = (uint16_t)attributes->path_mtu;
    if ((mask & ATTR_AV) == 0)
        return;
    slot->port = address->port;
    slot->remote_lid = address->lid;
    slot->link = address->lid != 0 ? 1 : address->is_global ? 2 : 0;
    if (!address->is_global)
        return;
    slot->gid_index = address->gid_index;
    memcpy(slot->remote_gid, address->gid, sizeof slot->remote_gid);
    (void)known_gid(context, address->port, address->gid_index, slot->gid);
}

static void learn_patience(struct shim_queue_pair *slot, const struct verbs_qp_attributes *attributes, int mask, uint64_t now)
{
    if (mask & ATTR_TIMEOUT)
        slot->timeout = attributes->timeout;
    if (mask & ATTR_RETRY_COUNT)
        slot->retry_count = attributes->retry_count;
    STORE(slot->connected, now);
}

/* A reset throws away what was posted: from here on it is another queue pair under the same number. */
static void begin_anew(struct verbs_qp *qp, const struct pair *pair)
{
    bool all_signaled = pair->all_signaled;

    if (LOAD(pair->slot->posted_wrs) == 0 && LOAD(pair->slot->errors) == 0)
        return;
    pair_destroyed(qp->context, qp->number);
    (void)begin(qp, all_signaled, SHIM_QP_CREATED);
}

void pair_modified(struct verbs_qp *qp, const struct verbs_qp_attributes *attributes, int mask)
{
    struct pair *pair = (mask & ATTR_STATE) ? pair_of(qp) : NULL;
    uint64_t now = shim_now();

    if (pair == NULL)
        return;
    if (attributes->state == QPS_RESET) {
        begin_anew(qp, pair);
    } else if (attributes->state == QPS_RTR) {
        learn_peer(pair->slot, qp->context, attributes, mask);
        shim_record_qp_event(pair->slot, SHIM_QP_CONNECTED, now);
    } else if (attributes->state == QPS_RTS) {
        learn_patience(pair->slot, attributes, mask, now);
        shim_record_qp_event(pair->slot, SHIM_QP_READY, now);
    }
}

void pair_destroyed(const struct verbs_context *context, uint32_t number)
{
    struct pair *pair = pair_of_number(context, number);

    if (pair == NULL)
        return;
    shim_record_qp_event(pair->slot, SHIM_QP_DESTROYED, shim_now());
    if (pair->probe != 0)
        __atomic_fetch_sub(&probes_in_flight, 1u, __ATOMIC_RELAXED);
    pair->probe = 0;
    pair->qp = NULL;
    pair->send_cq = NULL;
    shim_queue_pair_end(pair->slot);
    STORE(full, false);
}

/* What is in flight counts only where its completions come through us: a program may poll in a way that is not seen. */
void pairs_polled(const struct verbs_cq *cq)
{
    struct pair *pair;

    for (uint32_t each = 0; (pair = pair_at(each)) != NULL; each++) {
        if (__atomic_load_n(&pair->slot, __ATOMIC_ACQUIRE) == NULL || pair->send_cq != cq || !pair_enter(pair))
            continue;
        pair->polled = true;
        show_oldest(pair);
        pair_leave(pair);
    }
}
