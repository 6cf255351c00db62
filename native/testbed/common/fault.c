#define _GNU_SOURCE

#include "fault.h"

#include <limits.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "bed.h"

#define FAULTS 8

static const char *const NAMES[FAULT_KINDS] = {
    "never_calls", "compute_stall", "credit_withheld", "link_down", "link_slow", "cqe_error", "kill",
    "stop",        "skip",          "reorder",         "wrong_size", "late",     "jitter",
};

static struct fault faults[FAULTS];
static int known;
static pthread_once_t once = PTHREAD_ONCE_INIT;

static void refuse(const char *text)
{
    fprintf(stderr, "testbed: TESTBED_FAULT: cannot read %s\n", text);
    _exit(70);
}

static enum fault_kind kind_named(const char *name)
{
    for (int kind = 0; kind < FAULT_KINDS; kind++)
        if (strcmp(NAMES[kind], name) == 0)
            return (enum fault_kind)kind;
    refuse(name);
    return FAULT_KINDS;
}

static void set(struct fault *fault, const char *name, long value)
{
    const struct {
        const char *name;
        int *number;
        long *wide;
    } fields[] = {
        {"rank", &fault->rank, NULL}, {"peer", &fault->peer, NULL},   {"step", &fault->step, NULL},
        {"us", NULL, &fault->us},     {"ms", NULL, &fault->ms},       {"until", &fault->until, NULL},
        {"after", NULL, &fault->after}, {"status", NULL, &fault->status}, {"oneway", &fault->oneway, NULL},
        {"pair", &fault->pair, NULL},
    };

    for (size_t field = 0; field < sizeof fields / sizeof *fields; field++) {
        if (strcmp(fields[field].name, name) != 0)
            continue;
        if (fields[field].number != NULL)
            *fields[field].number = (int)value;
        else
            *fields[field].wide = value;
        return;
    }
    refuse(name);
}

static void read_fault(char *text)
{
    struct fault *fault = &faults[known];
    char *rest = NULL, *colon = strchr(text, ':');

    if (known == FAULTS)
        refuse(text);
    if (colon != NULL)
        *colon = '\0';
    *fault = (struct fault){.kind = kind_named(text), .rank = -1, .peer = -1, .until = INT_MAX, .status = 10};
    for (char *pair = colon ? strtok_r(colon + 1, ",", &rest) : NULL; pair != NULL; pair = strtok_r(NULL, ",", &rest)) {
        char *equals = strchr(pair, '=');

        if (equals == NULL)
            refuse(pair);
        *equals = '\0';
        set(fault, pair, strtol(equals + 1, NULL, 10));
    }
    known++;
}

static void read_all(void)
{
    static char text[1024];
    const char *given = getenv("TESTBED_FAULT");
    char *rest = NULL;

    snprintf(text, sizeof text, "%s", given != NULL ? given : "");
    for (char *one = strtok_r(text, ";", &rest); one != NULL; one = strtok_r(NULL, ";", &rest))
        read_fault(one);
}

static int acts(const struct fault *fault, enum fault_kind kind)
{
    int step;

    if (fault->kind != kind)
        return 0;
    step = atomic_load(&bed_place()->step);
    return step >= fault->step && step <= fault->until;
}

const struct fault *fault_on_pair(enum fault_kind kind, int pair)
{
    pthread_once(&once, read_all);
    for (int index = 0; index < known; index++) {
        const struct fault *fault = &faults[index];

        if (acts(fault, kind) && fault->pair == pair && (fault->rank < 0 || fault->rank == bed_rank()))
            return fault;
    }
    return NULL;
}

const struct fault *fault_now(enum fault_kind kind)
{
    return fault_on_pair(kind, 0);
}

static int joins(const struct fault *fault, int one, int other)
{
    int here = fault->rank < 0 || fault->rank == one;

    return here && (fault->peer < 0 || fault->peer == other);
}

const struct fault *fault_on_link(enum fault_kind kind, int other)
{
    int self = bed_rank();

    pthread_once(&once, read_all);
    for (int index = 0; index < known && self != other; index++) {
        const struct fault *fault = &faults[index];

        if (acts(fault, kind) && (joins(fault, self, other) || (!fault->oneway && joins(fault, other, self))))
            return fault;
    }
    return NULL;
}

void fault_jitter(void)
{
    static _Thread_local uint64_t seed;
    const struct fault *fault = fault_now(FAULT_JITTER);

    if (fault == NULL || fault->us <= 0)
        return;
    seed = bed_mix(seed, (uint64_t)bed_rank() + 1);
    usleep((useconds_t)(seed % (uint64_t)fault->us));
}
