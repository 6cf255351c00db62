/* Works every slot and record of the writer from several threads, for the sanitizers: `states ROUNDS [fork]`. */
#define _GNU_SOURCE
#include <pthread.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

#include "ring/log.h"

static int rounds;

#define SET(field, value) __atomic_store_n(&(field), (value), __ATOMIC_RELAXED)

static void one_proxy(uint32_t number, struct shim_comm *comm)
{
    struct shim_proxy_op *op = shim_proxy_op_claim();
    uint64_t now = shim_now();

    if (op == NULL)
        return;
    op->comm = shim_comm_slot(comm);
    op->comm_generation = comm != NULL ? (uint8_t)comm->generation : 0;
    op->channel = (uint8_t)(number % 16);
    op->peer = (int32_t)(number % 4);
    op->direction = number % 2;
    SET(op->op_number, number + 1);
    SET(op->total, 4);
    SET(op->start, now);
    shim_proxy_op_publish(op);
    for (uint32_t step = 1; step <= 4; step++) {
        SET(op->posted, step);
        SET(op->gpu_ready, step);
        SET(op->transmitted, step);
        SET(op->done, step);
        SET(op->consumed, step);
        SET(op->last_change, shim_now());
    }
    shim_record_proxy(op, SHIM_PROXY_DONE, SHIM_RING_FLOWS, shim_now());
    if (number % 64 != 63) /* some stay in progress */
        shim_proxy_op_end(op);
}

static void one_pair(uint32_t number)
{
    struct shim_queue_pair *qp = shim_queue_pair_claim(0xC0, number % 40);

    if (qp == NULL)
        return;
    SET(qp->signaled_posted, 2);
    SET(qp->oldest_post, shim_now());
    shim_record_qp_event(qp, SHIM_QP_CREATED, shim_now());
    shim_epoch_add(qp, shim_now(), 1000, 10);
    if (shim_queue_pair_find(0xC0, number % 40) != NULL && number % 2)
        shim_queue_pair_end(qp);
}

static void *work(void *which)
{
    struct shim_comm *comm = shim_comm_claim(0x1234, 0, 1, 4);

    shim_comm_bind(comm, 0x1000 + (uint64_t)which * 16);
    for (int round = 0; round < rounds; round++) {
        one_proxy((uint32_t)round, comm);
        if (which == NULL)
            one_pair((uint32_t)round);
        (void)shim_comm_find(0x1000);
        shim_cover_hook(SHIM_CALLED, SHIM_HOOK_PROFILER_COLL);
    }
    shim_comm_close(comm, SHIM_COMM_DESTROYED);
    return NULL;
}

/* In the middle of it all: the child begins a log of its own, or has none when there is no room. */
static int fork_and_work(void)
{
    int status = 0;
    pid_t child = fork();

    if (child == 0) {
        (void)shim_start();
        (void)work(NULL);
        _exit(0);
    }
    waitpid(child, &status, 0);
    return status;
}

int main(int argc, char **argv)
{
    pthread_t threads[4];
    int status = 0;

    rounds = argc > 1 ? atoi(argv[1]) : 1000;
    if (!shim_start() && argc < 3)
        return 1;
    for (size_t each = 0; each < 4; each++)
        pthread_create(&threads[each], NULL, work, (void *)each);
    if (argc > 2)
        status = fork_and_work();
    for (size_t each = 0; each < 4; each++)
        pthread_join(threads[each], NULL);
    usleep(250000); /* the heartbeat looks twice at what is left in progress */
    return status;
}
