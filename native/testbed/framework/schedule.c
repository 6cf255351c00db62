/* One step of the 1F1B schedule: warm-up forwards, then one forward and one backward in turn, then the rest backwards. */
#define _GNU_SOURCE

#include <signal.h>
#include <stdlib.h>

#include "fault.h"
#include "train.h"

struct transform { float *values; long count; float fed; int feeds; float *into; };

/* The arithmetic of a layer, on the stream: set or raise the values, and add them to a sum where there is one. */
static int transform(void *argument)
{
    struct transform *work = argument;

    for (long index = 0; index < work->count; index++) {
        work->values[index] = (work->feeds ? work->fed : work->values[index]) + 1;
        if (work->into != NULL)
            work->into[index] += work->values[index];
    }
    free(work);
    return 1;
}

static void enqueue_layer(struct trainer *trainer, float *values, int feeds, double value, float *into)
{
    struct transform *work = calloc(1, sizeof *work);

    if (work == NULL)
        abort();
    *work = (struct transform){values, trainer->options.elements, (float)value, feeds, into};
    testbed_launch(trainer->compute, trainer->options.compute_us);
    testbed_enqueue(trainer->compute, transform, work);
    if (trainer->options.tp > 1)
        ncclAllReduce(values, values, (size_t)trainer->options.elements, DATATYPE, ncclAvg, trainer->tensor, trainer->compute);
    testbed_event_record(trainer->computed, trainer->compute);
}

static void look_out(void)
{
    fault_jitter();
    if (fault_now(FAULT_KILL) != NULL)
        raise(SIGKILL);
    if (fault_now(FAULT_STOP) != NULL)
        raise(SIGSTOP);
}

static void forward(struct trainer *trainer, int microbatch)
{
    atomic_store(&bed_place()->microbatch, microbatch);
    atomic_store(&bed_place()->doing, BED_FORWARD);
    fault_jitter();
    enqueue_layer(trainer, trainer->activations[microbatch], trainer->layout.stage == 0,
                  fed(trainer, trainer->layout.replica, microbatch), NULL);
}

static void backward(struct trainer *trainer, int microbatch)
{
    int is_last = trainer->layout.stage == trainer->options.pp - 1;
    double top = fed(trainer, trainer->layout.replica, microbatch) + trainer->options.pp;
    const float *activations = trainer->activations[microbatch];

    atomic_store(&bed_place()->microbatch, microbatch);
    atomic_store(&bed_place()->doing, BED_BACKWARD);
    look_out();
    if (is_last) {
        testbed_stream_synchronize(trainer->compute);
        expect(trainer, "an activation", activations[trainer->options.elements - 1], top);
    }
    enqueue_layer(trainer, trainer->gradients[microbatch], is_last, top, trainer->sums);
}

static int is_stage(const struct trainer *trainer, int stage)
{
    return stage >= 0 && stage < trainer->options.pp;
}

/* Neighbours that both receive before they send wait for each other. */
static void exchange_in_turn(struct trainer *trainer, float *out, int to, float *in, int from)
{
    size_t count = (size_t)trainer->options.elements;

    if (in != NULL)
        ncclRecv(in, count, DATATYPE, from, trainer->pipe, trainer->transfer);
    if (out != NULL)
        ncclSend(out, count, DATATYPE, to, trainer->pipe, trainer->transfer);
}

/* Sends and receives of one moment are one group, so that neighbours cannot wait for each other. NULL: nothing to move. */
static void exchange(struct trainer *trainer, float *out, int to, float *in, int from)
{
    size_t count = (size_t)trainer->options.elements;
    int sends = out != NULL && is_stage(trainer, to), receives = in != NULL && is_stage(trainer, from);

    if (!sends && !receives)
        return;
    trainer->exchanges++;
    if (fault_on_pair(FAULT_SKIP, trainer->exchanges) != NULL)
        return;
    testbed_stream_wait_event(trainer->transfer, trainer->computed);
    if (fault_on_pair(FAULT_REORDER, trainer->exchanges) != NULL) {
        exchange_in_turn(trainer, sends ? out : NULL, to, receives ? in : NULL, from);
    } else {
        ncclGroupStart();
        if (sends)
            ncclSend(out, count, DATATYPE, to, trainer->pipe, trainer->transfer);
        if (receives)
            ncclRecv(in, count, DATATYPE, from, trainer->pipe, trainer->transfer);
        ncclGroupEnd();
    }
    if (receives)
        testbed_stream_synchronize(trainer->transfer);
}

static float *at(float **buffers, int microbatch, int count)
{
    return microbatch >= 0 && microbatch < count ? buffers[microbatch] : NULL;
}

int run_step(struct trainer *trainer)
{
    int count = trainer->options.microbatches, stage = trainer->layout.stage, next = stage + 1, before = stage - 1;
    int warm_up = trainer->options.pp - stage - 1 < count ? trainer->options.pp - stage - 1 : count;
    float **activations = trainer->activations, **gradients = trainer->gradients;

    trainer->exchanges = 0;
    for (long index = 0; index < trainer->options.elements; index++)
        trainer->sums[index] = 0;
    for (int ahead = 0; ahead < warm_up; ahead++) {
        exchange(trainer, NULL, next, activations[ahead], before);
        forward(trainer, ahead);
        exchange(trainer, activations[ahead], next, NULL, before);
    }
    exchange(trainer, NULL, next, at(activations, warm_up, count), before);
    for (int turn = 0; turn < count; turn++) {
        int ahead = turn + warm_up;

        if (ahead < count)
            forward(trainer, ahead);
        exchange(trainer, at(activations, ahead, count), next, gradients[turn], next);
        backward(trainer, turn);
        exchange(trainer, gradients[turn], before, at(activations, ahead + 1, count), before);
    }
    testbed_stream_synchronize(trainer->compute);
    testbed_stream_synchronize(trainer->transfer);
    reduce_all(trainer);
    return 0;
}
