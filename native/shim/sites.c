/* Call sites: a return address and what its object reaches. */
#include "ring/internal.h"
#include "shim/nccl.h"

#define MORE_SITES 1024u

static struct shim_site more_sites[MORE_SITES]; /* those without a place near at hand */

/* The place of this address among those without one near at hand, or the free one that it may have; NULL: none. */
static struct shim_site *more_site_of(const void *address)
{
    struct shim_site *free_one = NULL;

    for (uint32_t step = 0; step < MORE_SITES; step++) {
        struct shim_site *site = &more_sites[(nccl_site_hash(address) + step) % MORE_SITES];
        void *found = __atomic_load_n(&site->address, __ATOMIC_ACQUIRE);

        if (found == address)
            return site;
        if (free_one == NULL && (found == NULL || found == NCCL_GONE))
            free_one = site;
        if (found == NULL)
            break;
    }
    return free_one;
}

static bool is_free(const struct shim_site *site)
{
    const void *found = __atomic_load_n(&site->address, __ATOMIC_ACQUIRE);

    return found == NULL || found == NCCL_GONE;
}

static struct shim_site *place_for(const void *address)
{
    struct shim_site *sites = nccl_sites_of(address);

    for (uint32_t each = 0; each < 4; each++)
        if (is_free(&sites[each]) || __atomic_load_n(&sites[each].address, __ATOMIC_ACQUIRE) == address)
            return &sites[each];
    return more_site_of(address);
}

const struct nccl_library *nccl_far_site(const void *address)
{
    const struct shim_site *site = more_site_of(address);

    return site != NULL && __atomic_load_n(&site->address, __ATOMIC_ACQUIRE) == address ? site->library : NULL;
}

/* Readers take no lock: an address is written last, and is what a reader compares with its own. */
void nccl_remember_site(void *address, const struct nccl_library *library)
{
    struct shim_site *site;

    shim_lock();
    site = place_for(address);
    if (site != NULL && is_free(site)) {
        site->library = library;
        __atomic_store_n(&site->address, address, __ATOMIC_RELEASE);
    }
    shim_unlock();
}

static void forget_unloaded(struct shim_site *sites, uint32_t count)
{
    for (uint32_t each = 0; each < count; each++) {
        void *address = __atomic_load_n(&sites[each].address, __ATOMIC_ACQUIRE);

        if (address != NULL && address != NCCL_GONE && !nccl_is_loaded(address))
            (void)__atomic_compare_exchange_n(&sites[each].address, &address, NCCL_GONE, false, __ATOMIC_RELEASE, __ATOMIC_RELAXED);
    }
}

void nccl_forget_sites(void)
{
    forget_unloaded(shim_hot.sites, SHIM_SITES);
    forget_unloaded(more_sites, MORE_SITES);
}
