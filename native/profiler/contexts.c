/* One for each communicator that NCCL initialises us for. Their memory is never given back: NCCL may hold it still. */
#define _GNU_SOURCE

#include <dlfcn.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "profiler/hooks.h"

#define CONTEXTS 1024u
#define PEERS_UNTOLD 1024u /* v1 to v3 do not tell how many ranks there are */
#define ASKED (EVENT_COLL | EVENT_P2P | EVENT_PROXY_OP | EVENT_PROXY_STEP)
#define ASKED_API (EVENT_COLL_API | EVENT_P2P_API)

static struct profiler_context contexts[CONTEXTS];
static uint32_t seed; /* of generations: handles of two processes do not look alike */

/* A forked child has a log of its own, or none: what is kept here points into its parent's. */
static void forget_in_child(void)
{
    for (uint32_t each = 0; each < CONTEXTS; each++)
        if (LOAD(contexts[each].comm) != NULL)
            STORE(contexts[each].comm, NULL);
    proxies_forget();
    operations_forget();
}

/* NCCL closes its plugin with the last communicator; the heartbeat must not lose the code that it runs. */
static void stay_loaded(void)
{
    static uint32_t done;
    Dl_info where;

    if (__atomic_exchange_n(&done, 1u, __ATOMIC_RELAXED) != 0)
        return;
    (void)pthread_atfork(NULL, NULL, forget_in_child);
    if (dladdr((void *)(uintptr_t)&contexts, &where) != 0 && where.dli_fname != NULL)
        (void)dlopen(where.dli_fname, RTLD_LAZY | RTLD_NOLOAD | RTLD_NODELETE);
}

uint32_t profiler_first_generation(void)
{
    uint32_t none = 0, wanted;
    uint64_t mix[3] = {(uint64_t)getpid(), shim_now(), (uint64_t)(uintptr_t)&contexts};

    wanted = (uint32_t)shim_hash(mix, sizeof mix, SHIM_HASH_SEED) | 1u;
    (void)__atomic_compare_exchange_n(&seed, &none, wanted, false, __ATOMIC_RELAXED, __ATOMIC_RELAXED);
    return LOAD(seed);
}

static int wanted_mask(uint32_t version)
{
    const char *kernels = getenv("FORENSICS_SHIM_KERNEL_EVENTS");
    int mask = ASKED | (version >= 5 ? ASKED_API : 0);

    return version >= 3 && kernels != NULL && strcmp(kernels, "1") == 0 ? mask | EVENT_KERNEL : mask;
}

static void tell_coverage(uint32_t version, int mask)
{
    shim_cover_hook(SHIM_HOOKED, SHIM_HOOK_PROFILER);
    shim_cover_hook(SHIM_CALLED, SHIM_HOOK_PROFILER);
    for (int hook = SHIM_HOOK_PROFILER_COLL; hook <= SHIM_HOOK_PROFILER_PROXY_STEP; hook++)
        shim_cover_hook(SHIM_HOOKED, (enum shim_hook)hook);
    if (mask & EVENT_KERNEL)
        shim_cover_hook(SHIM_HOOKED, SHIM_HOOK_PROFILER_KERNEL);
    if (mask & ASKED_API)
        shim_cover_hook(SHIM_HOOKED, SHIM_HOOK_PROFILER_API);
    if (version >= 4)
        shim_cover_hook(SHIM_HOOKED, SHIM_HOOK_PROFILER_PEER_WAIT);
    STORE(shim_log.live->profiler_version, version);
    STORE(shim_log.live->profiler_mask, (uint32_t)mask);
}

static struct profiler_context *take(uint32_t version)
{
    for (uint32_t each = 0; each < CONTEXTS; each++) {
        if (__atomic_exchange_n(&contexts[each].used, 1u, __ATOMIC_ACQUIRE) != 0)
            continue;
        contexts[each].version = version;
        STORE(contexts[each].comm, NULL);
        contexts[each].generation = 0;
        return &contexts[each];
    }
    return NULL;
}

/* Here, not with the first operation: nothing is allocated while the job communicates. */
static void make_room(struct profiler_context *context, uint32_t peers)
{
    if (context->p2p_numbers != NULL && context->peers >= peers) {
        memset(context->p2p_numbers, 0, (size_t)context->peers * 2 * sizeof *context->p2p_numbers);
        return;
    }
    free(context->p2p_numbers); /* of a communicator that ended */
    context->p2p_numbers = calloc((size_t)peers * 2, sizeof *context->p2p_numbers);
    context->peers = context->p2p_numbers != NULL ? peers : 0;
}

struct profiler_context *profiler_begin(uint32_t version, int *mask)
{
    struct profiler_context *context;

    *mask = 0;
    if (!shim_start())
        return NULL;
    context = take(version);
    if (context == NULL)
        return NULL;
    stay_loaded();
    *mask = wanted_mask(version);
    tell_coverage(version, *mask);
    if (version < 4)
        profiler_know_comm(context, shim_comm_starting_here());
    return context;
}

void profiler_know_comm(struct profiler_context *context, struct shim_comm *comm)
{
    int32_t ranks = comm != NULL ? comm->ranks : 0;

    make_room(context, ranks > 0 ? (uint32_t)ranks : PEERS_UNTOLD);
    context->generation = comm != NULL ? (uint8_t)comm->generation : 0;
    __atomic_store_n(&context->comm, comm, __ATOMIC_RELEASE);
}

/* v1 to v3: an operation is the first to tell which communicator this is. */
void profiler_learn_comm(struct profiler_context *context, int32_t rank, const struct profiler_task *task)
{
    struct shim_comm *comm = __atomic_load_n(&context->comm, __ATOMIC_ACQUIRE);

    if (task->comm_hash == 0 || (comm != NULL && comm->comm_id != 0))
        return;
    if (comm == NULL) {
        comm = shim_comm_for_profiler(task->comm_hash, rank, SHIM_UNKNOWN, SHIM_UNKNOWN, task->comm_name);
        context->generation = comm != NULL ? (uint8_t)comm->generation : 0;
        __atomic_store_n(&context->comm, comm, __ATOMIC_RELEASE);
        return;
    }
    shim_comm_name(comm, task->comm_name);
    STORE(comm->comm_id, task->comm_hash);
}

struct profiler_context *profiler_context_of(void *context)
{
    uintptr_t offset = (uintptr_t)context - (uintptr_t)contexts;

    if (offset >= sizeof contexts || offset % sizeof contexts[0] != 0)
        return NULL;
    return &contexts[offset / sizeof contexts[0]];
}

uint32_t profiler_p2p_number(struct profiler_context *context, int32_t peer, enum shim_kind kind)
{
    bool is_recv = kind == SHIM_RECV;

    if ((kind != SHIM_SEND && !is_recv) || peer < 0 || (uint32_t)peer >= context->peers)
        return 0;
    return __atomic_add_fetch(&context->p2p_numbers[(size_t)peer * 2 + is_recv], 1u, __ATOMIC_RELAXED);
}

void profiler_end(struct profiler_context *context)
{
    struct shim_comm *comm;

    if (context == NULL || LOAD(context->used) == 0)
        return;
    proxies_abandon(context);
    comm = context->comm;
    if (comm != NULL && (uint8_t)comm->generation == context->generation && (comm->flags & SHIM_COMM_FROM_PROFILER))
        shim_comm_close(comm, SHIM_COMM_DESTROYED);
    STORE(context->comm, NULL);
    __atomic_store_n(&context->used, 0u, __ATOMIC_RELEASE);
}
