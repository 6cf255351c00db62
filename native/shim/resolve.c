/* Finds what a call of NCCL would have reached without the collector: what comes behind us in the order of the program (another
 * preloaded object, or the NCCL that the program is linked with), else what the caller's own object is linked with. Two copies may
 * live in one process, and a copy loaded by Python is in nobody's global scope: only the caller's own object leads to it. */
#define _GNU_SOURCE

#include <dlfcn.h>
#include <errno.h>
#include <link.h>
#include <string.h>
#include <sys/mman.h>

#include "ring/internal.h"
#include "shim/nccl.h"
#include "verbs/next.h"

#define OBJECTS 64u

#define NCCL_NAME(name, kind) "pnccl" #name,
static const char *const names[NCCL_FUNCTIONS + 1] = {
    [0] = NCCL_HOOKED(NCCL_NAME)[NCCL_GetVersion] = NCCL_ASKED(NCCL_NAME) NULL,
};
#undef NCCL_NAME
#define NCCL_KIND(name, kind) kind,
static const unsigned char kinds[] = {NCCL_HOOKED(NCCL_KIND)};
#undef NCCL_KIND

/* Objects that called, and what each of them reaches: the base is written last. */
static struct {
    const void *base;
    const struct nccl_library *library;
} objects[OBJECTS];
static const struct nccl_library *more_libraries[OBJECTS]; /* those without a place near at hand */
static const struct nccl_library nothing;
static uint32_t library_count;

static const void *base_of(const void *address)
{
    Dl_info where;

    return dladdr(address, &where) != 0 ? where.dli_fbase : NULL;
}

bool nccl_is_ours(const void *address)
{
    return address != NULL && base_of(address) == base_of((const void *)(uintptr_t)&nccl_is_ours);
}

/* The C library's own dlsym, not ours, so that the program's lookups and these are kept apart. */
static void *symbol_of(void *handle, const char *name)
{
    lookup real = next_dlsym();
    void *found = real != NULL ? real(handle, name) : dlsym(handle, name);

    return nccl_is_ours(found) ? NULL : found;
}

/* As the caller would have found it: by the name that it calls. NCCL's second name of each function (pnccl) serves where that one
 * is not to be seen; some builds do not have it. */
static void *find(int function, void *handle)
{
    const char *profiling = names[function], *plain = profiling + 1;
    void *found = symbol_of(RTLD_NEXT, plain);

    if (found == NULL && handle != NULL)
        found = symbol_of(handle, plain);
    if (found == NULL)
        found = symbol_of(RTLD_NEXT, profiling);
    if (found == NULL && handle != NULL)
        found = symbol_of(handle, profiling);
    return found;
}

/* True when anything of NCCL is reached by this handle; NULL stands for what is behind us. */
static bool fill(struct nccl_library *library, void *handle)
{
    bool found_any = false;

    for (int each = 0; each < NCCL_FUNCTIONS; each++) {
        void *found = find(each, handle);

        memcpy(&library->functions[each], &found, sizeof found);
        found_any |= found != NULL;
    }
    return found_any;
}

static void *object_of(void *address)
{
    Dl_info where;

    if (dladdr(address, &where) == 0 || where.dli_fname == NULL)
        return NULL;
    return dlopen(where.dli_fname, RTLD_LAZY | RTLD_NOLOAD);
}

/* By the C library's own dlclose: nothing is unloaded by what only asked for what is there. */
static void give_back(void *handle)
{
    int (*real)(void *) = next_dlclose();

    if (handle != NULL && real != NULL)
        (void)real(handle);
}

/* Fills from this handle and gives it back. */
static bool try_handle(struct nccl_library *library, void *handle)
{
    bool found = handle != NULL && fill(library, handle);

    give_back(handle);
    return found;
}

static int look_into(struct dl_phdr_info *info, size_t size, void *library)
{
    (void)size;
    if (info->dlpi_name == NULL || info->dlpi_name[0] == '\0')
        return 0;
    return try_handle(library, dlopen(info->dlpi_name, RTLD_LAZY | RTLD_NOLOAD));
}

/* From the surest way to the vaguest; the last ones serve callers that are no object, such as generated code. */
static bool find_library(struct nccl_library *library, void *return_address)
{
    return try_handle(library, object_of(return_address)) || try_handle(library, dlopen(NULL, RTLD_LAZY)) ||
           try_handle(library, dlopen("libnccl.so.2", RTLD_LAZY | RTLD_NOLOAD)) || dl_iterate_phdr(look_into, library) != 0;
}

/* What is remembered must stay loaded. A main program has no handle of its own, and never goes. */
static void pin(const struct nccl_library *library)
{
    const void *pinned = NULL;
    Dl_info where;

    for (int each = 0; each < NCCL_FUNCTIONS; each++) {
        void *function;

        memcpy(&function, &library->functions[each], sizeof function);
        if (function == NULL || dladdr(function, &where) == 0 || where.dli_fbase == pinned)
            continue;
        pinned = where.dli_fbase;
        (void)dlopen(where.dli_fname, RTLD_LAZY | RTLD_NOLOAD | RTLD_NODELETE);
    }
}

static void cover(const struct nccl_library *library)
{
    for (int each = 0; each < NCCL_FUNCTIONS_HOOKED; each++)
        if (library->functions[each] != NULL)
            shim_cover_function(SHIM_HOOKED, kinds[each]);
    shim_cover_hook(SHIM_HOOKED, SHIM_HOOK_NCCL_API);
}

static const struct nccl_library *library_at(uint32_t number)
{
    return number < SHIM_LIBRARIES ? &shim_hot.libraries[number] : more_libraries[number - SHIM_LIBRARIES];
}

static struct nccl_library *new_library(void)
{
    void *memory;

    if (library_count < SHIM_LIBRARIES)
        return &shim_hot.libraries[library_count];
    if (library_count - SHIM_LIBRARIES >= OBJECTS)
        return NULL;
    memory = mmap(NULL, sizeof(struct nccl_library), PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (memory == MAP_FAILED)
        return NULL;
    more_libraries[library_count - SHIM_LIBRARIES] = memory;
    return memory;
}

/* Objects that reach the same functions share one library. */
static const struct nccl_library *store(const struct nccl_library *found)
{
    struct nccl_library *place;

    for (uint32_t each = 0; each < library_count; each++)
        if (memcmp(library_at(each), found, sizeof *found) == 0)
            return library_at(each);
    place = new_library();
    if (place == NULL)
        return &nothing;
    *place = *found;
    __atomic_store_n(&library_count, library_count + 1, __ATOMIC_RELEASE);
    if (library_count > 1)
        shim_cover_hook(SHIM_CALLED, SHIM_HOOK_NCCL_TWO_COPIES);
    return place;
}

static const struct nccl_library *known(const void *base)
{
    for (uint32_t each = 0; each < OBJECTS; each++)
        if (base != NULL && __atomic_load_n(&objects[each].base, __ATOMIC_ACQUIRE) == base)
            return objects[each].library;
    return NULL;
}

static bool is_taken(const void *const *base)
{
    const void *found = __atomic_load_n(base, __ATOMIC_ACQUIRE);

    return found != NULL && found != NCCL_GONE;
}

static const struct nccl_library *remember(const void *base, const struct nccl_library *found)
{
    const struct nccl_library *library;
    uint32_t at = 0;

    shim_lock();
    library = store(found);
    while (at < OBJECTS && is_taken(&objects[at].base))
        at++;
    if (at < OBJECTS && library != &nothing) {
        objects[at].library = library;
        __atomic_store_n(&objects[at].base, base, __ATOMIC_RELEASE);
    }
    shim_unlock();
    return library;
}

/* No lock is held while the loader is asked: it has one of its own, and a constructor that runs under it may call NCCL. */
static const struct nccl_library *library_of(void *return_address)
{
    struct nccl_library found = {0};
    const void *base = base_of(return_address);
    const struct nccl_library *library = known(base);

    if (library != NULL)
        return library;
    if (!find_library(&found, return_address))
        return &nothing;
    pin(&found);
    cover(&found);
    return remember(base, &found);
}

const struct nccl_library *nccl_resolve(void *return_address)
{
    const struct nccl_library *library = nccl_far_site(return_address);
    int error = errno;

    if (library != NULL)
        return library;
    (void)shim_start();
    library = library_of(return_address);
    if (library != &nothing) {
        nccl_remember_site(return_address, library);
        nccl_tell_version(library);
    }
    errno = error;
    return library;
}

bool nccl_is_loaded(const void *address)
{
    return base_of(address) != NULL;
}

/* No lock: the loader is asked, and nobody calls from an object that is gone. */
void nccl_forget_unloaded(void)
{
    if (__atomic_load_n(&library_count, __ATOMIC_RELAXED) == 0)
        return;
    nccl_forget_sites();
    for (uint32_t each = 0; each < OBJECTS; each++) {
        const void *base = __atomic_load_n(&objects[each].base, __ATOMIC_ACQUIRE);

        if (base != NULL && base != NCCL_GONE && !nccl_is_loaded(base))
            (void)__atomic_compare_exchange_n(&objects[each].base, &base, NCCL_GONE, false, __ATOMIC_RELEASE, __ATOMIC_RELAXED);
    }
}

static bool is_hooked(const char *name)
{
    for (int each = 0; each < NCCL_FUNCTIONS_HOOKED; each++)
        if (strcmp(names[each] + 1, name) == 0)
            return true;
    return false;
}

/* A lookup in the program as a whole also goes through what the caller's object is linked with; one in a handle does not. */
bool nccl_is_behind(void *handle, const char *name, void *caller)
{
    void *object;
    bool found;

    if (!is_hooked(name) || symbol_of(RTLD_NEXT, name) != NULL)
        return true;
    if (handle != RTLD_DEFAULT)
        return false;
    object = object_of(caller);
    found = object != NULL && symbol_of(object, name) != NULL;
    give_back(object);
    return found;
}
