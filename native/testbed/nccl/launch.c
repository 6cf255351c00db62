/* Groups and launches: calls of a group are kept until its outermost end, then queued on their streams; nothing here waits,
 * except for a peer to which no link exists yet. */
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "comm.h"
#include "profiler.h"
#include "pxn.h"

static _Thread_local struct {
    int depth;
    struct task *first, *last;
} group;

static int is_p2p(const struct task *task)
{
    return task->func == FUNC_SEND || task->func == FUNC_RECV;
}

static int channels_of(const struct task *task)
{
    size_t bytes = task->count * type_size(task->type), per_channel = chunk_bytes() * (is_p2p(task) ? 4 : 1);
    size_t channels = (bytes + per_channel - 1) / per_channel;

    return channels < 1 ? 1 : channels > (size_t)task->comm->channels ? task->comm->channels : (int)channels;
}

/* Both ends of a send must come to the same channels. */
static int first_channel(const struct task *task)
{
    return is_p2p(task) ? (task->comm->rank + task->root) % task->comm->channels : 0;
}

static struct link *link_of(const struct task *task, int channel, int is_send)
{
    int count = task->comm->count, next = (task->comm->rank + 1) % count, before = (task->comm->rank + count - 1) % count;

    if (count == 1 && !is_p2p(task))
        return NULL;
    return link_publish(task->comm, is_p2p(task), channel, is_p2p(task) ? task->root : is_send ? next : before, is_send);
}

static ncclResult_t connect_links(const struct task *task, int finish)
{
    for (int index = 0; index < task->used_channels && is_p2p(task); index++) {
        struct link *link = link_of(task, (first_channel(task) + index) % task->comm->channels, task->func == FUNC_SEND);
        ncclResult_t result = link == NULL ? ncclSystemError : finish ? link_finish(link) : ncclSuccess;

        if (result != ncclSuccess)
            return result;
    }
    return ncclSuccess;
}

void proxy_truth(struct proxy_op *op)
{
    op->truth = truth_row(TRUTH_STEPS);
    op->truth->comm = op->link->comm->id;
    op->truth->number = op->number;
    op->truth->channel = (int16_t)op->link->channel;
    op->truth->is_send = (int16_t)op->link->is_send;
    op->truth->peer = op->link->peer;
    op->truth->total = op->total;
    op->truth->pid = op->pid;
}

static void append_proxy(struct work *work, struct lane *lane, struct link *link, uint64_t steps, uint32_t number)
{
    struct proxy_op *op;

    if (link == NULL || (link->net == NULL && link->box == NULL) || steps == 0 || (op = calloc(1, sizeof *op)) == NULL)
        return;
    op->link = link;
    op->number = number;
    op->pid = getpid();
    op->context = work->comm->profiler;
    op->total = (uint32_t)steps;
    op->mask = lane->task.mask;
    op->task_handle = lane->task.handle;
    if (link->box != NULL) {
        pxn_append(link, op);
        free(op);
        return;
    }
    proxy_truth(op);
    proxy_append(work->comm, op);
}

static void fill_lane(struct work *work, const struct task *task, int index, uint32_t number)
{
    struct lane *lane = &work->lane[work->lanes++];
    size_t part = (task->count + (size_t)task->used_channels - 1) / (size_t)task->used_channels;

    lane->task = *task;
    lane->channel = (first_channel(task) + index) % task->comm->channels;
    lane->start = (size_t)index * part;
    lane->elements = lane->start < task->count ? task->count - lane->start : 0;
    lane->elements = lane->elements < part ? lane->elements : part;
    lane->to = task->func != FUNC_RECV ? link_of(task, lane->channel, 1) : NULL;
    lane->from = task->func != FUNC_SEND ? link_of(task, lane->channel, 0) : NULL;
    lane_plan(lane);
    work->truth->total += (uint32_t)lane->pieces;
    append_proxy(work, lane, lane->to, lane->sends, number);
    append_proxy(work, lane, lane->from, lane->recvs, number);
}

/* One kernel: a single collective, or all sends and receives of the group on one stream. */
static void launch_work(struct task *first, struct task *end)
{
    struct ncclComm *comm = first->comm;
    uint32_t number = comm->works++;
    struct work *work;
    int lanes = 0;

    for (struct task *task = first; task != end; task = task->next)
        lanes += task->used_channels;
    work = calloc(1, sizeof *work + (size_t)lanes * sizeof *work->lane);
    if (work == NULL)
        return;
    work->comm = comm;
    work->truth = truth_row(TRUTH_WORKS);
    work->truth->comm = comm->id;
    work->truth->func = is_p2p(first) && first->next != end ? FUNC_SEND_RECV : (int32_t)first->func;
    work->truth->number = number;
    for (struct task *task = first; task != end; task = task->next)
        for (int index = 0; index < task->used_channels; index++)
            fill_lane(work, task, index, number);
    atomic_fetch_add(&comm->works_left, 1);
    testbed_enqueue(first->stream, work_run, work);
}

/* The tasks of one communicator, in the order of their calls. */
static void launch_plan(struct task *first)
{
    void *plan;

    profiler_launch(first->comm, first);
    plan = profiler_plan_start(first->comm, first);
    for (struct task *task = first; task != NULL; task = task->next)
        profiler_task_start(task, plan, task->used_channels);
    for (struct task *task = first; task != NULL;) {
        struct task *end = task->next;

        while (is_p2p(task) && end != NULL && is_p2p(end) && end->stream == task->stream)
            end = end->next;
        launch_work(task, end);
        task = end;
    }
    for (struct task *task = first; task != NULL; task = task->next)
        profiler_task_stop(task);
    profiler_plan_stop(plan);
}

/* Takes the tasks of the first task's communicator out of the list. */
static struct task *take_plan(struct task **tasks)
{
    struct ncclComm *comm = (*tasks)->comm;
    struct task *plan = NULL, **end = &plan;

    while (*tasks != NULL) {
        struct task *task = *tasks;

        if (task->comm != comm) {
            tasks = &task->next;
            continue;
        }
        *tasks = task->next;
        task->next = NULL;
        *end = task;
        end = &task->next;
    }
    return plan;
}

static void free_tasks(struct task *tasks)
{
    while (tasks != NULL) {
        struct task *next = tasks->next;

        free(tasks);
        tasks = next;
    }
}

static ncclResult_t launch_all(struct task *tasks)
{
    ncclResult_t result = ncclSuccess;

    for (int finish = 0; finish < 2; finish++)
        for (struct task *task = tasks; task != NULL && result == ncclSuccess; task = task->next)
            result = connect_links(task, finish);
    while (tasks != NULL && result == ncclSuccess) {
        struct task *plan = take_plan(&tasks);

        launch_plan(plan);
        free_tasks(plan);
    }
    free_tasks(tasks);
    return result;
}

ncclResult_t group_add(const struct task *given)
{
    struct task *task = calloc(1, sizeof *task);

    if (task == NULL)
        return ncclSystemError;
    *task = *given;
    task->used_channels = channels_of(task);
    if (group.first == NULL)
        group.first = task;
    else
        group.last->next = task;
    group.last = task;
    return ncclSuccess;
}

void group_enter(void)
{
    group.depth++;
}

ncclResult_t group_leave(void)
{
    struct task *tasks = group.first;
    ncclResult_t result;

    if (group.depth == 0)
        return ncclInvalidUsage;
    if (--group.depth > 0)
        return ncclSuccess;
    group.first = group.last = NULL;
    profiler_group_ending();
    result = launch_all(tasks);
    profiler_group_stop();
    return result;
}

void group_forget(void)
{
    if (group.depth > 0)
        group.depth--;
    free_tasks(group.first);
    group.first = group.last = NULL;
}

int group_depth(void)
{
    return group.depth;
}
