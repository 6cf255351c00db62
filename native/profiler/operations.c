/* Operations: collectives and point-to-point calls as NCCL enqueues them. NCCL stops their events when they are enqueued;
 * they are finished when the last of their proxy operations is. */
#define _GNU_SOURCE

#include "profiler/hooks.h"
#include "ring/mask.h"

#define PAST_GENERATIONS (1u << 20) /* as many uses of a slot ago a captured graph may have been made */

static struct operation operations[HANDLE_SLOTS];
static uint32_t turn; /* slots are taken in turn, so that a handle stays good long after its event */

static uint64_t next_key(uint64_t key, uint32_t slot)
{
    uint32_t generation = key == 0 ? profiler_first_generation() : handle_generation(key) + 1;

    return make_handle(HANDLE_OPERATION, slot, generation);
}

static struct operation *take(void)
{
    for (uint32_t tries = 0; tries < HANDLE_SLOTS; tries++) {
        uint32_t slot = __atomic_fetch_add(&turn, 1u, __ATOMIC_RELAXED) % HANDLE_SLOTS;
        struct operation *operation = &operations[slot];
        uint64_t key = LOAD(operation->key);

        if (LOAD(operation->children) != 0 || (key != 0 && !LOAD(operation->stopped)))
            continue;
        if (__atomic_compare_exchange_n(&operation->key, &key, next_key(key, slot), false, __ATOMIC_ACQUIRE, __ATOMIC_RELAXED))
            return operation;
    }
    return NULL;
}

struct operation *operation_of(uint64_t handle)
{
    struct operation *operation = &operations[handle_slot(handle)];

    return handle_kind(handle) == HANDLE_OPERATION && LOAD(operation->key) == handle ? operation : NULL;
}

/* Generations of two processes begin far apart, and those of a slot follow each other. */
bool operation_was_ours(uint64_t handle)
{
    uint64_t key = LOAD(operations[handle_slot(handle)].key);

    return handle_kind(handle) == HANDLE_OPERATION && key != 0 &&
           handle_generation(key) - handle_generation(handle) < PAST_GENERATIONS;
}

/* The API hook saw no call: NCCL is linked in a way that preloading does not reach. Then this is the only record of it. */
static bool api_is_silent(void)
{
    return (LOAD(shim_covered[SHIM_CALLED][1]) & (1ull << SHIM_HOOK_NCCL_API)) == 0;
}

static void count_call(struct operation *operation, uint64_t now)
{
    struct shim_comm *comm = operation->comm;

    if (comm == NULL)
        return;
    STORE(comm->ops, LOAD(comm->ops) + 1);
    STORE(comm->last_enter, now);
    STORE(comm->last_leave, 0u);
}

static void record_call(struct operation *operation, const struct profiler_task *task, uint64_t now)
{
    struct shim_call *call = (struct shim_call *)shim_reserve(SHIM_RING_CALLS);

    operation->call = call;
    if (call == NULL)
        return;
    call->enter = now;
    call->leave = 0;
    call->count = task->count;
    call->stream = shim_masked(task->stream);
    call->op_number = operation->number;
    call->p2p_number = operation->p2p_number;
    call->peer = operation->peer;
    call->dtype = task->dtype;
    call->redop = 255;
    call->depth = SHIM_TOLD_BY_PROFILER;
    call->result = SHIM_NO_RESULT;
    call->kind = operation->kind;
    call->generation = operation->comm_generation;
    call->comm = operation->comm_slot;
    shim_publish((struct shim_record *)call, SHIM_RING_CALLS);
    operation->call_sequence = call->sequence;
}

static void fill(struct operation *operation, struct profiler_context *context, const struct profiler_task *task)
{
    struct shim_comm *comm = context != NULL ? __atomic_load_n(&context->comm, __ATOMIC_ACQUIRE) : NULL;

    operation->context = context;
    operation->comm = comm;
    operation->comm_slot = shim_comm_slot(comm);
    operation->comm_generation = context != NULL ? context->generation : 0;
    operation->kind = (uint8_t)task->kind;
    operation->algorithm = task->algorithm;
    operation->protocol = task->protocol;
    operation->peer = task->peer;
    operation->number = comm != NULL ? (uint32_t)__atomic_add_fetch(&comm->profiler_ops, 1u, __ATOMIC_RELAXED) : 0;
    operation->p2p_number = context != NULL ? profiler_p2p_number(context, task->peer, task->kind) : 0;
    operation->call = NULL;
    STORE(operation->stopped, 0u);
    STORE(operation->counted, 0u);
    STORE(operation->start, 0u);
    STORE(operation->bytes, 0u);
    STORE(operation->channels, 0u);
}

static bool is_p2p(enum shim_kind kind)
{
    return kind >= SHIM_SEND && kind <= SHIM_WAIT_SIGNAL;
}

void *operation_start(struct profiler_context *context, int32_t rank, const struct profiler_task *task)
{
    struct operation *operation = shim_on() ? take() : NULL;
    uint64_t now;

    if (operation == NULL)
        return NULL;
    if (context != NULL && context->version < 4)
        profiler_learn_comm(context, rank, task);
    fill(operation, context, task);
    shim_cover_hook(SHIM_CALLED, is_p2p(task->kind) ? SHIM_HOOK_PROFILER_P2P : SHIM_HOOK_PROFILER_COLL);
    if (api_is_silent()) {
        now = shim_now();
        count_call(operation, now);
        record_call(operation, task, now);
    }
    return (void *)(uintptr_t)LOAD(operation->key);
}

void operation_stop(uint64_t handle)
{
    struct operation *operation = operation_of(handle);
    struct shim_call *call = operation != NULL ? operation->call : NULL;

    if (operation == NULL || __atomic_exchange_n(&operation->stopped, 1u, __ATOMIC_RELEASE) != 0 || call == NULL)
        return;
    if (LOAD(call->sequence) == operation->call_sequence) { /* else the ring went round meanwhile */
        STORE(call->result, 0);
        STORE(call->leave, shim_now());
    }
    if (operation->comm != NULL)
        STORE(operation->comm->last_leave, shim_now());
}

void operation_child_began(struct operation *operation, uint64_t start, uint8_t channel)
{
    uint64_t none = 0;

    __atomic_fetch_add(&operation->children, 1u, __ATOMIC_RELAXED);
    (void)__atomic_compare_exchange_n(&operation->start, &none, start, false, __ATOMIC_RELAXED, __ATOMIC_RELAXED);
    __atomic_fetch_or(&operation->channels, 1ull << (channel & 63), __ATOMIC_RELAXED);
}

static void record_done(struct operation *operation, uint64_t key, uint64_t now)
{
    struct shim_done_record done = {
        .start = LOAD(operation->start),
        .end = now,
        .bytes = LOAD(operation->bytes),
        .parent = key,
        .op_number = operation->number,
        .p2p_number = operation->p2p_number,
        .peer = operation->peer,
        .operation = operation->kind,
        .algorithm = operation->algorithm,
        .protocol = operation->protocol,
        .channels = (uint8_t)__builtin_popcountll(LOAD(operation->channels)),
        .generation = operation->comm_generation,
        .comm = operation->comm_slot,
    };

    shim_record_done(&done);
}

/* Proxy operations of one operation may follow each other without overlap, and a captured graph runs them again: the last
 * record of an operation holds. */
void operation_child_ended(struct operation *operation, uint64_t key, uint64_t bytes, uint64_t now)
{
    if (LOAD(operation->key) != key)
        return;
    __atomic_fetch_add(&operation->bytes, bytes, __ATOMIC_RELAXED);
    if (__atomic_sub_fetch(&operation->children, 1u, __ATOMIC_ACQ_REL) != 0)
        return;
    record_done(operation, key, now);
    if (operation->comm != NULL && __atomic_exchange_n(&operation->counted, 1u, __ATOMIC_RELAXED) == 0)
        __atomic_fetch_add(&operation->comm->ops_done, 1u, __ATOMIC_RELAXED);
}

/* Kernel events come only when they were asked for (FORENSICS_SHIM_KERNEL_EVENTS=1). */
void *kernel_start(uint64_t parent)
{
    struct operation *operation = operation_of(parent);

    if (operation == NULL || !shim_on())
        return NULL;
    shim_cover_hook(SHIM_CALLED, SHIM_HOOK_PROFILER_KERNEL);
    operation_child_began(operation, shim_now(), 0);
    return (void *)(uintptr_t)((parent & ~7ull) | HANDLE_KERNEL);
}

void kernel_stop(uint64_t handle)
{
    uint64_t key = (handle & ~7ull) | HANDLE_OPERATION;
    struct operation *operation = operation_of(key);

    if (operation != NULL && LOAD(operation->children) != 0)
        operation_child_ended(operation, key, 0, shim_now());
}

void operations_forget(void)
{
    for (uint32_t each = 0; each < HANDLE_SLOTS; each++) {
        if (LOAD(operations[each].key) == 0)
            continue;
        STORE(operations[each].key, next_key(operations[each].key, each));
        STORE(operations[each].children, 0u);
        STORE(operations[each].stopped, 1u);
    }
}
