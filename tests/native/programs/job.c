/* Calls NCCL as any library that is linked with it does. */
#define _GNU_SOURCE
#include "job.h"

#include <dlfcn.h>
#include <string.h>

#ifndef SONAME
#define SONAME "libnccl.so.2"
#endif

#define WRAPPER(name, parameters, arguments)                                                                                    \
    static int call_##name parameters                                                                                           \
    {                                                                                                                           \
        return nccl##name arguments;                                                                                            \
    }
FUNCTIONS(WRAPPER)

static void (*at_close)(void);

__attribute__((destructor)) static void close_job(void)
{
    if (at_close != NULL)
        at_close();
}

/* From here, as a feature probe: what the caller can reach decides. */
static void *find(const char *name, bool everywhere)
{
    void *handle = dlopen(SONAME, RTLD_LAZY | RTLD_NOLOAD), *found = dlsym(everywhere ? RTLD_DEFAULT : handle, name);

    if (handle != NULL)
        dlclose(handle);
    return found;
}

static void look_up(struct api *api, bool everywhere)
{
    void *found;

#define LOOK_UP(name, parameters, arguments)                                                                                    \
    found = find("nccl" #name, everywhere);                                                                                     \
    memcpy(&api->name, &found, sizeof found);
    FUNCTIONS(LOOK_UP)
}

void job_open(struct job *job)
{
    uint64_t has = strict_functions();

#define WRAP(name, parameters, arguments) job->linked.name = has >> F_##name & 1 ? call_##name : NULL;
    FUNCTIONS(WRAP)
    look_up(&job->held, false);
    look_up(&job->global, true);
#define MASK(name, parameters, arguments) job->global.name = has >> F_##name & 1 ? job->global.name : NULL;
    FUNCTIONS(MASK)
#define FUNCTION(type, name, parameters) job->strict.name = strict_##name;
    STRICT_FUNCTIONS(FUNCTION)
    job->find = find;
    job->at_close = &at_close;
}
