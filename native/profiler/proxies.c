/* Proxy operations: one channel and direction of an operation, carried by NCCL's proxy thread. */
#define _GNU_SOURCE

#include <string.h>
#include <unistd.h>

#include "profiler/hooks.h"

struct live_proxy live_proxies[HANDLE_SLOTS];
static uint32_t turn;

/* A proxy that was announced and never moved is given up when its turn comes again. */
static struct live_proxy *take(uint64_t *key)
{
    for (uint32_t tries = 0; tries < HANDLE_SLOTS; tries++) {
        uint32_t slot = __atomic_fetch_add(&turn, 1u, __ATOMIC_RELAXED) % HANDLE_SLOTS;
        struct live_proxy *proxy = &live_proxies[slot];
        uint64_t found = LOAD(proxy->key);
        uint32_t generation = found == 0 ? profiler_first_generation() : handle_generation(found) + 1;

        if (__atomic_load_n(&proxy->slot, __ATOMIC_ACQUIRE) != NULL)
            continue;
        *key = make_handle(HANDLE_PROXY, slot, generation);
        if (__atomic_compare_exchange_n(&proxy->key, &found, *key, false, __ATOMIC_ACQUIRE, __ATOMIC_RELAXED))
            return proxy;
    }
    return NULL;
}

/* Two containers may share a host and number their processes alike: then the parent still is no handle that was given here. */
static bool is_of_this_process(uint64_t parent, const struct proxy_op_members *members)
{
    return members->pid == (int32_t)getpid() && (parent == 0 || operation_was_ours(parent));
}

/* The context and the parent of a proxy that works for another process are that process's: not to be looked at. */
static void fill(struct live_proxy *proxy, void *context, uint64_t parent, const struct proxy_op_members *members)
{
    bool is_ours = is_of_this_process(parent, members);

    proxy->context = is_ours ? profiler_context_of(context) : NULL;
    proxy->operation = is_ours ? operation_of(parent) : NULL;
    proxy->operation_key = proxy->operation != NULL ? parent : 0;
    proxy->parent = parent;
    proxy->start = shim_now();
    proxy->fifo = 0;
    proxy->members = *members;
    for (uint32_t each = 0; each < SHIM_STEPS; each++)
        STORE(proxy->steps[each].key, 0u);
}

void *proxy_start(void *context, uint64_t parent, const struct proxy_op_members *members)
{
    uint64_t key = 0;
    struct live_proxy *proxy = shim_on() ? take(&key) : NULL;

    if (proxy == NULL)
        return NULL;
    shim_cover_hook(SHIM_CALLED, SHIM_HOOK_PROFILER_PROXY_OP);
    fill(proxy, context, parent, members);
    return (void *)(uintptr_t)key;
}

static uint8_t clipped(int32_t value)
{
    return (uint8_t)(value < 0 ? 0 : value > 255 ? 255 : value);
}

static void describe(struct shim_proxy_op *slot, const struct live_proxy *proxy)
{
    const struct proxy_op_members *members = &proxy->members;
    const struct operation *operation = proxy->operation;
    struct shim_comm *comm = proxy->context != NULL ? __atomic_load_n(&proxy->context->comm, __ATOMIC_ACQUIRE) : NULL;

    slot->comm = shim_comm_slot(comm);
    slot->comm_generation = comm != NULL ? proxy->context->generation : 0;
    slot->channel = clipped(members->channel);
    slot->direction = members->is_send ? SHIM_DIRECTION_SEND : SHIM_DIRECTION_RECV;
    slot->peer = members->peer;
    slot->parent = proxy->parent;
    slot->pid = (uint32_t)members->pid;
    slot->op_number = operation != NULL ? operation->number : 0;
    slot->operation = operation != NULL ? operation->kind : 0;
    slot->p2p_number = operation != NULL ? operation->p2p_number : 0;
    slot->total = members->steps > 0 ? (uint32_t)members->steps : 0;
    slot->chunk_bytes = members->chunk_bytes > 0 ? (uint32_t)members->chunk_bytes : 0;
    slot->start = slot->last_change = proxy->start;
}

struct shim_proxy_op *proxy_move(struct live_proxy *proxy)
{
    struct shim_proxy_op *slot = LOAD(proxy->slot);

    if (slot != NULL)
        return slot;
    slot = shim_proxy_op_claim();
    if (slot == NULL)
        return NULL;
    if (proxy->operation != NULL && LOAD(proxy->operation->key) != proxy->operation_key)
        proxy->operation = NULL; /* of a graph that was captured long ago */
    describe(slot, proxy);
    if (proxy->operation != NULL)
        operation_child_began(proxy->operation, proxy->start, proxy->members.channel);
    shim_proxy_op_publish(slot);
    __atomic_store_n(&proxy->slot, slot, __ATOMIC_RELEASE);
    return slot;
}

static void let_go(struct live_proxy *proxy, uint64_t key)
{
    for (uint32_t each = 0; each < SHIM_STEPS; each++)
        STORE(proxy->steps[each].key, 0u);
    STORE(proxy->key, make_handle(HANDLE_PROXY, handle_slot(key), handle_generation(key) + 1));
    __atomic_store_n(&proxy->slot, NULL, __ATOMIC_RELEASE);
}

void proxy_stop(uint64_t handle)
{
    struct live_proxy *proxy = &live_proxies[handle_slot(handle)];
    struct shim_proxy_op *slot = LOAD(proxy->slot);
    uint64_t now;

    if (LOAD(proxy->key) != handle || slot == NULL)
        return;
    now = shim_now();
    steps_close(proxy, slot, now);
    shim_record_proxy(slot, SHIM_PROXY_DONE, SHIM_RING_FLOWS, now);
    if (proxy->operation != NULL)
        operation_child_ended(proxy->operation, proxy->operation_key, LOAD(slot->bytes), now);
    shim_proxy_op_end(slot); /* last: whoever claims it next clears it */
    let_go(proxy, handle);
}

/* The communicator is gone and these never ended (it was aborted): their slots stay as they are, without a record of an end. */
void proxies_abandon(const struct profiler_context *context)
{
    for (uint32_t each = 0; each < HANDLE_SLOTS; each++) {
        struct live_proxy *proxy = &live_proxies[each];
        struct shim_proxy_op *slot = __atomic_load_n(&proxy->slot, __ATOMIC_ACQUIRE);

        if (slot == NULL || proxy->context != context)
            continue;
        shim_proxy_op_end(slot);
        if (proxy->operation != NULL && LOAD(proxy->operation->key) == proxy->operation_key)
            __atomic_fetch_sub(&proxy->operation->children, 1u, __ATOMIC_RELAXED);
        let_go(proxy, LOAD(proxy->key));
    }
}

/* In a forked child the slots are its parent's, and no proxy thread goes on with them. */
void proxies_forget(void)
{
    for (uint32_t each = 0; each < HANDLE_SLOTS; each++)
        if (LOAD(live_proxies[each].slot) != NULL)
            let_go(&live_proxies[each], LOAD(live_proxies[each].key));
}
