/* Finds the real NCCL of a caller. Two copies may live in one process, and a copy loaded by Python is in nobody's global scope:
 * only the caller's own object leads to the right one. */
#define _GNU_SOURCE

#include <dlfcn.h>
#include <errno.h>
#include <link.h>
#include <string.h>

#include "ring/internal.h"
#include "shim/nccl.h"

#define MORE_SITES 1024u

#define NCCL_NAME(name, kind) "pnccl" #name,
static const char *const names[NCCL_FUNCTIONS + 1] = {
    [0] = NCCL_HOOKED(NCCL_NAME)[NCCL_GetVersion] = NCCL_ASKED(NCCL_NAME) NULL,
};
#undef NCCL_NAME
#define NCCL_KIND(name, kind) kind,
static const unsigned char kinds[] = {NCCL_HOOKED(NCCL_KIND)};
#undef NCCL_KIND

static struct shim_site more_sites[MORE_SITES]; /* those without a place near at hand */
static const struct nccl_library nothing;
static uint32_t library_count;

static void *object_of(void *address)
{
    Dl_info where;

    if (dladdr(address, &where) == 0 || where.dli_fname == NULL)
        return NULL;
    return dlopen(where.dli_fname, RTLD_LAZY | RTLD_NOLOAD);
}

/* pncclGetVersion as the object of this handle sees it; the handle is given back. */
static void *probe(void *handle)
{
    void *found = handle != NULL ? dlsym(handle, "pncclGetVersion") : NULL;

    if (handle != NULL)
        dlclose(handle);
    return found;
}

static int look_into(struct dl_phdr_info *info, size_t size, void *result)
{
    void *handle;

    (void)size;
    if (info->dlpi_name == NULL || info->dlpi_name[0] == '\0')
        return 0;
    handle = dlopen(info->dlpi_name, RTLD_LAZY | RTLD_NOLOAD);
    *(void **)result = probe(handle);
    return *(void **)result != NULL;
}

/* From the surest way to the vaguest; the last ones serve callers that are no object, such as generated code. */
static void *find_provider(void *return_address)
{
    void *found = probe(object_of(return_address));

    if (found == NULL)
        found = probe(dlopen(NULL, RTLD_LAZY));
    if (found == NULL)
        found = probe(dlopen("libnccl.so.2", RTLD_LAZY | RTLD_NOLOAD));
    if (found == NULL)
        (void)dl_iterate_phdr(look_into, &found);
    return found;
}

/* The provider must stay: its functions are remembered. A main program has no handle of its own but the global one. */
static void *pin(const Dl_info *where)
{
    void *handle = dlopen(where->dli_fname, RTLD_LAZY | RTLD_NOLOAD | RTLD_NODELETE);

    return handle != NULL ? handle : dlopen(NULL, RTLD_LAZY);
}

static void fill(struct nccl_library *library, void *handle)
{
    for (int each = 0; each < NCCL_FUNCTIONS; each++) {
        void *found = dlsym(handle, names[each]);

        memcpy(&library->functions[each], &found, sizeof found);
        if (found != NULL && each < NCCL_FUNCTIONS_HOOKED)
            shim_cover_function(SHIM_HOOKED, kinds[each]);
    }
    shim_cover_door(SHIM_HOOKED, SHIM_DOOR_NCCL_API);
}

static void tell_version(const struct nccl_library *library)
{
    typedef nccl_result (*get_version)(int *);
    int version = 0;

    if (shim_on() && library->functions[NCCL_GetVersion] != NULL &&
        NCCL_REAL(library, GetVersion, get_version)(&version) == NCCL_SUCCESS && version > 0)
        __atomic_store_n(&shim_log.live->nccl_version, (uint32_t)version, __ATOMIC_RELAXED);
}

static const struct nccl_library *known(const void *base)
{
    for (uint32_t each = 0; each < __atomic_load_n(&library_count, __ATOMIC_ACQUIRE); each++)
        if (shim_hot.libraries[each].base == base)
            return &shim_hot.libraries[each];
    return NULL;
}

/* Two threads may have looked at once: the first one counts. */
static const struct nccl_library *store(const struct nccl_library *found)
{
    const struct nccl_library *library;

    shim_lock();
    library = known(found->base);
    if (library == NULL && library_count < SHIM_LIBRARIES) {
        shim_hot.libraries[library_count] = *found;
        library = &shim_hot.libraries[library_count];
        __atomic_store_n(&library_count, library_count + 1, __ATOMIC_RELEASE);
    }
    shim_unlock();
    return library != NULL ? library : &nothing;
}

/* No lock is held while the loader is asked: it has one of its own, and a constructor that runs under it may call NCCL. */
static const struct nccl_library *library_at(void *provider)
{
    struct nccl_library found = {0};
    const struct nccl_library *library;
    Dl_info where;

    if (provider == NULL || dladdr(provider, &where) == 0)
        return &nothing;
    library = known(where.dli_fbase);
    if (library != NULL)
        return library;
    found.base = where.dli_fbase;
    fill(&found, pin(&where));
    library = store(&found);
    if (library_count > 1)
        shim_cover_door(SHIM_CALLED, SHIM_DOOR_NCCL_TWO_COPIES);
    return library;
}

/* The place of this address among those without one near at hand, or the free one that it may have; NULL: none. */
static struct shim_site *more_site_of(void *address)
{
    for (uint32_t step = 0; step < MORE_SITES; step++) {
        struct shim_site *site = &more_sites[(nccl_site_hash(address) + step) % MORE_SITES];
        void *found = __atomic_load_n(&site->address, __ATOMIC_ACQUIRE);

        if (found == NULL || found == address)
            return site;
    }
    return NULL;
}

static struct shim_site *place_for(void *address)
{
    struct shim_site *sites = nccl_sites_of(address);

    for (uint32_t each = 0; each < 4; each++)
        if (sites[each].address == NULL || sites[each].address == address)
            return &sites[each];
    return more_site_of(address);
}

/* A place is written once: readers take no lock. */
static void remember(void *return_address, const struct nccl_library *library)
{
    struct shim_site *site;

    shim_lock();
    site = place_for(return_address);
    if (site != NULL && site->address == NULL) {
        site->library = library;
        __atomic_store_n(&site->address, return_address, __ATOMIC_RELEASE);
    }
    shim_unlock();
}

const struct nccl_library *nccl_resolve(void *return_address)
{
    const struct shim_site *site = more_site_of(return_address);
    const struct nccl_library *library;
    int error = errno;

    if (site != NULL && __atomic_load_n(&site->address, __ATOMIC_ACQUIRE) == return_address)
        return site->library;
    (void)shim_start();
    library = library_at(find_provider(return_address));
    if (library != &nothing) {
        remember(return_address, library);
        tell_version(library);
    }
    errno = error;
    return library;
}
