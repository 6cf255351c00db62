/* Prints what a call costs: `cost warm|cold|line|clock|nothing|least|beyond CALLS`, one line of nanoseconds per call for each of many runs.
 * `nothing` and `least` are cold, and frame what a collector can add: an empty function, and one that reads the clock twice and
 * stores a word in shared memory. `beyond` calls on a communicator for which the log has no slot left. */
#define _GNU_SOURCE
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>

#include "nccl_double.h"
#include "ring/ticks.h"

#define RUNS 200 /* short ones: on a busy machine the fastest one is the only undisturbed one */
#define WALK (48u << 20)
#define MOST_COLD 4096
#define BEYOND 2000 /* more communicators than any log has slots for */

static ncclComm_t comm;
static char lines[10000][128]; /* a ring of text lines, as tools write that log each call as text */
static long line_count;

static double now_ns(void)
{
    struct timespec now;

    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec * 1e9 + (double)now.tv_nsec;
}

static void call(long each)
{
    ncclAllReduce(NULL, NULL, (size_t)each, 7, 0, comm, (void *)0x1234);
}

static void call_with_line(long each)
{
    struct timespec real, mono;
    char text[128];
    const char *rank = getenv("OMPI_COMM_WORLD_RANK");

    clock_gettime(CLOCK_REALTIME, &real);
    clock_gettime(CLOCK_MONOTONIC, &mono);
    snprintf(text, sizeof text, "[save_count %ld] [%ld.%09ld] [Rank %s] Fun %s Data %ld stream %p opCount %ld", line_count,
             (long)real.tv_sec, real.tv_nsec, rank ? rank : "0", "AllReduce", each, (void *)0x1234, each);
    strcpy(lines[line_count++ % 10000], text);
    call(each);
}

struct shim_hot shim_hot = {.ticks = FORENSICS_COUNTER_TSC};

uint64_t shim_monotonic_ns(void)
{
    return (uint64_t)now_ns();
}

/* The two clock reads that a record of enter and leave cannot do without. */
static void two_reads(long each)
{
    static volatile uint64_t sum;

    sum = (uint64_t)each + shim_now();
    sum = sum + shim_now();
}

static volatile uint64_t *shared;

static void nothing(long each)
{
    (void)each;
}

static void least(long each)
{
    uint64_t enter = shim_now();

    shared[each * 8] = enter;
    shared[each * 8 + 1] = shim_now();
}

static int compare(const void *a, const void *b)
{
    return (*(const double *)a > *(const double *)b) - (*(const double *)a < *(const double *)b);
}

static void warm(void (*each_call)(long), long calls)
{
    for (int run = 0; run < RUNS; run++) {
        double begin = now_ns();

        for (long each = 0; each < calls; each++)
            each_call(each);
        printf("%.2f\n", (now_ns() - begin) / (double)calls);
    }
}

/* The caches are walked between any two calls: what a call costs in the middle of a training step. */
static void cold(void (*each_call)(long), long calls)
{
    static double took[MOST_COLD];
    char *memory = malloc(WALK);
    unsigned sum = 0;

    calls = calls < MOST_COLD ? calls : MOST_COLD;
    memset(memory, 1, WALK);
    for (long each = 0; each < calls; each++) {
        double begin;

        for (size_t at = 0; at < WALK; at += 64)
            sum += (unsigned char)memory[at]++;
        begin = now_ns();
        each_call(each);
        took[each] = now_ns() - begin;
    }
    qsort(took, (size_t)calls, sizeof *took, compare);
    printf("%.2f\n", took[calls / 2]);
    if (sum == 42)
        puts("");
}

int main(int argc, char **argv)
{
    long calls = argc > 2 ? atol(argv[2]) : 1000000;
    ncclUniqueId id;

    shared = mmap(NULL, MOST_COLD * 64, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS | MAP_POPULATE, -1, 0);
    if (shared == MAP_FAILED)
        return 1;
    ncclGetUniqueId(&id);
    ncclCommInitRank(&comm, 8, id, 3);
    call(0);
    for (int each = 0; each < BEYOND && argc > 1 && strcmp(argv[1], "beyond") == 0; each++)
        ncclCommInitRank(&comm, 8, id, 3);
    if (argc > 1 && strcmp(argv[1], "cold") == 0)
        cold(call, calls);
    else if (argc > 1 && strcmp(argv[1], "nothing") == 0)
        cold(nothing, calls);
    else if (argc > 1 && strcmp(argv[1], "least") == 0)
        cold(least, calls);
    else if (argc > 1 && strcmp(argv[1], "clock") == 0)
        warm(two_reads, calls);
    else if (argc > 1 && strcmp(argv[1], "line") == 0)
        warm(call_with_line, calls);
    else
        warm(call, calls);
    return 0;
}
