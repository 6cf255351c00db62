/* How a random program looks at itself, and how it ends. */
#define _GNU_SOURCE
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include "program.h"

/* Which functions there are, as a program finds out that wants to run with any NCCL. */
void do_probe(void)
{
    static const char *const more[] = {"ncclMemAlloc", "ncclCommQueryProperties", "pncclSend", "pncclCommGrow", "ncclNoSuchThing"};
    uint64_t global = 0, held = 0;

#define PROBE(name, parameters, arguments)                                                                                      \
    global |= (uint64_t)(job.find("nccl" #name, true) != NULL) << F_##name;                                                     \
    held |= (uint64_t)(job.find("nccl" #name, false) != NULL) << F_##name;
    FUNCTIONS(PROBE)
    for (size_t each = 0; each < sizeof more / sizeof more[0]; each++)
        tape("  %s %d %d\n", more[each], job.find(more[each], true) != NULL, job.find(more[each], false) != NULL);
    tape("  probe %llx %llx\n", (unsigned long long)global, (unsigned long long)held);
}

/* The number of the next file that is opened, of the main thread, when the others are gone. What the collector keeps open has a number
 * far above; what its heartbeat has open for a moment is gone soon. */
static int next_file(void)
{
    int file = STDERR_FILENO;

    for (int each = 0; each < 200 && file != STDERR_FILENO + 1; each++) {
        if (each > 0)
            usleep(1000);
        file = open("/dev/null", O_RDONLY | O_CLOEXEC);
        if (file >= 0)
            close(file);
    }
    return file;
}

/* What a library could change behind the program's back. */
static void look_at_self(void)
{
    unsigned long long blocked = 0;
    mode_t mask = umask(022);
    struct sigaction action;
    sigset_t set;

    umask(mask);
    pthread_sigmask(SIG_SETMASK, NULL, &set);
    for (int each = 1; each < 64; each++)
        blocked |= (unsigned long long)(sigismember(&set, each) == 1) << each;
    tape("files %d mask %o blocked %llx handlers", worker->slot == 0 ? next_file() : 0, mask, blocked);
    for (int each = 1; each < 32; each++) /* that of SIGBUS is the collector's, and passes on what is not about its log */
        tape(" %d", each != SIGBUS && sigaction(each, NULL, &action) == 0 && action.sa_handler != SIG_DFL);
    tape("\n");
}

/* From an atexit handler, and from the destructor of a library. */
void last_calls(void)
{
    tape("last calls\n");
    do_operation();
    do_ending();
    do_making(NULL);
    do_group_end();
    places_settle();
}

void end_program(uint32_t how)
{
    static const int signals[] = {SIGKILL, SIGTERM, SIGSEGV, SIGABRT};
    int code = (int)roll(200);

    look_at_self();
    if (how == 0)
        _exit(code);
    if (how == 1)
        (void)kill(getpid(), signals[roll(4)]);
    if (how == 2)
        abort();
    if (how == 3 && worker->slot == 0 && may(WITH_LEAVING) && roll(48) == 0)
        pthread_exit(NULL);
    if (how == 4)
        quick_exit(code);
    exit(code);
}
