/* The clocks and the name of a host, as its processes see them: preloaded into every rank, it answers for the C library.
 *
 * TESTBED_CLOCKS is "host=1,offset_us=250000,ppm=200,uptime_us=5000000;host=2,...". A host's clocks run `ppm` millionths fast from
 * the start of the job on; its real time is `offset_us` ahead besides, and it has been up `uptime_us` longer. Waiting is not
 * changed, nor is the CPU counter, which is the machine's. */
#define _GNU_SOURCE

#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

#include "bed.h"

#define SECOND 1000000000ll

static struct {
    long long offset_us, ppm, uptime_us;
    int64_t origin; /* CLOCK_MONOTONIC of the machine when the job's first process looked */
} skew;
static pthread_once_t once = PTHREAD_ONCE_INIT;

static int true_clock(clockid_t clock, struct timespec *now)
{
    return (int)syscall(SYS_clock_gettime, clock, now);
}

static int64_t true_monotonic(void)
{
    struct timespec now = {0};

    true_clock(CLOCK_MONOTONIC, &now);
    return (int64_t)now.tv_sec * SECOND + now.tv_nsec;
}

static void read_host(const char *text)
{
    int host = -1, used = 0;
    long long value;
    char name[16];

    skew.offset_us = skew.ppm = skew.uptime_us = 0;
    for (; sscanf(text, "%15[a-z_]=%lld%n", name, &value, &used) == 2; text += text[used] == ',' ? used + 1 : used) {
        if (strcmp(name, "host") == 0)
            host = (int)value;
        else if (strcmp(name, "offset_us") == 0)
            skew.offset_us = value;
        else if (strcmp(name, "ppm") == 0)
            skew.ppm = value;
        else if (strcmp(name, "uptime_us") == 0)
            skew.uptime_us = value;
        else
            break;
    }
    if (*text != '\0') {
        fprintf(stderr, "testbed: TESTBED_CLOCKS: cannot read %s\n", text);
        _exit(70);
    }
    if (host != bed_host())
        skew.offset_us = skew.ppm = skew.uptime_us = 0;
}

static void read_all(void)
{
    const char *given = getenv("TESTBED_CLOCKS");
    _Atomic int64_t *origin = bed_map("clocks", sizeof *origin);
    int64_t none = 0, now = true_monotonic();
    char text[512], *rest = NULL;

    skew.origin = atomic_compare_exchange_strong(origin, &none, now) ? now : none;
    snprintf(text, sizeof text, "%s", given != NULL ? given : "");
    for (char *one = strtok_r(text, ";", &rest); one != NULL; one = strtok_r(NULL, ";", &rest)) {
        read_host(one);
        if (skew.offset_us != 0 || skew.ppm != 0 || skew.uptime_us != 0)
            return;
    }
}

/* How far the clock is ahead of the machine's. */
static int64_t ahead(clockid_t clock)
{
    int64_t drift = (true_monotonic() - skew.origin) / 1000 * skew.ppm / 1000;

    switch (clock) {
    case CLOCK_REALTIME:
    case CLOCK_REALTIME_COARSE:
        return drift + skew.offset_us * 1000;
    case CLOCK_MONOTONIC:
    case CLOCK_MONOTONIC_RAW:
    case CLOCK_MONOTONIC_COARSE:
    case CLOCK_BOOTTIME:
        return drift + skew.uptime_us * 1000;
    default:
        return 0; /* of a process or a thread */
    }
}

TESTBED_API int clock_gettime(clockid_t clock, struct timespec *now)
{
    int64_t shifted;

    if (true_clock(clock, now) != 0)
        return -1;
    pthread_once(&once, read_all);
    shifted = (int64_t)now->tv_sec * SECOND + now->tv_nsec + ahead(clock);
    now->tv_sec = (time_t)(shifted / SECOND);
    now->tv_nsec = (long)(shifted % SECOND);
    return 0;
}

TESTBED_API int gettimeofday(struct timeval *restrict now, void *restrict zone)
{
    struct timespec precise;

    (void)zone;
    clock_gettime(CLOCK_REALTIME, &precise);
    now->tv_sec = precise.tv_sec;
    now->tv_usec = precise.tv_nsec / 1000;
    return 0;
}

TESTBED_API time_t time(time_t *where)
{
    struct timespec now;

    clock_gettime(CLOCK_REALTIME, &now);
    if (where != NULL)
        *where = now.tv_sec;
    return now.tv_sec;
}

TESTBED_API int gethostname(char *name, size_t size)
{
    if ((size_t)snprintf(name, size, "host%d", bed_host()) < size)
        return 0;
    errno = ENAMETOOLONG;
    return -1;
}
