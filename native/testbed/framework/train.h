/* A small trainer: 1F1B pipeline, data parallel gradients, optional tensor parallel sums, on numbers that can be checked. */
#ifndef TESTBED_TRAIN_H
#define TESTBED_TRAIN_H

#include "bed.h"
#include "nccl.h"

struct options {
    int pp, dp, tp, microbatches, steps, shards, watchdog, split;
    long elements, compute_us;
    const char *load;
};

/* The place of a rank, in the order of Megatron: tensor parallel ranks are neighbours, then data parallel ones, then stages. */
struct layout { int rank, world, stage, replica, shard; };

struct trainer {
    struct options options;
    struct layout layout;
    ncclComm_t world, pipe, data, tensor;
    cudaStream_t compute, transfer, reduce;
    testbed_event_t computed;
    float **activations, **gradients; /* per microbatch */
    float *sums;                      /* of the gradients */
    double *loss;
    int step, wrong, exchanges; /* exchanges: with other stages, of this step */
};

/* What the executable calls: the library that brings the collectives with it. */
typedef int (*train_function)(const struct options *options);
TESTBED_API int testbed_train(const struct options *options);

int open_groups(struct trainer *trainer);
int close_groups(struct trainer *trainer);
int run_step(struct trainer *trainer);
void reduce_all(struct trainer *trainer);
void start_watchdog(struct trainer *trainer);
void expect(struct trainer *trainer, const char *what, double found, double expected);
/* What stage 0 of a replica feeds in. */
double fed(const struct trainer *trainer, int replica, int microbatch);

#define DATATYPE ncclFloat32

#endif
