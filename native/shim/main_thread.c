/* pthread_exit of the main thread: the process goes on until its last thread ends, which then runs what the program does at its end. The
 * heartbeat must be gone by then. */
#define _GNU_SOURCE

#include <pthread.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "forensics/export.h"
#include "ring/log.h"
#include "verbs/next.h"

#if defined(__GLIBC__) && (defined(__x86_64__) || defined(__aarch64__))

FORENSICS_EXPORT void pthread_exit(void *result);
void pthread_exit(void *result)
{
    void (*real)(void *) = next_pthread_exit();

    if (shim_on() && (pid_t)syscall(SYS_gettid) == getpid())
        shim_heartbeat_stop();
    if (real != NULL)
        real(result);
    for (;;) /* there is no C library without it */
        (void)syscall(SYS_exit, 0);
}

#endif
