/* A kernel of the library: its lanes move side by side, each in order, until all are done or the communicator is aborted. */
#define _GNU_SOURCE

#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "comm.h"
#include "fault.h"
#include "profiler.h"

static const void *source(const struct lane *lane, const struct piece *piece)
{
    return (const char *)lane->task.in + piece->in * type_size(lane->task.type);
}

static void *target(const struct lane *lane, const struct piece *piece)
{
    return (char *)lane->task.out + piece->out * type_size(lane->task.type);
}

static int can_move(const struct lane *lane, const struct piece *piece)
{
    struct slots *in = piece->receives ? lane->from->slots : NULL, *out = piece->sends ? lane->to->slots : NULL;

    return (in == NULL || atomic_load(&in->tail) > atomic_load(&in->head)) &&
           (out == NULL || atomic_load(&out->tail) - atomic_load(&out->head) < STEPS);
}

/* Puts the piece's result at `to`: received, combined with what is here, or what is here. */
static void produce(void *to, const struct lane *lane, const struct piece *piece, const char *received, size_t bytes)
{
    if (piece->reduces)
        reduce_into(to, received, source(lane, piece), bytes / type_size(lane->task.type), lane->task.type, lane->task.op);
    else if (piece->receives)
        memmove(to, received, bytes);
    else if (bytes > 0 && to != source(lane, piece))
        memmove(to, source(lane, piece), bytes);
}

static void move_piece(struct lane *lane, const struct piece *piece)
{
    size_t bytes = piece->elements * type_size(lane->task.type);
    struct slots *in = piece->receives ? lane->from->slots : NULL, *out = piece->sends ? lane->to->slots : NULL;
    size_t head = in != NULL ? atomic_load(&in->head) % STEPS : 0, tail = out != NULL ? atomic_load(&out->tail) % STEPS : 0;
    const char *received = in != NULL ? in->data + head * chunk_bytes() : NULL;
    char *slot = out != NULL ? out->data + tail * chunk_bytes() : NULL;

    if (in != NULL && (size_t)in->sizes[head] < bytes) /* the peer meant another size: what came is what there is */
        bytes = (size_t)in->sizes[head];
    if (slot != NULL)
        produce(slot, lane, piece, received, bytes);
    if (piece->keeps)
        produce(target(lane, piece), lane, piece, received, bytes);
    if (out != NULL) {
        atomic_store(&out->sizes[tail], (int32_t)bytes);
        atomic_fetch_add(&out->tail, 1);
    }
    if (in != NULL)
        atomic_fetch_add(&in->head, 1);
}

static uint64_t gpu_clock(void)
{
    struct timespec now;

    clock_gettime(CLOCK_REALTIME, &now);
    return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

/* 1 when the lane is done. */
static int move_lane(struct work *work, struct lane *lane)
{
    struct piece piece;

    while (lane->at < lane->pieces) {
        lane_piece(lane, lane->at, &piece);
        if (!can_move(lane, &piece))
            return 0;
        move_piece(lane, &piece);
        truth_count(&work->truth->moved);
        bed_moved();
        if (++lane->at == lane->pieces)
            profiler_kernel_stop(lane, gpu_clock());
    }
    return 1;
}

static void start(struct work *work)
{
    fault_jitter();
    work->started = 1;
    atomic_store(&work->truth->started, 1);
    for (int index = 0; index < work->lanes; index++)
        if (work->lane[index].pieces > 0)
            profiler_kernel_start(&work->lane[index], gpu_clock());
}

static void average(const struct task *task)
{
    size_t elements = task->count;

    if (task->op != ncclAvg || task->func < FUNC_REDUCE || task->func > FUNC_ALL_REDUCE || task->func == FUNC_ALL_GATHER)
        return;
    if (task->func != FUNC_REDUCE || task->comm->rank == task->root)
        divide_by(task->out, elements, task->type, task->comm->count);
}

int work_run(void *argument)
{
    struct work *work = argument;
    int waiting = 0;

    if (!work->started)
        start(work);
    for (int index = 0; index < work->lanes; index++)
        waiting += !move_lane(work, &work->lane[index]);
    if (waiting > 0 && !atomic_load(&work->comm->aborted))
        return 0;
    if (waiting == 0 && work->lanes > 0)
        average(&work->lane[0].task);
    atomic_store(&work->truth->finished, waiting == 0);
    atomic_fetch_sub(&work->comm->works_left, 1);
    free(work);
    return 1;
}
