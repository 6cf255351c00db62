/* A job whose log something happens to: `guests FOLDER [handle|fault|close,...]` makes FOLDER/ready, calls NCCL from two
 * threads until FOLDER/stop is there, and prints how many calls were answered; with `fault` a fault of its own ends it. */
#define _GNU_SOURCE
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include "nccl_double.h"

static ncclComm_t comm;
static const char *folder;
static volatile sig_atomic_t faults;
static char *volatile own_page;

static int is_there(const char *name)
{
    char path[4096];

    snprintf(path, sizeof path, "%s/%s", folder, name);
    return access(path, F_OK) == 0;
}

static void touch(const char *name)
{
    char path[4096];

    snprintf(path, sizeof path, "%s/%s", folder, name);
    close(open(path, O_WRONLY | O_CREAT, 0600));
}

static void *call(void *count)
{
    for (long *calls = count; !is_there("stop"); (*calls)++)
        for (int each = 0; each < 100; each++)
            if (ncclAllReduce(0, 0, (size_t)each, 7, 0, comm, 0) != 0)
                exit(3);
    return NULL;
}

/* The job's own use of the signal: a mapping of its own that was cut. */
static void on_fault(int signal, siginfo_t *facts, void *context)
{
    (void)signal;
    (void)context;
    if (facts->si_addr != own_page || faults++ > 0)
        _exit(4);
    mmap(own_page, 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0);
}

static void handle(void)
{
    struct sigaction ours = {.sa_sigaction = on_fault, .sa_flags = SA_SIGINFO};

    sigaction(SIGBUS, &ours, NULL);
}

/* A fault that is none of the collector's. */
static void fault(void)
{
    char path[] = "/tmp/guests.XXXXXX";
    int file = mkstemp(path);

    unlink(path);
    own_page = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
    *(volatile char *)own_page = 1;
}

static int in_a_child(void (*act)(void))
{
    int status = 0;
    pid_t child = fork();

    if (child == 0) {
        act();
        exit(0);
    }
    waitpid(child, &status, 0);
    return WIFSIGNALED(status) ? 128 + WTERMSIG(status) : WEXITSTATUS(status);
}

/* A child of a job whose log is gone: it begins a log of its own where it can, and is answered in any case. */
static void work_in_a_child(void)
{
    ncclUniqueId id;

    ncclGetUniqueId(&id);
    ncclCommInitRank(&comm, 64, id, 9);
    if (ncclAllReduce(0, 0, 7, 7, 0, comm, 0) != 0)
        _exit(3);
}

int main(int argc, char **argv)
{
    const char *what = argc > 2 ? argv[2] : "";
    long calls[2] = {0, 0};
    pthread_t thread;
    ncclUniqueId id;

    folder = argv[1];
    if (strstr(what, "handle") != NULL)
        handle();
    ncclGetUniqueId(&id);
    ncclCommInitRank(&comm, 64, id, 5);
    if (strstr(what, "fault") != NULL)
        fault();
    if (strstr(what, "close") != NULL) {
        for (int each = 3; each < 1024; each++)
            close(each);
        for (int each = 3; each < 600; each++)
            (void)!open("/dev/null", O_RDONLY);
    }
    pthread_create(&thread, NULL, call, &calls[0]);
    touch("ready");
    call(&calls[1]);
    pthread_join(thread, NULL);
    printf("%ld faults=%d child=%d foreign=%d\n", calls[0] + calls[1], (int)faults, in_a_child(work_in_a_child), in_a_child(fault));
    return 0;
}
