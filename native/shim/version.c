/* Which NCCL this is, for the log. */
#include "ring/internal.h"
#include "shim/nccl.h"

void nccl_tell_version(const struct nccl_library *library)
{
    typedef nccl_result (*get_version)(int *);
    int version = 0;

    if (shim_on() && library->functions[NCCL_GetVersion] != NULL &&
        NCCL_REAL(library, GetVersion, get_version)(&version) == NCCL_SUCCESS && version > 0)
        __atomic_store_n(&shim_log.live->nccl_version, (uint32_t)version, __ATOMIC_RELAXED);
}
