/* testbed_trainer --pp 2 --dp 2 --microbatches 4 --steps 3: started once per rank with RANK, WORLD_SIZE, LOCAL_RANK and
 * LOCAL_WORLD_SIZE as by torchrun; or once without RANK, then it starts all ranks itself. */
#define _GNU_SOURCE

#include <dlfcn.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "train.h"

static void usage(const char *unknown)
{
    fprintf(stderr, "testbed_trainer: what is %s?\n"
                    "  --pp --dp --tp --microbatches --steps --elements --compute-us N   sizes\n"
                    "  --shards 1     reduce-scatter and all-gather in place of all-reduce\n"
                    "  --split 1      groups by ncclCommSplit in place of their own ids\n"
                    "  --watchdog 1   end when a communicator reports an error\n"
                    "  --load local|global|deepbind   how the library with the collectives is loaded\n", unknown);
    exit(2);
}

static int *number_named(struct options *options, const char *name)
{
    const struct { const char *name; int *number; } numbers[] = {
        {"--pp", &options->pp}, {"--dp", &options->dp}, {"--tp", &options->tp}, {"--microbatches", &options->microbatches},
        {"--steps", &options->steps}, {"--shards", &options->shards}, {"--split", &options->split},
        {"--watchdog", &options->watchdog},
    };

    for (size_t index = 0; index < sizeof numbers / sizeof *numbers; index++)
        if (strcmp(numbers[index].name, name) == 0)
            return numbers[index].number;
    return NULL;
}

static void read_option(struct options *options, const char *name, const char *value)
{
    int *number = number_named(options, name);

    if (number != NULL)
        *number = (int)strtol(value, NULL, 10);
    else if (strcmp(name, "--elements") == 0)
        options->elements = strtol(value, NULL, 10);
    else if (strcmp(name, "--compute-us") == 0)
        options->compute_us = strtol(value, NULL, 10);
    else if (strcmp(name, "--load") == 0)
        options->load = value;
    else
        usage(name);
}

static void set_number(const char *name, int value)
{
    char text[16];

    snprintf(text, sizeof text, "%d", value);
    setenv(name, text, 1);
}

static void start_rank(char **arguments, int rank, int world)
{
    int per_host = (int)bed_number("LOCAL_WORLD_SIZE", world);

    set_number("RANK", rank);
    set_number("WORLD_SIZE", world);
    set_number("LOCAL_RANK", rank % per_host);
    set_number("LOCAL_WORLD_SIZE", per_host);
    execv("/proc/self/exe", arguments);
    _exit(71);
}

/* Ends with the first status that is not 0. */
static int start_all(char **arguments, int world)
{
    int result = 0, status;

    for (int rank = 0; rank < world; rank++)
        if (fork() == 0)
            start_rank(arguments, rank, world);
    while (wait(&status) > 0)
        if (result == 0 && status != 0)
            result = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
    return result;
}

static train_function load(const char *how)
{
    int flags = RTLD_NOW | (strcmp(how, "global") == 0 ? RTLD_GLOBAL : RTLD_LOCAL);
    void *library, *symbol;
    train_function train;

    if (strcmp(how, "deepbind") == 0)
        flags |= RTLD_DEEPBIND;
    library = dlopen("libtestbed_framework.so", flags);
    symbol = library != NULL ? dlsym(library, "testbed_train") : NULL;
    if (symbol == NULL) {
        fprintf(stderr, "testbed_trainer: %s\n", dlerror());
        exit(72);
    }
    memcpy(&train, &symbol, sizeof train);
    return train;
}

int main(int count, char **arguments)
{
    struct options options = {.pp = 1, .dp = 1, .tp = 1, .microbatches = 4, .steps = 3, .load = "local"};

    options.elements = 4096;
    options.compute_us = 200;
    for (int index = 1; index < count; index += 2)
        read_option(&options, arguments[index], index + 1 < count ? arguments[index + 1] : "");
    if (bed_number("TESTBED_DIE_WITH_PARENT", 0)) /* a test that is cut off leaves no hung ranks behind */
        prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (getenv("RANK") == NULL)
        return start_all(arguments, options.pp * options.dp * options.tp);
    return load(options.load)(&options);
}
