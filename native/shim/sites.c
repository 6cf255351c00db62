/* Call sites: a return address and what its object reaches. */
#include "ring/internal.h"
#include "shim/nccl.h"

#define MORE_SITES 1024u

static struct shim_site more_sites[MORE_SITES]; /* those without a place near at hand */

/* The place of this address among those without one near at hand, or the free one that it may have; NULL: none. */
static struct shim_site *more_site_of(const void *address)
{
    for (uint32_t step = 0; step < MORE_SITES; step++) {
        struct shim_site *site = &more_sites[(nccl_site_hash(address) + step) % MORE_SITES];
        void *found = __atomic_load_n(&site->address, __ATOMIC_ACQUIRE);

        if (found == NULL || found == address)
            return site;
    }
    return NULL;
}

static struct shim_site *place_for(const void *address)
{
    struct shim_site *sites = nccl_sites_of(address);

    for (uint32_t each = 0; each < 4; each++)
        if (sites[each].address == NULL || sites[each].address == address)
            return &sites[each];
    return more_site_of(address);
}

const struct nccl_library *nccl_far_site(const void *address)
{
    const struct shim_site *site = more_site_of(address);

    return site != NULL && __atomic_load_n(&site->address, __ATOMIC_ACQUIRE) == address ? site->library : NULL;
}

/* A place is written once: readers take no lock. */
void nccl_remember_site(void *address, const struct nccl_library *library)
{
    struct shim_site *site;

    shim_lock();
    site = place_for(address);
    if (site != NULL && site->address == NULL) {
        site->library = library;
        __atomic_store_n(&site->address, address, __ATOMIC_RELEASE);
    }
    shim_unlock();
}
