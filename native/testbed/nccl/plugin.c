/* Loading a profiler plugin: the search order for the file and for the symbol, and the three forms of init. */
#define _GNU_SOURCE

#include <dlfcn.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "profiler.h"

#define VERSIONS 7

struct profiler profiler;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static void *library;
static int references, failed;

/* Which version of the interface a version of the library was released with. */
static int native_version(void)
{
    static const int SINCE[VERSIONS] = {22304, 22403, 22602, 22703, 22803, 22902, 23102};
    int native = 0;

    for (int version = 1; version <= VERSIONS; version++)
        if (library_version() >= SINCE[version - 1])
            native = version;
    return native;
}

static int is_file_name(const char *name)
{
    size_t length = strlen(name);

    return strchr(name, '/') != NULL || (strncmp(name, "lib", 3) == 0 && length >= 3 && strcmp(name + length - 3, ".so") == 0);
}

static void *open_plugin(void)
{
    const char *name = getenv("NCCL_PROFILER_PLUGIN");
    char longer[512];
    void *found;

    if (name == NULL || *name == '\0')
        return dlopen("libnccl-profiler.so", RTLD_NOW | RTLD_LOCAL);
    if (strcasecmp(name, "none") == 0)
        return NULL;
    if (strcasecmp(name, "STATIC_PLUGIN") == 0)
        return dlopen(NULL, RTLD_NOW | RTLD_LOCAL);
    found = dlopen(name, RTLD_NOW | RTLD_LOCAL);
    if (found != NULL || is_file_name(name))
        return found;
    snprintf(longer, sizeof longer, "libnccl-profiler-%s.so", name);
    return dlopen(longer, RTLD_NOW | RTLD_LOCAL);
}

static int load(void)
{
    char symbol[32];

    profiler.native = native_version();
    library = profiler.native > 0 ? open_plugin() : NULL;
    for (int version = profiler.native; library != NULL && version >= 1; version--) {
        snprintf(symbol, sizeof symbol, "ncclProfiler_v%d", version);
        profiler.plugin = dlsym(library, symbol);
        profiler.version = version;
        if (profiler.plugin != NULL)
            return 0;
    }
    if (library != NULL)
        dlclose(library);
    library = NULL;
    profiler.version = 0;
    return -1;
}

static void log_nothing(int level, unsigned long flags, const char *file, int line, const char *format, ...)
{
    (void)level, (void)flags, (void)file, (void)line, (void)format;
}

/* An object pointer of the plugin's table as the function it is. */
#define AS_INIT(type) (*(type *)(void *)&profiler.plugin->init)

static int call_init(struct ncclComm *comm, int *mask)
{
    const char *name = comm->name[0] != '\0' ? comm->name : NULL;

    if (profiler.version <= 3)
        return AS_INIT(init_v1)(&comm->profiler, mask);
    if (profiler.version == 4)
        return AS_INIT(init_v4)(&comm->profiler, mask, name, comm->id, comm->nodes, comm->count, comm->rank, log_nothing);
    return AS_INIT(init_v5)(&comm->profiler, comm->id, mask, name, comm->nodes, comm->count, comm->rank, log_nothing);
}

static void release(void)
{
    if (--references > 0)
        return;
    profiler.version = 0;
    profiler.plugin = NULL;
    dlclose(library); /* when the last communicator ends */
    library = NULL;
}

void profiler_init(struct ncclComm *comm)
{
    int mask;

    pthread_mutex_lock(&lock);
    if (!failed && references == 0)
        failed = load() != 0;
    if (!failed) {
        references++;
        mask = atomic_load(&profiler.mask);
        if (call_init(comm, &mask) != 0)
            release();
        else
            atomic_store(&profiler.mask, mask);
    }
    pthread_mutex_unlock(&lock);
}

void profiler_finalize(struct ncclComm *comm)
{
    pthread_mutex_lock(&lock);
    if (profiler.version > 0 && comm->profiler != NULL) {
        profiler.plugin->finalize(comm->profiler);
        release();
    }
    pthread_mutex_unlock(&lock);
}
