/* What a fork costs: `forks COUNT` forks children that end at once, and prints the minor page faults and nanoseconds of one. */
#define _GNU_SOURCE
#include <stdio.h>
#include <stdlib.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

static double now_ns(void)
{
    struct timespec now;

    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec * 1e9 + (double)now.tv_nsec;
}

static long faults(int who)
{
    struct rusage usage;

    getrusage(who, &usage);
    return usage.ru_minflt;
}

static void fork_once(void)
{
    pid_t child = fork();

    if (child == 0)
        exit(0);
    waitpid(child, NULL, 0);
}

int main(int argc, char **argv)
{
    int count = argc > 1 ? atoi(argv[1]) : 100;
    double start, best = 1e18;
    long before;

    fork_once(); /* what the first one costs alone */
    before = faults(RUSAGE_CHILDREN) + faults(RUSAGE_SELF);
    for (int each = 0; each < count; each++) {
        start = now_ns();
        fork_once();
        start = now_ns() - start;
        best = start < best ? start : best;
    }
    printf("%.2f %.0f\n", (double)(faults(RUSAGE_CHILDREN) + faults(RUSAGE_SELF) - before) / count, best);
    return 0;
}
