/* The file may be cut while it is mapped: the next touch of what is gone is a SIGBUS in the job. A handler of this one signal puts
 * anonymous memory there and ends the recording; every other fault goes where it would have gone. Why a handler:
 * docs/decisions/0012-a-log-that-is-cut.md. */
#define _GNU_SOURCE

#include <errno.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "ring/internal.h"

static uintptr_t base; /* 0: nothing is guarded */
static size_t bytes;
static int descriptor = -1;
static struct stat identity; /* of the file: the job may have closed the descriptor and given its number to something else */
static struct shim_place place;
static uint32_t is_cut, is_removal_told;
static struct sigaction before;

/* Bytes of the file that are there; -1 when nobody tells. */
static int64_t length_now(struct stat *facts)
{
    if (descriptor < 0 || fstat(descriptor, facts) != 0)
        return -1;
    return facts->st_dev == identity.st_dev && facts->st_ino == identity.st_ino ? (int64_t)facts->st_size : -1;
}

/* From a fault, or from what is left of the file, to the end. Nothing but system calls: this runs in a signal handler. */
static bool replace_from(uintptr_t where)
{
    struct stat facts;
    int64_t length = length_now(&facts);
    uintptr_t page = (uintptr_t)getpagesize(), first = where / page * page;
    void *got;

    if (length >= 0 && base + ((uintptr_t)length + page - 1) / page * page < first)
        first = base + ((uintptr_t)length + page - 1) / page * page;
    SHIM_STORE(is_cut, 1u);
    __atomic_store_n(&shim_recording, (uint16_t)0, __ATOMIC_RELEASE); /* last: the heartbeat then asks why */
    got = mmap((void *)first, base + bytes - first, PROT_READ | PROT_WRITE,
               MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED | MAP_NORESERVE, -1, 0);
    return got == (void *)first;
}

static bool is_guarded(uintptr_t where)
{
    uintptr_t from = __atomic_load_n(&base, __ATOMIC_ACQUIRE);

    return from != 0 && where >= from && where - from < bytes;
}

static void die_of(int signal, bool is_fault)
{
    struct sigaction plain = {.sa_handler = SIG_DFL};

    sigaction(signal, &plain, NULL);
    if (!is_fault)
        (void)syscall(SYS_tgkill, getpid(), (pid_t)syscall(SYS_gettid), signal); /* comes when this handler returns */
} /* a fault comes again by itself, with its own address in the core */

/* As the kernel would have called what was there before us: a fault is never ignored, and SA_RESETHAND is its own end. */
static void pass_on(int signal, siginfo_t *facts, void *context)
{
    bool is_fault = facts->si_code > 0;
    struct sigaction plain = {.sa_handler = SIG_DFL};

    if (before.sa_handler == SIG_IGN && !is_fault)
        return;
    if (before.sa_handler == SIG_DFL || before.sa_handler == SIG_IGN) {
        die_of(signal, is_fault);
        return;
    }
    if ((before.sa_flags & (int)SA_RESETHAND) != 0)
        sigaction(signal, &plain, NULL);
    if ((before.sa_flags & SA_SIGINFO) != 0)
        before.sa_sigaction(signal, facts, context);
    else
        before.sa_handler(signal);
}

static void on_fault(int signal, siginfo_t *facts, void *context)
{
    int error = errno;

    if (facts->si_code <= 0 || !is_guarded((uintptr_t)facts->si_addr) || !replace_from((uintptr_t)facts->si_addr))
        pass_on(signal, facts, context);
    errno = error;
}

/* Once in a process and its children. What was there is kept first: the handler may run before sigaction returns. */
static void install(void)
{
    static bool is_installed;
    struct sigaction ours = {.sa_sigaction = on_fault};

    if (is_installed || strcmp(shim_setting("FORENSICS_SHIM_SIGBUS", "1"), "0") == 0)
        return;
    if (sigaction(SIGBUS, NULL, &before) != 0)
        return;
    ours.sa_mask = before.sa_mask;
    ours.sa_flags = SA_SIGINFO | SA_ONSTACK | (before.sa_flags & (SA_NODEFER | SA_RESTART));
    is_installed = sigaction(SIGBUS, &ours, NULL) == 0;
}

void shim_guard(const struct shim_file *file)
{
    place = file->place;
    descriptor = file->descriptor;
    bytes = file->bytes;
    is_cut = is_removal_told = 0;
    if (fstat(descriptor, &identity) != 0)
        descriptor = -1;
    __atomic_store_n(&base, (uintptr_t)file->base, __ATOMIC_RELEASE);
    install();
}

/* The memory that takes the place of the parent's file has no end that could be cut off. */
void shim_guard_forget(void)
{
    struct stat facts;

    __atomic_store_n(&base, 0, __ATOMIC_RELEASE);
    if (length_now(&facts) >= 0)
        close(descriptor);
    descriptor = -1;
}

void shim_check_file(void)
{
    struct stat facts;
    int64_t length = length_now(&facts);

    if (length < 0) {
        SHIM_STORE(shim_log.live->unlocked, 1u);
        return;
    }
    if ((uint64_t)length < bytes)
        (void)replace_from(base + (uintptr_t)length);
    if (facts.st_nlink > 0 || is_removal_told)
        return;
    is_removal_told = 1;
    shim_tell(SHIM_REASON_REMOVED, 0, "the file was removed: what follows can be read through this process only");
    shim_leave_note(&place, SHIM_REASON_REMOVED, 0);
}

void shim_tell_of_file(void)
{
    if (!SHIM_LOAD(is_cut))
        return;
    SHIM_STORE(shim_log.live->state, SHIM_STATE_STOPPED); /* in the file, where its first page is still there */
    SHIM_STORE(shim_log.live->reason, SHIM_REASON_CUT);
    shim_copy_text(shim_log.live->note, sizeof shim_log.live->note, "the file was cut while it was in use");
    shim_leave_note(&place, SHIM_REASON_CUT, 0);
}
