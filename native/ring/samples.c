/* Records made of state slots: samples of what is in progress, and the ends of proxy operations and queue pairs. */
#include <string.h>

#include "ring/internal.h"

#define MOST_SWEEPS 64u    /* an unchanged state is written at least every so many sweeps */
#define CALM_SWEEPS 10u    /* a queue pair that moves is written every so many sweeps */

/* What the sample before of a slot said. */
struct memory {
    uint64_t progress; /* sum of counters that only grow, with the generation: equal means unchanged */
    uint64_t due;      /* sweep of the next sample while unchanged */
    uint32_t gap;
    uint32_t incarnation; /* of the process that swept: what a parent saw says nothing of its child */
};

static struct memory proxy_memory[SHIM_MAX_PROXY_OPS];
static struct memory pair_memory[SHIM_MAX_QUEUE_PAIRS];

static struct memory *remembered(struct memory *memory)
{
    if (memory->incarnation != shim_incarnation)
        *memory = (struct memory){.incarnation = shim_incarnation};
    return memory;
}

static float age(uint64_t now, uint64_t since)
{
    return since != 0 && now > since ? (float)(now - since) : 0.0f;
}

/* Finished waits, and those that still last. */
static void sum_waits(const struct shim_proxy_op *op, uint64_t now, float *waits)
{
    for (unsigned each = 0; each < SHIM_WAITS; each++)
        waits[each] = (float)SHIM_LOAD(op->wait[each]);
    for (unsigned each = 0; each < SHIM_STEPS; each++) {
        uint32_t state = SHIM_LOAD(op->steps[each].state);

        if (state >= 1 && state <= SHIM_WAITS)
            waits[state - 1] += age(now, SHIM_LOAD(op->steps[each].since));
    }
}

/* Slots are read while others may write them, and even give them to another operation: sound_after throws such a sample away,
 * which is more than a race detector can know. */
#define READS_LIVE_SLOTS __attribute__((no_sanitize("thread")))

READS_LIVE_SLOTS static void fill_proxy(struct shim_proxy_record *record, const struct shim_proxy_op *op, uint64_t now)
{
    bool is_recv = op->direction == SHIM_DIRECTION_RECV;

    record->time = now;
    record->op_number = SHIM_LOAD(op->op_number);
    record->peer = op->peer;
    record->slot = (uint16_t)(op - shim_log.proxy_ops);
    record->channel = op->channel;
    record->direction = op->direction;
    record->total = SHIM_LOAD(op->total);
    record->done = is_recv ? SHIM_LOAD(op->consumed) : SHIM_LOAD(op->done); /* last stage first: a racing sample stays ordered */
    record->passed = is_recv ? SHIM_LOAD(op->flushed) : SHIM_LOAD(op->transmitted);
    record->ready = is_recv ? SHIM_LOAD(op->received) : SHIM_LOAD(op->gpu_ready);
    record->posted = SHIM_LOAD(op->posted);
    record->bytes = SHIM_LOAD(op->bytes);
    record->generation = op->comm_generation;
    record->comm = op->comm;
}

READS_LIVE_SLOTS static void fill_waits(struct shim_waits_record *record, const struct shim_proxy_op *op, uint64_t now)
{
    uint64_t changed = SHIM_LOAD(op->last_change);

    record->time = now;
    record->start = SHIM_LOAD(op->start);
    sum_waits(op, now, record->wait);
    record->stuck = age(now, changed != 0 ? changed : record->start);
    record->slot = (uint16_t)(op - shim_log.proxy_ops);
    record->channel = op->channel;
    record->direction = op->direction;
    record->kind = SHIM_PROXY_WAITS;
    record->generation = op->comm_generation;
    record->comm = op->comm;
}

/* Everything between sequence and check, as it was prepared. */
static void append(enum shim_ring_class ring_class, const void *prepared)
{
    struct shim_record *record = shim_reserve(ring_class);
    size_t from = offsetof(struct shim_record, time), to = offsetof(struct shim_record, check);

    if (record == NULL)
        return;
    memcpy((char *)record + from, (const char *)prepared + from, to - from);
    shim_publish(record, ring_class);
}

/* The slot still belongs to the operation that was looked at. */
static bool sound_after(const struct shim_proxy_op *op, uint32_t generation)
{
    __atomic_thread_fence(__ATOMIC_ACQUIRE);
    return SHIM_LOAD(op->generation) == generation && SHIM_LOAD(op->state) == SHIM_SLOT_ACTIVE;
}

void shim_record_proxy(const struct shim_proxy_op *op, enum shim_kind kind, enum shim_ring_class ring_class, uint64_t now)
{
    struct shim_proxy_record state = {.kind = (uint8_t)kind};
    struct shim_waits_record waits = {0};
    uint32_t generation;

    if (op == NULL || !shim_on())
        return;
    generation = __atomic_load_n(&op->generation, __ATOMIC_ACQUIRE);
    fill_proxy(&state, op, now);
    fill_waits(&waits, op, now);
    if (kind == SHIM_PROXY_STATE && !sound_after(op, generation))
        return;
    append(ring_class, &state);
    append(ring_class, &waits);
}

void shim_record_done(const struct shim_done_record *done)
{
    struct shim_done_record record = *done;

    record.kind = SHIM_OP_DONE;
    append(SHIM_RING_FLOWS, &record);
}

static uint16_t saturated(uint64_t value)
{
    return value > UINT16_MAX ? UINT16_MAX : (uint16_t)value;
}

READS_LIVE_SLOTS static void fill_pair(struct shim_qp_record *record, const struct shim_queue_pair *qp, uint64_t now)
{
    uint64_t completed = SHIM_LOAD(qp->signaled_completed), posted = SHIM_LOAD(qp->signaled_posted);

    record->time = now;
    record->completed_wrs = SHIM_LOAD(qp->completed_wrs);
    record->completed_bytes = SHIM_LOAD(qp->completed_bytes);
    record->posted_wrs = SHIM_LOAD(qp->posted_wrs);
    record->posted_bytes = SHIM_LOAD(qp->posted_bytes);
    record->oldest = age(now, SHIM_LOAD(qp->oldest_post));
    record->slot = (uint16_t)shim_queue_pair_slot(qp);
    record->in_flight = saturated(posted > completed ? posted - completed : 0);
    record->generation = (uint8_t)SHIM_LOAD(qp->generation);
}

READS_LIVE_SLOTS static void fill_rate(struct shim_rate_record *record, struct shim_queue_pair *qp, uint64_t now)
{
    record->time = now;
    record->busy = SHIM_LOAD(qp->busy);
    record->window_bytes = SHIM_LOAD(qp->window_bytes);
    record->window_ticks = SHIM_LOAD(qp->window_ticks);
    record->received_bytes = SHIM_LOAD(qp->received_bytes);
    record->poll_gap = (float)__atomic_exchange_n(&qp->poll_gap, 0, __ATOMIC_RELAXED);
    record->slot = (uint16_t)shim_queue_pair_slot(qp);
    record->tail = saturated(SHIM_LOAD(qp->tail_wrs));
    record->generation = (uint8_t)SHIM_LOAD(qp->generation);
}

static void record_pair(struct shim_queue_pair *qp, uint64_t now)
{
    struct shim_qp_record state = {.kind = SHIM_QP_STATE, .comm = SHIM_NO_COMM};
    struct shim_rate_record rate = {.kind = SHIM_QP_RATE, .comm = SHIM_NO_COMM};
    uint32_t generation = __atomic_load_n(&qp->generation, __ATOMIC_ACQUIRE);

    fill_pair(&state, qp, now);
    fill_rate(&rate, qp, now);
    __atomic_thread_fence(__ATOMIC_ACQUIRE);
    if (SHIM_LOAD(qp->generation) != generation || SHIM_LOAD(qp->state) != SHIM_SLOT_ACTIVE)
        return;
    append(SHIM_RING_SAMPLES, &state);
    append(SHIM_RING_SAMPLES, &rate);
}

/* True when this sweep is to be written: the state changed, or it was unchanged for 1, 2, 4, 8, ... sweeps. */
static bool is_due(struct memory *memory, uint64_t progress, uint64_t sweep)
{
    if (memory->progress != progress || memory->gap == 0) {
        *memory = (struct memory){.progress = progress, .due = sweep + 1, .gap = 1, .incarnation = memory->incarnation};
        return true;
    }
    if (sweep < memory->due)
        return false;
    memory->gap = memory->gap < MOST_SWEEPS ? memory->gap * 2 : MOST_SWEEPS;
    memory->due = sweep + memory->gap;
    return true;
}

static void sample_proxy(uint32_t slot, uint64_t sweep, uint64_t now)
{
    const struct shim_proxy_op *op = &shim_log.proxy_ops[slot];
    uint64_t progress = ((uint64_t)SHIM_LOAD(op->generation) << 40) + SHIM_LOAD(op->posted) + SHIM_LOAD(op->gpu_ready) +
                        SHIM_LOAD(op->transmitted) + SHIM_LOAD(op->done) + SHIM_LOAD(op->received) + SHIM_LOAD(op->flushed) +
                        SHIM_LOAD(op->consumed);

    if (is_due(remembered(&proxy_memory[slot]), progress, sweep))
        shim_record_proxy(op, SHIM_PROXY_STATE, SHIM_RING_SAMPLES, now);
}

/* Stuck ones are looked at every time; those that move once a second, or a thousand healthy ones would fill the ring. */
static void sample_pair(uint32_t slot, uint64_t sweep, uint64_t now)
{
    struct shim_queue_pair *qp = &shim_log.queue_pairs[slot];
    struct memory *memory = remembered(&pair_memory[slot]);
    uint64_t in_flight = SHIM_LOAD(qp->signaled_posted) - SHIM_LOAD(qp->signaled_completed);
    uint64_t progress = ((uint64_t)SHIM_LOAD(qp->generation) << 48) + SHIM_LOAD(qp->completed_wrs) + SHIM_LOAD(qp->received_wrs) + SHIM_LOAD(qp->errors);
    bool moved = memory->progress != progress;

    if ((in_flight == 0 && !moved) || (moved && memory->gap != 0 && sweep % CALM_SWEEPS != slot % CALM_SWEEPS))
        return;
    if (!is_due(memory, progress, sweep))
        return;
    record_pair(qp, now);
}

void shim_sample_all(uint64_t sweep, uint64_t now)
{
    for (uint32_t slot = 0; SHIM_LOAD(shim_active_proxy_ops) != 0 && slot < shim_log.proxy_op_count; slot++)
        if (__atomic_load_n(&shim_log.proxy_ops[slot].state, __ATOMIC_ACQUIRE) == SHIM_SLOT_ACTIVE)
            sample_proxy(slot, sweep, now);
    for (uint32_t slot = 0; slot < SHIM_LOAD(shim_used_queue_pairs); slot++)
        if (__atomic_load_n(&shim_log.queue_pairs[slot].state, __ATOMIC_ACQUIRE) == SHIM_SLOT_ACTIVE)
            sample_pair(slot, sweep, now);
}
