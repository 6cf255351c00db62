/* The versions of the plugin interface, as thin adapters over one core. NCCL takes the highest that it knows. v7 (2.31) is left
 * out: files that carry the name differ in their members, and NCCL falls back to v6, which has all that is recorded here. */
#define _GNU_SOURCE

#include "forensics/export.h"
#include "profiler/hooks.h"

static uint64_t number_of(const void *handle)
{
    return (uint64_t)(uintptr_t)handle;
}

static void begin(uint32_t version, void **context, int *mask)
{
    int ignored = 0;
    struct profiler_context *made = profiler_begin(version, mask != NULL ? mask : &ignored);

    if (context != NULL)
        *context = made;
}

static int init_v1(void **context, int *mask) { begin(1, context, mask); return 0; }
static int init_v2(void **context, int *mask) { begin(2, context, mask); return 0; }
static int init_v3(void **context, int *mask) { begin(3, context, mask); return 0; }

static void begin_known(uint32_t version, void **context, int *mask, uint64_t id, const char *name, int nodes,
                        int ranks, int rank)
{
    void *made = NULL;

    begin(version, &made, mask);
    if (context != NULL)
        *context = made;
    if (made != NULL)
        profiler_know_comm(made, shim_comm_for_profiler(id, rank, ranks, nodes, name));
}

static int init_v4(void **context, int *mask, const char *name, uint64_t id, int nodes, int ranks, int rank, profiler_log log)
{
    (void)log;
    begin_known(4, context, mask, id, name, nodes, ranks, rank);
    return 0;
}

static int init_v5(void **context, uint64_t id, int *mask, const char *name, int nodes, int ranks, int rank, profiler_log log)
{
    (void)log;
    begin_known(5, context, mask, id, name, nodes, ranks, rank);
    return 0;
}

static int init_v6(void **context, uint64_t id, int *mask, const char *name, int nodes, int ranks, int rank, profiler_log log)
{
    (void)log;
    begin_known(6, context, mask, id, name, nodes, ranks, rank);
    return 0;
}

static struct profiler_task coll_task_v1(const struct profiler_event_descriptor *event)
{
    const struct coll_v1 *coll = &event->coll_v1;

    return (struct profiler_task){.kind = kind_of_number(coll->function), .count = coll->count, .comm_hash = coll->comm_hash,
                                  .comm_name = coll->name, .peer = coll->root, .dtype = coll->dtype,
                                  .algorithm = coll->algorithm, .protocol = coll->protocol};
}

static struct profiler_task p2p_task_v1(const struct profiler_event_descriptor *event)
{
    const struct p2p_v1 *p2p = &event->p2p_v1;

    return (struct profiler_task){.kind = kind_of_number(p2p->function), .count = p2p->count, .comm_hash = p2p->comm_hash,
                                  .comm_name = p2p->name, .peer = p2p->peer, .dtype = p2p->dtype,
                                  .algorithm = 255, .protocol = 255};
}

static struct profiler_task coll_task_v2(const struct profiler_event_descriptor *event)
{
    const struct coll_v2 *coll = &event->coll_v2;

    return (struct profiler_task){.kind = kind_of_name(coll->function), .count = coll->count, .comm_hash = coll->comm_hash,
                                  .comm_name = coll->name, .peer = coll->root, .dtype = dtype_of_name(coll->dtype),
                                  .algorithm = algorithm_of_name(coll->algorithm),
                                  .protocol = protocol_of_name(coll->protocol)};
}

static struct profiler_task coll_task_v3(const struct profiler_event_descriptor *event)
{
    const struct coll_v3 *coll = &event->coll_v3;

    return (struct profiler_task){.kind = kind_of_name(coll->function), .count = coll->count, .comm_hash = coll->comm_hash,
                                  .comm_name = coll->name, .peer = coll->root, .dtype = dtype_of_name(coll->dtype),
                                  .algorithm = algorithm_of_name(coll->algorithm),
                                  .protocol = protocol_of_name(coll->protocol)};
}

static struct profiler_task p2p_task_v2(const struct profiler_event_descriptor *event)
{
    const struct p2p_v2 *p2p = &event->p2p_v2;

    return (struct profiler_task){.kind = kind_of_name(p2p->function), .count = p2p->count, .comm_hash = p2p->comm_hash,
                                  .comm_name = p2p->name, .peer = p2p->peer, .dtype = dtype_of_name(p2p->dtype),
                                  .algorithm = 255, .protocol = 255};
}

/* From v5 on the parent is the API event, which carries the stream. */
static uint64_t stream_of(const struct profiler_event_descriptor *event)
{
    uint64_t parent = number_of(event->parent);

    return handle_kind(parent) == HANDLE_API ? parent >> 8 : 0;
}

static struct profiler_task coll_task_v4(const struct profiler_event_descriptor *event)
{
    const struct coll_v4 *coll = &event->coll_v4;

    return (struct profiler_task){.kind = kind_of_name(coll->function), .count = coll->count, .stream = stream_of(event),
                                  .peer = coll->root, .dtype = dtype_of_name(coll->dtype),
                                  .algorithm = algorithm_of_name(coll->algorithm),
                                  .protocol = protocol_of_name(coll->protocol)};
}

static struct profiler_task p2p_task_v4(const struct profiler_event_descriptor *event)
{
    const struct p2p_v4 *p2p = &event->p2p_v4;

    return (struct profiler_task){.kind = kind_of_name(p2p->function), .count = p2p->count, .stream = stream_of(event),
                                  .peer = p2p->peer, .dtype = dtype_of_name(p2p->dtype), .algorithm = 255, .protocol = 255};
}

typedef struct profiler_task (*task_reader)(const struct profiler_event_descriptor *);

/* What is the same in all versions. A group needs a handle: up to 2.27 NCCL tells nothing under a group without one. */
static void *start(uint64_t type, void *context, const struct profiler_event_descriptor *event, task_reader coll,
                   task_reader p2p)
{
    struct profiler_task task;

    switch (type) {
    case EVENT_PROXY_STEP: return step_start(number_of(event->parent), (uint32_t)event->step);
    case EVENT_PROXY_OP: return proxy_start(context, number_of(event->parent), &event->proxy_op);
    case EVENT_GROUP: return (void *)(uintptr_t)HANDLE_GROUP;
    case EVENT_KERNEL: return kernel_start(number_of(event->parent));
    case EVENT_COLL: task = coll(event); return operation_start(profiler_context_of(context), event->rank, &task);
    case EVENT_P2P: task = p2p(event); return operation_start(profiler_context_of(context), event->rank, &task);
    default: return NULL;
    }
}

static void *start_api(struct profiler_context *context, const void *stream, bool captured)
{
    struct shim_comm *comm = context != NULL ? __atomic_load_n(&context->comm, __ATOMIC_ACQUIRE) : NULL;

    shim_cover_hook(SHIM_CALLED, SHIM_HOOK_PROFILER_API);
    if (captured && comm != NULL) {
        STORE(comm->flags, LOAD(comm->flags) | SHIM_COMM_GRAPH);
        shim_cover_hook(SHIM_CALLED, SHIM_HOOK_GRAPH);
    }
    return (void *)(uintptr_t)api_handle(stream);
}

static int start_v1(void *context, void **handle, struct profiler_event_descriptor *event)
{
    *handle = start(event->narrow_type, context, event, coll_task_v1, p2p_task_v1);
    return 0;
}

static int start_v2(void *context, void **handle, struct profiler_event_descriptor *event)
{
    *handle = start(event->narrow_type, context, event, coll_task_v2, p2p_task_v2);
    return 0;
}

static int start_v3(void *context, void **handle, struct profiler_event_descriptor *event)
{
    *handle = start(event->narrow_type, context, event, coll_task_v3, p2p_task_v2);
    return 0;
}

static int start_v4(void *context, void **handle, struct profiler_event_descriptor *event)
{
    *handle = start(event->narrow_type, context, event, coll_task_v4, p2p_task_v4);
    return 0;
}

static int start_v5(void *context, void **handle, struct profiler_event_descriptor *event)
{
    if (event->type == EVENT_COLL_API)
        *handle = start_api(profiler_context_of(context), event->coll_api.stream, event->coll_api.captured);
    else if (event->type == EVENT_P2P_API)
        *handle = start_api(profiler_context_of(context), event->p2p_api.stream, event->p2p_api.captured);
    else
        *handle = start(event->type, context, event, coll_task_v4, p2p_task_v4);
    return 0;
}

static int stop(void *handle)
{
    switch (handle_kind(number_of(handle))) {
    case HANDLE_STEP: step_stop(number_of(handle)); break;
    case HANDLE_PROXY: proxy_stop(number_of(handle)); break;
    case HANDLE_OPERATION: operation_stop(number_of(handle)); break;
    case HANDLE_KERNEL: kernel_stop(number_of(handle)); break;
    default: break;
    }
    return 0;
}

static void record_proxy_v1(uint64_t handle, int state, const struct state_arguments_v1 *arguments)
{
    struct live_proxy *proxy = &live_proxies[handle_slot(handle)];

    if (state == STATE_SEND_FIFO_WAIT)
        steps_wait_for_peer(handle, (uint32_t)arguments->steps);
    else if ((state == STATE_SEND_DONE || state == STATE_RECV_DONE) && LOAD(proxy->key) == handle && LOAD(proxy->slot) != NULL)
        STORE(proxy->slot->bytes, arguments->bytes);
}

static int record_v1(void *handle, int state, struct state_arguments_v1 *arguments)
{
    uint64_t key = number_of(handle);

    if (handle_kind(key) == HANDLE_STEP)
        step_state(key, (uint32_t)state, 0);
    else if (handle_kind(key) == HANDLE_PROXY && arguments != NULL)
        record_proxy_v1(key, state, arguments);
    return 0;
}

static int record_v4(void *handle, int state, struct state_arguments_v4 *arguments)
{
    uint64_t key = number_of(handle);

    if (handle_kind(key) == HANDLE_STEP)
        step_state(key, (uint32_t)state, arguments != NULL ? arguments->bytes : 0);
    else if (handle_kind(key) == HANDLE_PROXY && state == STATE_PROXY_IN_PROGRESS && shim_on() &&
             LOAD(live_proxies[handle_slot(key)].key) == key)
        (void)proxy_move(&live_proxies[handle_slot(key)]);
    return 0;
}

static int finalize(void *context)
{
    profiler_end(profiler_context_of(context));
    return 0;
}

#define NAME "forensics"
FORENSICS_EXPORT const struct profiler_v1 ncclProfiler_v1 = {NAME, init_v1, start_v1, stop, record_v1, finalize};
FORENSICS_EXPORT const struct profiler_v1 ncclProfiler_v2 = {NAME, init_v2, start_v2, stop, record_v1, finalize};
FORENSICS_EXPORT const struct profiler_v1 ncclProfiler_v3 = {NAME, init_v3, start_v3, stop, record_v1, finalize};
FORENSICS_EXPORT const struct profiler_v4 ncclProfiler_v4 = {NAME, init_v4, start_v4, stop, record_v4, finalize};
FORENSICS_EXPORT const struct profiler_v5 ncclProfiler_v5 = {NAME, init_v5, start_v5, stop, record_v4, finalize};
FORENSICS_EXPORT const struct profiler_v5 ncclProfiler_v6 = {NAME, init_v6, start_v5, stop, record_v4, finalize};
