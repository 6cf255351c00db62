/* Steps: one slice of a proxy operation, at most eight at a time. Their states are Mycroft's counters without a patch. */
#define _GNU_SOURCE

#include "profiler/hooks.h"

#define NOTHING 0xFFFFFFFFu

const uint8_t step_stages[STATE_LIMIT] = {
    [STATE_SEND_GPU_WAIT] = 1 + SHIM_WAIT_GPU,
    [STATE_SEND_PEER_WAIT] = 1 + SHIM_WAIT_CREDIT,
    [STATE_SEND_WAIT] = 1 + SHIM_WAIT_NIC,
    [STATE_RECV_WAIT] = 1 + SHIM_WAIT_WIRE,
    [STATE_RECV_FLUSH_WAIT] = 1 + SHIM_WAIT_FLUSH,
    [STATE_RECV_GPU_WAIT] = 1 + SHIM_WAIT_CONSUME,
};

static uint32_t level(uint32_t stage)
{
    return stage > 3 ? stage - 3 : stage;
}

/* The counter that grows when a step reaches a level: 1 posted .. 4 finished. */
static uint32_t *counter(struct shim_proxy_op *slot, uint32_t reached)
{
    bool is_recv = slot->direction == SHIM_DIRECTION_RECV;

    switch (reached) {
    case 1: return &slot->posted;
    case 2: return is_recv ? &slot->received : &slot->gpu_ready;
    case 3: return is_recv ? &slot->flushed : &slot->transmitted;
    default: return is_recv ? &slot->consumed : &slot->done;
    }
}

/* A level that NCCL did not tell was passed all the same: below v4 there is no waiting for the peer. */
static void count(struct shim_proxy_op *slot, uint32_t from, uint32_t to)
{
    for (uint32_t reached = from + 1; reached <= to; reached++)
        STORE(*counter(slot, reached), LOAD(*counter(slot, reached)) + 1);
}

static void add_wait(struct shim_proxy_op *slot, const struct live_step *step, uint64_t now)
{
    uint32_t stage = LOAD(step->stage);

    if (stage != 0 && now > step->since)
        STORE(slot->wait[stage - 1], LOAD(slot->wait[stage - 1]) + (now - step->since));
}

/* Steps end in the order of their numbers: the oldest is the one after those that ended. */
static void tell_oldest(struct shim_proxy_op *slot)
{
    uint32_t number = LOAD(*counter(slot, 4));
    const struct shim_step *oldest = &slot->steps[number % SHIM_STEPS];
    uint32_t stage = LOAD(oldest->state);

    STORE(slot->waiting, stage != 0 && LOAD(oldest->number) == number ? stage - 1 : NOTHING);
}

static void show(struct shim_proxy_op *slot, struct shim_step *shown, uint32_t stage, uint64_t now)
{
    STORE(shown->state, stage);
    STORE(shown->since, now);
    STORE(slot->last_change, now);
    tell_oldest(slot);
}

/* Of a CollNet proxy, NCCL 2.28 and later always says that it receives: the states know better. */
static void correct_direction(struct shim_proxy_op *slot, uint32_t stage)
{
    uint8_t direction = stage > 3 ? SHIM_DIRECTION_RECV : SHIM_DIRECTION_SEND;

    if (slot->direction != direction && LOAD(slot->posted) == 0)
        STORE(slot->direction, direction);
}

/* A flush is posted on a queue pair of its own, which carries nothing to the peer. */
static void tell_queue_pairs(struct shim_proxy_op *slot, uint32_t stage)
{
    if (stage == 1 + SHIM_WAIT_NIC || stage == 1 + SHIM_WAIT_WIRE)
        shim_flow_posted(slot);
    else if (stage == 1 + SHIM_WAIT_FLUSH)
        shim_posted_forget();
}

void step_move(struct live_proxy *proxy, struct live_step *step, uint32_t stage, uint64_t bytes)
{
    struct shim_proxy_op *slot = LOAD(proxy->slot);
    uint64_t now = shim_now();

    if (slot == NULL)
        return; /* given up meanwhile: its communicator was aborted */
    correct_direction(slot, stage);
    add_wait(slot, step, now);
    count(slot, level(LOAD(step->stage)), level(stage));
    STORE(step->stage, stage);
    step->since = now;
    tell_queue_pairs(slot, stage);
    if (stage == 1 + SHIM_WAIT_NIC || stage == 1 + SHIM_WAIT_FLUSH) /* only now does NCCL know the size of this step */
        STORE(slot->steps[step - proxy->steps].bytes, bytes);
    if (stage == 1 + SHIM_WAIT_CREDIT)
        shim_cover_hook(SHIM_CALLED, SHIM_HOOK_PROFILER_PEER_WAIT);
    show(slot, &slot->steps[step - proxy->steps], stage, now);
}

static void begin(struct shim_proxy_op *slot, struct live_step *step, uint64_t handle, uint32_t number)
{
    struct shim_step *shown = &slot->steps[number % SHIM_STEPS];

    if (LOAD(step->key) != 0)
        STORE(slot->unbalanced, LOAD(slot->unbalanced) + 1);
    STORE(step->stage, 0u);
    STORE(shown->state, 0u);
    STORE(shown->number, number);
    STORE(shown->bytes, 0u);
    STORE(step->key, handle);
}

/* A receiver begins the same step again on every turn until it could post it: that is one step. */
void *step_start(uint64_t parent, uint32_t number)
{
    struct live_proxy *proxy = &live_proxies[handle_slot(parent)];
    struct live_step *step = &proxy->steps[number % SHIM_STEPS];
    uint64_t handle = step_handle(parent, number);
    struct shim_proxy_op *slot;

    if (handle_kind(parent) != HANDLE_PROXY || LOAD(proxy->key) != parent)
        return NULL;
    if (LOAD(step->key) == handle)
        return (void *)(uintptr_t)handle;
    slot = shim_on() ? proxy_move(proxy) : NULL;
    if (slot == NULL)
        return NULL;
    shim_cover_hook(SHIM_CALLED, SHIM_HOOK_PROFILER_PROXY_STEP);
    begin(slot, step, handle, number);
    return (void *)(uintptr_t)handle;
}

static void finish(struct shim_proxy_op *slot, struct live_step *step, uint64_t now)
{
    struct shim_step *shown = &slot->steps[handle_step(LOAD(step->key)) % SHIM_STEPS];

    add_wait(slot, step, now);
    count(slot, level(LOAD(step->stage)), 4);
    STORE(slot->bytes, LOAD(slot->bytes) + LOAD(shown->bytes));
    STORE(step->stage, 0u);
    STORE(step->key, 0u);
    show(slot, shown, 0, now);
}

void step_stop(uint64_t handle)
{
    struct live_proxy *proxy = &live_proxies[handle_slot(handle)];
    struct live_step *step = &proxy->steps[handle_step(handle) % SHIM_STEPS];
    struct shim_proxy_op *slot = LOAD(proxy->slot);

    if (LOAD(step->key) == handle && slot != NULL)
        finish(slot, step, shim_now());
    else if (slot != NULL && handle_generation(LOAD(proxy->key)) == handle_generation(handle))
        STORE(slot->unbalanced, LOAD(slot->unbalanced) + 1);
}

/* v1 to v3 tell of the whole proxy operation, so many steps, what later versions tell of each step. */
void steps_wait_for_peer(uint64_t handle, uint32_t steps)
{
    struct live_proxy *proxy = &live_proxies[handle_slot(handle)];
    struct shim_proxy_op *slot = LOAD(proxy->slot);

    if (LOAD(proxy->key) != handle || steps <= proxy->fifo || slot == NULL)
        return;
    proxy->fifo = steps;
    shim_cover_hook(SHIM_HOOKED, SHIM_HOOK_PROFILER_PEER_WAIT);
    for (uint32_t each = 0; each < SHIM_STEPS; each++) {
        struct live_step *step = &proxy->steps[each];

        if (LOAD(step->key) != 0 && LOAD(step->stage) == 1 + SHIM_WAIT_GPU && LOAD(slot->steps[each].number) < steps)
            step_move(proxy, step, 1 + SHIM_WAIT_CREDIT, 0);
    }
}

/* Its proxy operation ended: waits that last are added, nothing is counted as done. */
void steps_close(struct live_proxy *proxy, struct shim_proxy_op *slot, uint64_t now)
{
    for (uint32_t each = 0; each < SHIM_STEPS; each++) {
        struct live_step *step = &proxy->steps[each];

        if (LOAD(step->key) == 0)
            continue;
        add_wait(slot, step, now);
        STORE(step->key, 0u);
        STORE(slot->steps[each].state, 0u);
        STORE(slot->unbalanced, LOAD(slot->unbalanced) + 1);
    }
    STORE(slot->waiting, NOTHING);
}
