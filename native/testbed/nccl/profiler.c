/* Which events a plugin is told of, in which order, with which parents: as src/plugin/profiler.cc of NCCL 2.30.7 does. */
#include "profiler.h"

#include "net.h"

#define PROXY_EVENTS (EVENT_PROXY_OP | EVENT_PROXY_STEP | EVENT_NET_PLUGIN)
#define COLL_EVENTS (EVENT_COLL | PROXY_EVENTS | EVENT_KERNEL_CH)
#define P2P_EVENTS (EVENT_P2P | PROXY_EVENTS | EVENT_KERNEL_CH)
#define GROUP_EVENTS (EVENT_GROUP | EVENT_COLL | EVENT_P2P | PROXY_EVENTS | EVENT_KERNEL_CH)
#define API_EVENTS (EVENT_GROUP_API | EVENT_COLL_API | EVENT_P2P_API | EVENT_KERNEL_LAUNCH | GROUP_EVENTS)

/* Of the group that is open on this thread. */
static _Thread_local struct {
    void *handle;
    int open, mask;
} api;

static int is_p2p(enum func func)
{
    return func == FUNC_SEND || func == FUNC_RECV || func >= FUNC_ALL_TO_ALL;
}

static void stop(void *handle)
{
    if (profiler.version > 0 && handle != NULL)
        profiler.plugin->stop(handle);
}

/* States that a version of the interface does not know are kept from it, as NCCL's adapters do. */
static void record(void *handle, enum event_state state, void *arguments)
{
    if (profiler.version == 0 || handle == NULL)
        return;
    if (profiler.version < 4 && state > STATE_CTRL_APPEND_END)
        return;
    if (profiler.version == 4 && state > STATE_KERNEL_STOP)
        return;
    profiler.plugin->record(handle, (int)state, arguments);
}

void profiler_call_start(struct task *task, int depth)
{
    struct event event = {.type = EVENT_GROUP_API, .depth = depth, .task = task};

    if (!api.open) {
        api.mask = profiler.version > 0 ? atomic_load(&profiler.mask) : 0;
        api.handle = NULL;
        if (api.mask & API_EVENTS)
            adapter_start(&event, task->comm->profiler, &api.handle);
        record(api.handle, STATE_GROUP_START_STOP, NULL);
        api.open = 1;
    }
    task->mask = api.mask;
    task->group_api = api.handle;
    event = (struct event){.type = is_p2p(task->api) ? EVENT_P2P_API : EVENT_COLL_API, .parent = api.handle, .task = task};
    if (api.mask & (event.type == EVENT_P2P_API ? EVENT_P2P_API | P2P_EVENTS : EVENT_COLL_API | COLL_EVENTS))
        adapter_start(&event, task->comm->profiler, &task->api_handle);
}

void profiler_call_stop(struct task *task)
{
    stop(task->api_handle);
}

void profiler_group_ending(void)
{
    if (api.open)
        record(api.handle, STATE_GROUP_END_START, NULL);
}

void profiler_group_stop(void)
{
    stop(api.handle);
    api.handle = NULL;
    api.open = 0;
}

void profiler_launch(struct ncclComm *comm, const struct task *first)
{
    struct event event = {.type = EVENT_KERNEL_LAUNCH, .parent = first->group_api, .task = first};
    void *handle = NULL;

    if (first->mask & EVENT_KERNEL_LAUNCH)
        adapter_start(&event, comm->profiler, &handle);
    stop(handle);
}

void *profiler_plan_start(struct ncclComm *comm, const struct task *first)
{
    struct event event = {.type = EVENT_GROUP};
    void *handle = NULL;

    if (first->mask & GROUP_EVENTS)
        adapter_start(&event, comm->profiler, &handle);
    return handle;
}

void profiler_task_start(struct task *task, void *plan, int channels)
{
    int p2p = task->func == FUNC_SEND || task->func == FUNC_RECV;
    struct event event = {.type = p2p ? EVENT_P2P : EVENT_COLL, .parent = task->api_handle, .group = plan, .task = task};

    event.rank = task->comm->rank;
    event.channels = channels;
    event.comm = task->comm->id;
    event.comm_name = task->comm->name;
    event.sequence = task->comm->sequence[task->func];
    if (task->mask & (p2p ? P2P_EVENTS : COLL_EVENTS))
        adapter_start(&event, task->comm->profiler, &task->handle);
    if (!p2p)
        task->comm->sequence[task->func]++;
}

void profiler_task_stop(struct task *task)
{
    stop(task->handle);
}

void profiler_plan_stop(void *plan)
{
    stop(plan);
}

void profiler_op_start(struct proxy_op *op)
{
    struct event event = {.type = EVENT_PROXY_OP, .parent = op->task_handle, .rank = op->link->comm->rank};

    event.channel = op->link->channel;
    event.peer = op->link->peer;
    event.steps = (int)op->total;
    event.chunk = (int)chunk_bytes();
    event.is_send = op->link->is_send;
    event.pid = op->pid;
    if (op->mask & PROXY_EVENTS)
        adapter_start(&event, op->context, &op->handle);
}

/* Up to version 3 the operation has states of its own with a step count; from 4 on only that it is in progress. */
void profiler_op_state(struct proxy_op *op, enum event_state state, uint32_t steps)
{
    union args_v1 old = {.proxyOp = {op->moved, (int)steps}};
    union args_v4 new = {.proxyStep = {0}};

    if (state == STATE_OP_IN_PROGRESS ? profiler.native >= 4 : profiler.native < 4)
        record(op->handle, state, profiler.version < 4 ? (void *)&old : (void *)&new);
}

void profiler_op_stop(struct proxy_op *op)
{
    stop(op->handle);
    op->handle = NULL;
}

void profiler_step_start(struct proxy_op *op, uint32_t step)
{
    struct event event = {.type = EVENT_PROXY_STEP, .parent = op->handle, .rank = op->link->comm->rank, .step = (int)step};

    if (op->mask & (EVENT_PROXY_STEP | EVENT_NET_PLUGIN))
        adapter_start(&event, op->context, &op->steps[step % STEPS]);
}

void profiler_step_state(struct proxy_op *op, uint32_t step, enum event_state state)
{
    union args_v4 arguments = {.proxyStep = {op->moved}};
    union args_v1 old = {.proxyOp = {0, 0}};

    if (op->handle != NULL)
        record(op->steps[step % STEPS], state, profiler.version < 4 ? (void *)&old : (void *)&arguments);
}

void profiler_step_stop(struct proxy_op *op, uint32_t step)
{
    stop(op->steps[step % STEPS]);
    op->steps[step % STEPS] = NULL;
}

static void control(struct ncclComm *comm, enum event_state before, enum event_state after, int appended)
{
    struct event event = {.type = EVENT_PROXY_CTRL};
    union args_v4 arguments = {.proxyCtrl = {0}};
    void *handle = NULL;

    if (profiler.version == 0 || !(atomic_load(&profiler.mask) & EVENT_PROXY_CTRL))
        return;
    adapter_start(&event, comm->profiler, &handle);
    record(handle, before, &arguments);
    arguments.proxyCtrl.appendedProxyOps = appended;
    if (after != before)
        record(handle, after, &arguments);
    stop(handle);
}

void profiler_control(struct ncclComm *comm, int appended)
{
    control(comm, STATE_CTRL_APPEND, STATE_CTRL_APPEND_END, appended);
}

void profiler_control_idle(struct ncclComm *comm, int idle)
{
    control(comm, idle ? STATE_CTRL_IDLE : STATE_CTRL_ACTIVE, idle ? STATE_CTRL_IDLE : STATE_CTRL_ACTIVE, 0);
}

void profiler_kernel_start(struct lane *lane, uint64_t clock)
{
    struct event event = {.type = EVENT_KERNEL_CH, .parent = lane->task.handle, .channel = lane->channel, .clock = clock};

    if (lane->task.mask & EVENT_KERNEL_CH)
        adapter_start(&event, lane->task.comm->profiler, &lane->kernel);
}

void profiler_kernel_stop(struct lane *lane, uint64_t clock)
{
    union args_v4 arguments = {.kernelCh = {clock}};

    if (lane->kernel == NULL)
        return;
    record(lane->kernel, STATE_KERNEL_STOP, &arguments);
    stop(lane->kernel);
}
