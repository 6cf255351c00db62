/* The NCCL hook: its own minimal declarations of the public NCCL API (2.8 to 2.32), and what its files share. */
#ifndef FORENSICS_SHIM_NCCL_H
#define FORENSICS_SHIM_NCCL_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "forensics/export.h"
#include "ring/log.h"

/* Handles are opaque, enums are ints, and the unique id is a struct of 128 bytes that is passed by value: all of it ABI. */
typedef struct ncclComm *nccl_comm;
typedef void *nccl_stream;
typedef int nccl_result;
struct nccl_unique_id {
    char internal[128];
};

#define NCCL_SUCCESS 0
#define NCCL_INVALID_USAGE 5
#define NCCL_IN_PROGRESS 7
#define NCCL_NO_COLOR (-1)

/* Every function that is looked up for a caller; the second list is never hooked. Which of NCCL's functions are left out, and why,
 * is said in tests/live/test_real_nccl.py. */
#define NCCL_HOOKED(each)                                                                                                       \
    each(AllReduce, SHIM_ALL_REDUCE) each(AllGather, SHIM_ALL_GATHER) each(ReduceScatter, SHIM_REDUCE_SCATTER)                  \
    each(Reduce, SHIM_REDUCE) each(Broadcast, SHIM_BROADCAST) each(Bcast, SHIM_BROADCAST) each(AlltoAll, SHIM_ALL_TO_ALL)       \
    each(Gather, SHIM_GATHER) each(Scatter, SHIM_SCATTER) each(AllReduceConfig, SHIM_ALL_REDUCE)                                \
    each(AllGatherConfig, SHIM_ALL_GATHER) each(ReduceScatterConfig, SHIM_REDUCE_SCATTER) each(ReduceConfig, SHIM_REDUCE)       \
    each(BroadcastConfig, SHIM_BROADCAST) each(AlltoAllConfig, SHIM_ALL_TO_ALL) each(GatherConfig, SHIM_GATHER)                 \
    each(ScatterConfig, SHIM_SCATTER) each(Send, SHIM_SEND) each(Recv, SHIM_RECV) each(PutSignal, SHIM_PUT_SIGNAL)              \
    each(Signal, SHIM_SIGNAL) each(WaitSignal, SHIM_WAIT_SIGNAL) each(GroupStart, SHIM_GROUP_START)                             \
    each(GroupEnd, SHIM_GROUP_END) each(GroupSimulateEnd, SHIM_GROUP_SIMULATE_END) each(GetUniqueId, SHIM_GET_UNIQUE_ID)        \
    each(CommInitRank, SHIM_INIT_RANK) each(CommInitRankConfig, SHIM_INIT_RANK_CONFIG)                                          \
    each(CommInitRankScalable, SHIM_INIT_RANK_SCALABLE) each(CommInitAll, SHIM_INIT_ALL) each(CommSplit, SHIM_SPLIT)            \
    each(CommShrink, SHIM_SHRINK) each(CommGrow, SHIM_GROW) each(CommFinalize, SHIM_FINALIZE) each(CommDestroy, SHIM_DESTROY)   \
    each(CommAbort, SHIM_ABORT) each(CommRevoke, SHIM_REVOKE) each(CommGetAsyncError, SHIM_ASYNC_ERROR)                         \
    each(CommSuspend, SHIM_SUSPEND) each(CommResume, SHIM_RESUME) each(CommWindowRegister, SHIM_WINDOW_REGISTER)               \
    each(CommWindowDeregister, SHIM_WINDOW_DEREGISTER) each(DevCommCreate, SHIM_DEV_COMM_CREATE)                                \
    each(DevCommDestroy, SHIM_DEV_COMM_DESTROY)
#define NCCL_ASKED(each) each(GetVersion, 0) each(CommUserRank, 0) each(CommCount, 0) each(CommCuDevice, 0)

#define NCCL_INDEX(name, kind) NCCL_##name,
enum nccl_function { NCCL_HOOKED(NCCL_INDEX) NCCL_FUNCTIONS_HOOKED, NCCL_LAST_HOOKED = NCCL_FUNCTIONS_HOOKED - 1, NCCL_ASKED(NCCL_INDEX) NCCL_FUNCTIONS };
#undef NCCL_INDEX

_Static_assert((int)NCCL_FUNCTIONS <= (int)SHIM_FUNCTIONS, "one NCCL fits into its place");

#pragma GCC visibility push(hidden)

/* The functions that callers of one kind reach behind the collector, and the call sites that are bound to them. */
#define nccl_library shim_library
const struct nccl_library *nccl_resolve(void *return_address) __attribute__((cold));

/* sites.c: call sites without a place near at hand; NULL: not known. */
const struct nccl_library *nccl_far_site(const void *address) __attribute__((cold));
void nccl_remember_site(void *address, const struct nccl_library *library) __attribute__((cold));

/* version.c */
void nccl_tell_version(const struct nccl_library *library) __attribute__((cold));

/* After an object was unloaded: call sites and objects that are no more. */
void nccl_forget_unloaded(void) __attribute__((cold));
bool nccl_is_loaded(const void *address) __attribute__((cold));
void nccl_forget_sites(void) __attribute__((cold));
#define NCCL_GONE ((void *)1) /* in place of an address: another one may take the place, for nobody calls from there any more */

/* Whether a lookup of this function that would find ours may do so: without the collector it would have found one as well.
 * `handle` and `caller` are those of the lookup. */
bool nccl_is_behind(void *handle, const char *name, void *caller) __attribute__((cold));
bool nccl_is_ours(const void *address) __attribute__((cold));

static inline uint32_t nccl_site_hash(const void *address)
{
    return (uint32_t)(((uintptr_t)address * 0x9E3779B97F4A7C15ull) >> 40);
}

/* The first of four places near at hand for this address. */
static inline struct shim_site *nccl_sites_of(const void *address)
{
    return &shim_hot.sites[nccl_site_hash(address) % (SHIM_SITES / 4) * 4];
}

/* What the code at this return address reaches. Never NULL; a library without functions when there is nothing. */
static inline const struct nccl_library *nccl_library_of(void *return_address)
{
    const struct shim_site *sites = nccl_sites_of(return_address);

    for (uint32_t each = 0; each < 4; each++)
        if (__atomic_load_n(&sites[each].address, __ATOMIC_ACQUIRE) == return_address)
            return sites[each].library;
    return nccl_resolve(return_address);
}

/* One call that passes through the hook. */
struct nccl_visit {
    struct shim_call *record;
    struct shim_comm *comm;
    const struct nccl_library *library;
    nccl_comm handle; /* as the program gave it; NULL: none */
    uint32_t sweeps; /* of the heartbeat when it was entered; 0: the clock is read at its return in any case */
    uint32_t slot;    /* of the communicator; SHIM_NO_COMM: none */
};

/* What a call asks for. */
struct nccl_facts {
    uint64_t count, stream;
    int32_t peer;
    uint8_t kind, dtype, redop;
};

/* Around an operation or a group; the pair also keeps the calls that NCCL makes to itself out of the log. Hot: the compiler puts them next to
 * each other and to the operations. */
void nccl_enter(struct nccl_visit *visit, const struct nccl_library *library, nccl_comm comm, const struct nccl_facts *facts)
    __attribute__((hot));
void nccl_leave(struct nccl_visit *visit, nccl_result result) __attribute__((hot));

/* Around everything else: `comm` may be NULL. */
void nccl_enter_rare(struct nccl_visit *visit, struct shim_comm *comm, const struct nccl_facts *facts);

/* True for the program's own call, false for one that NCCL makes to itself. */
static inline bool nccl_is_outer(const struct shim_thread *me)
{
    return me->inside == 0 && (shim_on() || shim_start());
}

/* A hooked function whose real one is not there: the call cannot be made. */
nccl_result nccl_missing(enum shim_kind kind) __attribute__((cold));

/* communicators.c: a slot for a handle whose making was not seen, or was not finished. NCCL is not asked about it. */
struct shim_comm *nccl_adopt(nccl_comm handle) __attribute__((cold));

static inline struct shim_comm *nccl_comm_of(nccl_comm handle)
{
    struct shim_comm *comm;

    if (handle == NULL || !shim_on())
        return NULL;
    comm = shim_comm_find_on((uint64_t)(uintptr_t)handle);
    return __builtin_expect(comm != NULL, 1) ? comm : nccl_adopt(handle);
}

/* The outermost group of this thread began, or ended with this result. */
void nccl_group_began(void);
void nccl_group_ended(nccl_result result);

/* A call that makes a communicator returned; its handle is or will be at `where`. */
void nccl_made(struct shim_comm *comm, nccl_comm *where, nccl_result result);

/* NCCL has just taken this handle for that of a ready communicator, in a call of the program's own: what is not known of it yet is
 * asked now. */
void nccl_learn(const struct nccl_library *library, struct shim_comm *comm, nccl_comm handle) __attribute__((cold));

/* Takes the name out of an ncclConfig_t. */
void nccl_name(struct shim_comm *comm, const void *configuration);

/* numbers.c: the number of this point-to-point call among those of its communicator, peer and direction; 0 unknown. */
uint32_t nccl_first_p2p_number(uint32_t slot, int32_t peer, bool is_recv) __attribute__((cold));
void nccl_limit_peers(const struct shim_comm *comm, int32_t most); /* of a communicator whose size is not known yet */

static inline uint32_t nccl_p2p_number(struct shim_counter *counter, uint32_t slot, int32_t peer, bool is_recv)
{
    uint32_t *pairs = counter->pairs;

    if (__builtin_expect(pairs == NULL, 0))
        return nccl_first_p2p_number(slot, peer, is_recv);
    return peer >= 0 && (uint32_t)peer < pairs[0] ? ++pairs[1 + 2 * peer + is_recv] : 0;
}

#define NCCL_REAL(library, name, type) ((type)(library)->functions[NCCL_##name])

#pragma GCC visibility pop

#endif
