/* dlclose: what was remembered of an object must go with it, for another one may come to lie at its place. */
#define _GNU_SOURCE

#include <dlfcn.h>
#include <errno.h>

#include "forensics/export.h"
#include "shim/nccl.h"
#include "verbs/next.h"

#if defined(__GLIBC__) && (defined(__x86_64__) || defined(__aarch64__))

FORENSICS_EXPORT int dlclose(void *handle);
int dlclose(void *handle)
{
    int (*real)(void *) = next_dlclose();
    int result = real != NULL ? real(handle) : 0, error = errno;

    nccl_forget_unloaded();
    errno = error;
    return result;
}

#endif
