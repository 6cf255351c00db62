/* The loop of a rank, and what it checks: every sum is known, so a transport that loses or mixes data is found out. */
#define _GNU_SOURCE

#include "train.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "fault.h"

void expect(struct trainer *trainer, const char *what, double found, double expected)
{
    if (found == expected)
        return;
    if (trainer->wrong++ == 0)
        printf("rank %d step %d: %s is %g, not %g\n", trainer->layout.rank, trainer->step, what, found, expected);
    fflush(stdout);
}

double fed(const struct trainer *trainer, int replica, int microbatch)
{
    return trainer->step + microbatch + 10.0 * replica;
}

static void place(struct trainer *trainer)
{
    struct layout *at = &trainer->layout;
    const struct options *options = &trainer->options;

    at->rank = bed_rank();
    at->world = options->pp * options->dp * options->tp;
    at->shard = at->rank % options->tp;
    at->replica = at->rank / options->tp % options->dp;
    at->stage = at->rank / (options->tp * options->dp);
}

static float **buffers(const struct options *options)
{
    float **made = calloc((size_t)options->microbatches, sizeof *made);

    for (int microbatch = 0; made != NULL && microbatch < options->microbatches; microbatch++)
        made[microbatch] = calloc((size_t)options->elements, sizeof **made);
    return made;
}

static void free_buffers(float **made, int count)
{
    for (int index = 0; index < count; index++)
        free(made[index]);
    free(made);
}

/* A call with a wrong size reads further than the others: the room is there, as it is in a caching allocator. */
static void open_memory(struct trainer *trainer)
{
    trainer->activations = buffers(&trainer->options);
    trainer->gradients = buffers(&trainer->options);
    trainer->sums = calloc((size_t)trainer->options.elements * 8, sizeof *trainer->sums);
    trainer->loss = calloc(1, sizeof *trainer->loss);
    testbed_stream_create(&trainer->compute);
    testbed_stream_create(&trainer->transfer);
    testbed_stream_create(&trainer->reduce);
    testbed_event_create(&trainer->computed);
}

static void close_memory(struct trainer *trainer)
{
    testbed_stream_destroy(trainer->compute);
    testbed_stream_destroy(trainer->transfer);
    testbed_stream_destroy(trainer->reduce);
    testbed_event_destroy(trainer->computed);
    free_buffers(trainer->activations, trainer->options.microbatches);
    free_buffers(trainer->gradients, trainer->options.microbatches);
    free(trainer->sums);
    free(trainer->loss);
}

/* What a fault does to the host code of its rank before the gradients are reduced. */
static void suffer(void)
{
    const struct fault *late = fault_now(FAULT_LATE);

    fault_jitter();
    if (late != NULL)
        usleep((useconds_t)late->us);
    if (fault_now(FAULT_NEVER_CALLS) == NULL)
        return;
    atomic_store(&bed_place()->doing, BED_BLOCKED);
    for (;;)
        pause();
}

static void reduce_gradients(struct trainer *trainer)
{
    size_t count = (size_t)trainer->options.elements, part = count / (size_t)trainer->options.dp;
    float *own = trainer->sums + part * (size_t)trainer->layout.replica;

    if (fault_now(FAULT_SKIP) != NULL)
        return;
    if (fault_now(FAULT_WRONG_SIZE) != NULL)
        count *= 4;
    if (!trainer->options.shards) {
        ncclAllReduce(trainer->sums, trainer->sums, count, DATATYPE, ncclSum, trainer->data, trainer->reduce);
        return;
    }
    ncclReduceScatter(trainer->sums, own, part, DATATYPE, ncclSum, trainer->data, trainer->reduce);
    ncclAllGather(own, trainer->sums, part, DATATYPE, trainer->data, trainer->reduce);
}

static void reduce_loss(struct trainer *trainer)
{
    *trainer->loss = trainer->layout.rank + trainer->step;
    ncclAllReduce(trainer->loss, trainer->loss, 1, ncclFloat64, ncclSum, trainer->world, trainer->reduce);
}

static void check_sums(struct trainer *trainer)
{
    const struct options *options = &trainer->options;
    int world = trainer->layout.world;
    long whole = options->elements / options->dp * options->dp;
    double expected = 0;

    for (int replica = 0; replica < options->dp; replica++)
        for (int microbatch = 0; microbatch < options->microbatches; microbatch++)
            expected += fed(trainer, replica, microbatch) + 2 * options->pp - trainer->layout.stage;
    for (long index = 0; index < (options->shards ? whole : options->elements); index++)
        expect(trainer, "a gradient", trainer->sums[index], expected);
    expect(trainer, "the loss", *trainer->loss, world * (world - 1) / 2.0 + (double)world * trainer->step);
}

/* Both reductions go on one stream, so their order matters on every rank. */
void reduce_all(struct trainer *trainer)
{
    atomic_store(&bed_place()->doing, BED_GRADIENTS);
    suffer();
    if (fault_now(FAULT_REORDER) != NULL) {
        reduce_loss(trainer);
        reduce_gradients(trainer);
    } else {
        reduce_gradients(trainer);
        reduce_loss(trainer);
    }
    atomic_store(&bed_place()->doing, BED_BARRIER);
    testbed_stream_synchronize(trainer->reduce);
    check_sums(trainer);
}

static void report(const struct trainer *trainer, uint64_t took)
{
    printf("rank %d step %d done in %llu us\n", trainer->layout.rank, trainer->step, (unsigned long long)took);
    fflush(stdout);
    bed_moved();
}

static int finish(struct trainer *trainer)
{
    int status = close_groups(trainer) == 0 ? 0 : 5;

    close_memory(trainer);
    if (status == 0 && trainer->wrong > 0)
        status = 3;
    atomic_store(&bed_place()->doing, BED_DONE);
    printf("rank %d ends with %d\n", trainer->layout.rank, status);
    fflush(stdout);
    return status;
}

int testbed_train(const struct options *options)
{
    struct trainer trainer = {.options = *options};

    place(&trainer);
    atomic_store(&bed_place()->pid, getpid());
    atomic_store(&bed_place()->doing, BED_STARTING);
    open_memory(&trainer);
    if (open_groups(&trainer) != 0)
        return 74;
    start_watchdog(&trainer);
    for (trainer.step = 0; trainer.step < options->steps; trainer.step++) {
        uint64_t start = bed_now_us();

        atomic_store(&bed_place()->step, trainer.step);
        run_step(&trainer);
        report(&trainer, bed_now_us() - start);
    }
    return finish(&trainer);
}
