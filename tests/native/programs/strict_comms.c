/* Communicators of the strict library: a page each, closed while nobody owns it. */
#define _GNU_SOURCE
#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "strict.h"

#define PAGES 4096
#define PAGE 4096
#define MAGIC 0x57A1C7C0117EC7EDull

struct strict_rules strict_rules;
_Thread_local struct strict_self strict_self = {.thread = -1, .announced = NO_FUNCTION};

static char *pages;
static uint32_t used, free_count, free_pages[PAGES];
static bool is_live[PAGES];
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

static void lock_all(void)
{
    pthread_mutex_lock(&lock);
}

static void unlock_all(void)
{
    pthread_mutex_unlock(&lock);
}

void strict_begin(const struct strict_rules *rules)
{
    static bool is_first = true;

    if (is_first)
        pthread_atfork(lock_all, unlock_all, unlock_all);
    is_first = false;
    if (pages != NULL)
        munmap(pages, (size_t)PAGES * PAGE);
    strict_rules = *rules;
    strict_self = (struct strict_self){.thread = -1, .announced = NO_FUNCTION};
    pages = mmap(NULL, (size_t)PAGES * PAGE, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    used = free_count = 0;
    memset(is_live, 0, sizeof is_live);
}

void strict_thread(int number)
{
    strict_self.thread = number;
}

int strict_announce(int function)
{
    int before = strict_self.announced;

    strict_self.announced = function;
    return before;
}

_Noreturn void strict_complain(const char *what, enum function function, int number)
{
    strict_rules.log("STRICT: %s: %s of %d by thread %d\n", what, function_names[function], number, strict_self.thread);
    abort();
}

uint32_t strict_dice(uint32_t what, uint32_t sides)
{
    uint64_t call = (uint64_t)(uint32_t)strict_self.thread << 40 | (uint64_t)strict_self.calls << 8 | what;

    return (uint32_t)(mix(strict_rules.seed ^ mix(call)) >> 32) % sides;
}

int strict_error(uint32_t what)
{
    static const int errors[] = {CUDA_ERROR, SYSTEM_ERROR, INTERNAL_ERROR, INVALID_USAGE, REMOTE_ERROR};

    return errors[strict_dice(what, 5)];
}

int strict_outcome(void)
{
    if (strict_dice(1, 4) == 0)
        errno = 1 + (int)strict_dice(2, 100);
    return strict_dice(3, 100) < strict_rules.failures ? strict_error(4) : SUCCESS;
}

/* A question by somebody else is about a communicator that is ready, and comes from the thread that uses it. */
static void judge_stranger(enum function function, const void *handle)
{
    const struct ncclComm *comm;

    if (function == F_GetVersion)
        return;
    if (function != F_CommUserRank && function != F_CommCount && function != F_CommCuDevice)
        strict_complain("a call that nobody announced", function, -1);
    comm = strict_live(handle);
    if (comm == NULL)
        strict_complain("a question about what is no communicator", function, -1);
    if (comm->state == INITIAL || comm->state == STARTING || comm->state == FAILED)
        strict_complain("a question about a communicator that is not ready", function, comm->number);
    if (comm->thread != strict_self.thread)
        strict_complain("a question about a communicator of another thread", function, comm->number);
}

enum caller strict_enter(enum function function, ncclComm_t comm, uint64_t digest)
{
    if (strict_self.inner > 0 && function != F_GetVersion) { /* that one the library never asks itself */
        strict_rules.log("  inner %s\n", function_names[function]);
        return BY_LIBRARY;
    }
    if (strict_self.announced != (int)function) {
        judge_stranger(function, comm);
        return BY_STRANGER;
    }
    strict_self.announced = NO_FUNCTION;
    strict_self.calls++;
    strict_rules.log("  got %s %d %016llx\n", function_names[function], strict_number(comm), (unsigned long long)digest);
    if (strict_rules.signals && strict_dice(5, 16) == 0)
        raise(SIGUSR1);
    return BY_PROGRAM;
}

struct ncclComm *strict_live(const void *handle)
{
    uintptr_t at = (uintptr_t)handle - (uintptr_t)pages;
    struct ncclComm *comm = (struct ncclComm *)(uintptr_t)handle;

    if (handle == NULL || pages == NULL || at % PAGE != 0 || at / PAGE >= PAGES)
        return NULL;
    if (!__atomic_load_n(&is_live[at / PAGE], __ATOMIC_ACQUIRE))
        return NULL;
    if (comm->magic != MAGIC)
        strict_complain("somebody wrote into a communicator", NO_FUNCTION, -1);
    return comm;
}

int strict_number(const void *handle)
{
    const struct ncclComm *comm = strict_live(handle);

    return comm != NULL ? comm->number : -1;
}

void strict_hand_over(const void *handle, int thread)
{
    struct ncclComm *comm = strict_live(handle);

    if (comm != NULL)
        comm->thread = thread;
}

struct ncclComm *strict_make(int rank, int ranks)
{
    struct ncclComm *comm;
    uint32_t page;

    lock_all();
    page = free_count > 0 ? free_pages[--free_count] : used++;
    unlock_all();
    if (page >= PAGES)
        strict_complain("the program makes too many communicators", NO_FUNCTION, -1);
    comm = (struct ncclComm *)(void *)(pages + (size_t)page * PAGE);
    mprotect(comm, PAGE, PROT_READ | PROT_WRITE);
    *comm = (struct ncclComm){
        .magic = MAGIC,
        .number = strict_self.thread * 1000 + (int)strict_self.comms++,
        .thread = strict_self.thread,
        .rank = rank,
        .ranks = ranks,
        .device = rank % 8,
    };
    __atomic_store_n(&is_live[page], true, __ATOMIC_RELEASE);
    return comm;
}

void strict_free(struct ncclComm *comm)
{
    uint32_t page = (uint32_t)(((uintptr_t)comm - (uintptr_t)pages) / PAGE);

    strict_forget(comm);
    __atomic_store_n(&is_live[page], false, __ATOMIC_RELEASE);
    memset(comm, 0xDB, sizeof *comm);
    mprotect(comm, PAGE, PROT_NONE);
    if (!strict_rules.reuses)
        return;
    lock_all();
    free_pages[free_count++] = page;
    unlock_all();
}
