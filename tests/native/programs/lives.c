/* What a random program does besides single calls: groups, threads, forks, signals, and its end. */
#define _GNU_SOURCE
#include <dirent.h>
#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <unistd.h>

#include "program.h"

#define THREADS 7

static struct thread {
    pthread_t thread;
    struct worker worker;
    bool is_taken, is_running;
} threads[THREADS + 1];
static pthread_key_t last_key;

/* Fewer misfortunes than a program could have: `why` are those left out. */
bool may(enum kind kind)
{
    const char *without = getenv("PROGRAMS_WITHOUT");

    return without == NULL || strchr(without, (int)kind) == NULL;
}

/* The random numbers of a thread follow from its place in the program. */
void worker_open(struct worker *self, int slot)
{
    bool reuses = worker != NULL && worker->reuses;

    *self = (struct worker){.slot = slot, .random = mix(program_seed * SLOTS + (uint64_t)slot), .reuses = reuses};
    worker = self;
    self->style = (int)roll(may(WITH_BYPASSES) ? 5 : 2);
    if (job.is_one_of_many) /* who asks the loader and calls from elsewhere does not say which NCCL is meant */
        self->style = 0;
    job.strict.thread(slot);
}

void do_group_end(void)
{
    (void)CALL(GroupEnd, );
    worker->depth -= worker->depth > 0;
}

/* A group with its communicators in the frame of a function that returns. */
static __attribute__((noinline)) void framed_group(void)
{
    ncclComm_t frame[3] = {garbage(), garbage(), garbage()};

    (void)CALL(GroupStart, );
    for (int each = 0; each < 3; each++) {
        do_making(&frame[each]);
        places_settle();
        if (roll(4) == 0)
            do_ending();
        places_settle(); /* before the page of what was ended serves again */
    }
    do_group_end();
    while (job.strict.holds(&frame[0]) || job.strict.holds(&frame[1]) || job.strict.holds(&frame[2]))
        do_group_end();
    places_settle();
}

static __attribute__((noinline)) void soil_stack(void)
{
    uintptr_t soil[512];

    for (int each = 0; each < 512; each++)
        soil[each] = (uintptr_t)garbage() ^ (roll(2) ? 0 : 0xdeadbeefull << 32);
    __asm__ volatile("" : : "r"(soil) : "memory");
}

static void do_group(void)
{
    if (worker->depth < 3 && roll(2) == 0) {
        if (CALL(GroupStart, ) == SUCCESS)
            worker->depth++;
    } else if (roll(8) == 0) {
        (void)CALL(GroupSimulateEnd, roll(2) ? &job : NULL);
        worker->depth -= worker->depth > 0;
    } else if (worker->depth > 0 || roll(4) == 0) {
        do_group_end();
    }
}

static void do_rarity(void)
{
    uint32_t sort = roll(8);

    if (sort == 0 && may(WITH_PROBES))
        do_probe();
    else if (sort == 1 && may(WITH_SIGNALS))
        raise(SIGUSR2);
    else if (sort <= 4 && worker->slot == 0 && may(WITH_THREADS))
        start_thread();
    else if (sort == 5 && worker->slot < CHILD_SLOTS && may(WITH_FORKS))
        do_fork();
}

void step(void)
{
    uint32_t sort = roll(100);

    if (sort < 34)
        do_operation();
    else if (sort < 58)
        do_group();
    else if (sort < 72)
        do_making(NULL);
    else if (sort < 82)
        do_ending();
    else if (sort < 92)
        do_asking();
    else if (sort < 96)
        framed_group();
    else
        do_rarity();
    places_settle();
    if (roll(8) == 0)
        soil_stack();
}

/* --- Threads ------------------------------------------------------------------------------------------------------------ */

/* When the thread ends, perhaps after the collector has let go of it. */
static void last_of_thread(void *self)
{
    worker = self;
    tape("key\n");
    do_operation();
    do_group_end();
    places_settle();
}

static void *live(void *self)
{
    struct thread *mine = self;
    ncclComm_t given[COMMS];
    int count = mine->worker.comm_count, slot = mine->worker.slot, steps;

    memcpy(given, mine->worker.comms, sizeof given);
    worker = &mine->worker;
    worker_open(&mine->worker, slot);
    for (int each = 0; each < count; each++)
        keep_comm(given[each]);
    if (roll(2) == 0)
        pthread_setspecific(last_key, worker);
    steps = 10 + (int)roll(50);
    for (int each = 0; each < steps; each++)
        step();
    if (roll(4) == 0)
        pthread_exit(NULL); /* with a group open, perhaps */
    while (worker->depth > 0)
        do_group_end();
    places_settle();
    return NULL;
}

/* A communicator may go along: from then on it is the other thread's. */
void start_thread(void)
{
    for (int slot = 1; slot <= THREADS; slot++) {
        struct thread *other = &threads[slot];

        if (other->is_taken)
            continue;
        other->is_taken = true;
        other->worker = (struct worker){.slot = slot, .reuses = worker->reuses};
        if (worker->comm_count > 0 && worker->depth == 0) {
            other->worker.comms[other->worker.comm_count++] = worker->comms[--worker->comm_count];
            job.strict.hand_over(other->worker.comms[0], slot);
        }
        tape("starts thread %d\n", slot);
        other->is_running = pthread_create(&other->thread, NULL, live, other) == 0;
        return;
    }
}

void join_threads(void)
{
    for (int slot = 1; slot <= THREADS; slot++) {
        if (threads[slot].is_running)
            pthread_join(threads[slot].thread, NULL);
        threads[slot].is_running = false;
    }
}

/* --- Forks -------------------------------------------------------------------------------------------------------------- */

static void run_leaf(void)
{
    char seed[32];

    snprintf(seed, sizeof seed, "%llu", (unsigned long long)worker->random % 1000000);
    execl("/proc/self/exe", "leaf", "leaf", seed, (char *)NULL);
    _exit(98);
}

/* The child uses what it inherited: communicators, an open group. */
static void live_as_child(void)
{
    int steps = (int)roll(30);

    worker->slot += CHILD_SLOTS;
    job.strict.thread(worker->slot);
    for (int each = 1; each <= THREADS; each++)
        threads[each].is_running = false;
    for (int each = 0; each < worker->comm_count; each++)
        job.strict.hand_over(worker->comms[each], worker->slot);
    if (roll(3) == 0 && worker->slot == CHILD_SLOTS) /* of the main thread: one at a time writes to stdout */
        run_leaf();
    for (int each = 0; each < steps; each++)
        step();
    end_program(roll(3) ? 7 : roll(9));
}

void do_fork(void)
{
    int status = 0;
    pid_t child = fork();

    if (child == 0)
        live_as_child();
    while (waitpid(child, &status, 0) < 0 && errno == EINTR)
        continue;
    tape("child %x\n", status);
}

/* --- Signals ------------------------------------------------------------------------------------------------------------ */

/* In the middle of a call, or between two. */
static void on_signal(int number)
{
    int announced = job.strict.announce(NO_FUNCTION), error = errno;

    tape("signal %d\n", number);
    if (roll(3) == 0)
        do_asking();
    else if (roll(3) == 0)
        do_operation();
    else if (roll(3) == 0)
        do_ending();
    (void)job.strict.announce(announced);
    errno = error;
}

static void on_alarm(int number)
{
    (void)number;
}

void signals_open(void)
{
    struct sigaction action = {.sa_handler = on_signal, .sa_flags = SA_RESTART | SA_NODEFER}, tick = {.sa_handler = on_alarm};
    struct itimerval often = {{0, 300}, {0, 300}};

    (void)pthread_key_create(&last_key, last_of_thread);
    sigaction(SIGUSR1, &action, NULL);
    sigaction(SIGUSR2, &action, NULL);
    sigaction(SIGALRM, &tick, NULL);
    if (may(WITH_SIGNALS) && roll(8) == 0)
        setitimer(ITIMER_REAL, &often, NULL);
}
