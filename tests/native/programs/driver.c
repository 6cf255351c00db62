/* Runs random programs, each in a child of a process that never calls NCCL: `driver FIRST COUNT`, `driver SEED` for all of one.
 * One line for each: seed, wait status, complaints of the library, hash of everything that it said and did. */
#define _GNU_SOURCE
#include <dirent.h>
#include <dlfcn.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "program.h"

#define PATIENCE_S 10

struct job job;
uint64_t program_seed;
static int outputs[2]; /* of the program: stdout, stderr */

/* --- One program -------------------------------------------------------------------------------------------------------- */

static void begin(uint64_t seed)
{
    static const uint32_t failures[] = {0, 3, 10, 30};
    uint64_t dice = mix(seed ^ 0xABCDEF);
    struct strict_rules rules = {
        .seed = seed,
        .failures = failures[dice % 4],
        .reuses = dice >> 8 & 1,
        .signals = (dice >> 9 & 1) && may(WITH_SIGNALS),
        .log = tape,
    };

    job.strict.begin(&rules);
}

static void *open_job(const char *path)
{
    void *library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    void (*open)(struct job *) = NULL;
    void *found = library != NULL ? dlsym(library, "job_open") : NULL;

    memcpy(&open, &found, sizeof found);
    if (open == NULL) {
        fprintf(stderr, "%s\n", dlerror());
        _exit(97);
    }
    open(&job);
    return library;
}

static void run_steps(struct worker *self, uint64_t seed)
{
    int steps;

    begin(seed);
    worker_open(self, 0);
    self->reuses = mix(seed ^ 0xABCDEF) >> 8 & 1;
    steps = 30 + (int)roll(170);
    for (int each = 0; each < steps; each++)
        step();
    join_threads();
}

/* One NCCL after the other, where there are several jobs: the code of the second may lie where that of the first one was. */
static void run_jobs(struct worker *self, uint64_t seed)
{
    char *jobs = strdup(getenv("PROGRAMS_JOBS")), *next = NULL;
    void *library;

    for (char *path = strtok_r(jobs, ":", &next); path != NULL;) {
        library = open_job(path);
        job.is_one_of_many = strchr(getenv("PROGRAMS_JOBS"), ':') != NULL;
        path = strtok_r(NULL, ":", &next);
        run_steps(self, seed);
        *job.at_close = mix(seed) & 1 ? last_calls : NULL;
        if (path != NULL)
            dlclose(library);
    }
}

void run_program(uint64_t seed, bool is_leaf)
{
    static struct worker self;
    bool is_linked = getenv("PROGRAMS_JOBS") == NULL;

    program_seed = seed;
    self.random = seed;
    worker = &self;
    signals_open();
    if (mix(seed) & 2)
        atexit(last_calls);
    if (mix(seed) & 4)
        at_quick_exit(last_calls);
#ifdef LINKED
    job_open(&job);
    run_steps(&self, seed);
#endif
    if (!is_linked)
        run_jobs(&self, seed);
    if (is_leaf)
        tape_print();
    end_program(is_leaf ? 5 : roll(8));
}

/* --- All of them -------------------------------------------------------------------------------------------------------- */

static void become_program(uint64_t seed)
{
    setpgid(0, 0);
    dup2(outputs[0], STDOUT_FILENO);
    dup2(outputs[1], STDERR_FILENO);
    close(outputs[0]);
    close(outputs[1]);
    run_program(seed, false);
}

static void on_alarm(int number)
{
    (void)number;
}

static int wait_for(pid_t child)
{
    int status = 0;

    alarm(PATIENCE_S);
    if (waitpid(child, &status, 0) != child) {
        kill(child, SIGKILL);
        waitpid(child, &status, 0);
        tape("STRICT: the program does not end\n");
        status = -1;
    }
    alarm(0);
    kill(-child, SIGKILL);
    return status;
}

static uint64_t hash_file(int file, uint64_t hash)
{
    char text[4096];
    ssize_t got;
    off_t at = 0;

    while ((got = pread(file, text, sizeof text, at)) > 0) {
        for (ssize_t each = 0; each < got; each++)
            hash = (hash ^ (unsigned char)text[each]) * 0x100000001b3ull;
        at += got;
    }
    return mix(hash ^ (uint64_t)at);
}

static void print_file(int file, const char *name)
{
    char text[4096];
    ssize_t got;
    off_t at = 0;

    printf("== %s\n", name);
    while ((got = pread(file, text, sizeof text, at)) > 0) {
        fwrite(text, 1, (size_t)got, stdout);
        at += got;
    }
}

/* The collector's logs of a thousand programs would fill the disk. */
static void sweep(void)
{
    const char *logs = getenv("FORENSICS_SHIM_DIR");
    char folder[512];
    struct dirent *entry;
    DIR *opened;

    snprintf(folder, sizeof folder, "%s/job", logs != NULL ? logs : "/nowhere");
    opened = opendir(folder);
    while (opened != NULL && (entry = readdir(opened)) != NULL)
        (void)unlinkat(dirfd(opened), entry->d_name, 0);
    if (opened != NULL)
        closedir(opened);
}

static void run_one(uint64_t seed, bool is_told)
{
    int status;
    pid_t child;

    tape_clear();
    if (ftruncate(outputs[0], 0) != 0 || ftruncate(outputs[1], 0) != 0)
        exit(99);
    lseek(outputs[0], 0, SEEK_SET);
    lseek(outputs[1], 0, SEEK_SET);
    child = fork();
    if (child == 0)
        become_program(seed);
    status = wait_for(child);
    if (is_told)
        tape_print();
    if (is_told)
        print_file(outputs[0], "stdout");
    if (is_told)
        print_file(outputs[1], "stderr");
    printf("%llu %x %d %016llx\n", (unsigned long long)seed, (unsigned)status, tape_complaints(),
           (unsigned long long)hash_file(outputs[1], hash_file(outputs[0], tape_hash(0))));
    fflush(stdout);
    if (!is_told)
        sweep();
}

int main(int argc, char **argv)
{
    uint64_t first = argc > 1 ? strtoull(argv[argc > 2 && strcmp(argv[1], "leaf") == 0 ? 2 : 1], NULL, 10) : 0;
    uint64_t count = argc > 2 ? strtoull(argv[2], NULL, 10) : 1;
    struct sigaction action = {.sa_handler = on_alarm};

    tape_open();
    if (argc > 2 && strcmp(argv[1], "leaf") == 0)
        run_program(first, true);
    sigaction(SIGALRM, &action, NULL);
    outputs[0] = memfd_create("stdout", 0);
    outputs[1] = memfd_create("stderr", 0);
    for (uint64_t each = 0; each < count; each++)
        run_one(first + each, argc == 2);
    return 0;
}
