/* The hooked functions that make communicators. */
#include <string.h>

#include "shim/nccl.h"

#define SHRUNK_COLOR (-2) /* in place of a color; those of a split are not negative */
#define GROWN_COLOR (-3)

static struct nccl_facts facts_of(enum shim_kind kind, uint64_t count)
{
    return (struct nccl_facts){.count = count, .peer = SHIM_UNKNOWN, .kind = (uint8_t)kind, .dtype = 255, .redop = 255};
}

/* Claims the slot before the real call: an init that never returns is then seen as one. */
static struct shim_comm *begin(struct nccl_visit *visit, enum shim_kind kind, uint64_t identity, int ranks, int rank)
{
    const struct nccl_facts facts = facts_of(kind, 0);
    struct shim_comm *comm = nccl_is_outer(shim_me()) ? shim_comm_claim(identity, 0, rank, ranks) : NULL;

    nccl_enter_rare(visit, comm, &facts);
    return comm;
}

static nccl_result end(struct nccl_visit *visit, nccl_comm *where, nccl_result result)
{
    nccl_leave(visit, result);
    nccl_made(visit->comm, where, result);
    return result;
}

FORENSICS_EXPORT nccl_result ncclGetUniqueId(struct nccl_unique_id *id);
nccl_result ncclGetUniqueId(struct nccl_unique_id *id)
{
    typedef nccl_result (*real)(struct nccl_unique_id *);
    const struct nccl_library *library = nccl_library_of(__builtin_return_address(0));
    const struct nccl_facts facts = facts_of(SHIM_GET_UNIQUE_ID, 0);
    struct nccl_visit visit;
    nccl_result result;

    if (library->functions[NCCL_GetUniqueId] == NULL)
        return nccl_missing(SHIM_GET_UNIQUE_ID);
    (void)nccl_is_outer(shim_me());
    nccl_enter_rare(&visit, NULL, &facts);
    result = NCCL_REAL(library, GetUniqueId, real)(id);
    if (visit.record != NULL && result == NCCL_SUCCESS && id != NULL)
        visit.record->stream = shim_hash(id, sizeof *id, SHIM_HASH_SEED);
    nccl_leave(&visit, result);
    return result;
}

FORENSICS_EXPORT nccl_result ncclCommInitRank(nccl_comm *comm, int ranks, struct nccl_unique_id id, int rank);
nccl_result ncclCommInitRank(nccl_comm *comm, int ranks, struct nccl_unique_id id, int rank)
{
    typedef nccl_result (*real)(nccl_comm *, int, struct nccl_unique_id, int);
    const struct nccl_library *library = nccl_library_of(__builtin_return_address(0));
    struct nccl_visit visit;

    if (library->functions[NCCL_CommInitRank] == NULL)
        return nccl_missing(SHIM_INIT_RANK);
    (void)begin(&visit, SHIM_INIT_RANK, shim_hash(&id, sizeof id, SHIM_HASH_SEED), ranks, rank);
    return end(&visit, comm, NCCL_REAL(library, CommInitRank, real)(comm, ranks, id, rank));
}

FORENSICS_EXPORT nccl_result ncclCommInitRankConfig(nccl_comm *comm, int ranks, struct nccl_unique_id id, int rank, void *config);
nccl_result ncclCommInitRankConfig(nccl_comm *comm, int ranks, struct nccl_unique_id id, int rank, void *config)
{
    typedef nccl_result (*real)(nccl_comm *, int, struct nccl_unique_id, int, void *);
    const struct nccl_library *library = nccl_library_of(__builtin_return_address(0));
    struct nccl_visit visit;

    if (library->functions[NCCL_CommInitRankConfig] == NULL)
        return nccl_missing(SHIM_INIT_RANK_CONFIG);
    nccl_name(begin(&visit, SHIM_INIT_RANK_CONFIG, shim_hash(&id, sizeof id, SHIM_HASH_SEED), ranks, rank), config);
    return end(&visit, comm, NCCL_REAL(library, CommInitRankConfig, real)(comm, ranks, id, rank, config));
}

FORENSICS_EXPORT nccl_result ncclCommInitRankScalable(nccl_comm *comm, int ranks, int rank, int count,
                                                      struct nccl_unique_id *ids, void *config);
nccl_result ncclCommInitRankScalable(nccl_comm *comm, int ranks, int rank, int count, struct nccl_unique_id *ids, void *config)
{
    typedef nccl_result (*real)(nccl_comm *, int, int, int, struct nccl_unique_id *, void *);
    const struct nccl_library *library = nccl_library_of(__builtin_return_address(0));
    size_t bytes = ids != NULL && count > 0 ? (size_t)count * sizeof *ids : 0;
    struct nccl_visit visit;

    if (library->functions[NCCL_CommInitRankScalable] == NULL)
        return nccl_missing(SHIM_INIT_RANK_SCALABLE);
    nccl_name(begin(&visit, SHIM_INIT_RANK_SCALABLE, shim_hash(ids, bytes, SHIM_HASH_SEED), ranks, rank), config);
    return end(&visit, comm, NCCL_REAL(library, CommInitRankScalable, real)(comm, ranks, rank, count, ids, config));
}

/* All communicators live in this process: the identity need not mean anything elsewhere. */
static void claim_all(struct shim_comm **made, int count, const nccl_comm *comms)
{
    uint64_t now = shim_now(), identity = shim_hash(&now, sizeof now, (uint64_t)(uintptr_t)comms);

    for (int each = 0; each < count && shim_on(); each++) {
        made[each] = shim_comm_claim(identity, 0, each, count);
        if (made[each] != NULL)
            made[each]->flags |= SHIM_COMM_LOCAL_ID;
    }
}

FORENSICS_EXPORT nccl_result ncclCommInitAll(nccl_comm *comms, int count, const int *devices);
nccl_result ncclCommInitAll(nccl_comm *comms, int count, const int *devices)
{
    typedef nccl_result (*real)(nccl_comm *, int, const int *);
    const struct nccl_library *library = nccl_library_of(__builtin_return_address(0));
    const struct nccl_facts facts = facts_of(SHIM_INIT_ALL, 0);
    struct shim_comm *made[64] = {NULL};
    struct nccl_visit visit;
    nccl_result result;

    if (library->functions[NCCL_CommInitAll] == NULL)
        return nccl_missing(SHIM_INIT_ALL);
    if (nccl_is_outer(shim_me()))
        claim_all(made, count < 64 ? count : 64, comms);
    nccl_enter_rare(&visit, made[0], &facts);
    result = NCCL_REAL(library, CommInitAll, real)(comms, count, devices);
    nccl_leave(&visit, result);
    for (int each = 0; each < count && each < 64; each++)
        nccl_made(made[each], &comms[each], result);
    return result;
}

/* A communicator made from another: all members of the parent call it, so that its number there is the same on each. */
static struct shim_comm *begin_child(struct nccl_visit *visit, enum shim_kind kind, nccl_comm handle, int32_t color)
{
    struct shim_comm *parent = nccl_is_outer(shim_me()) ? nccl_comm_of(handle) : NULL, *child = NULL;
    const struct nccl_facts facts = facts_of(kind, shim_comm_slot(parent));
    uint32_t number = parent != NULL ? __atomic_add_fetch(&parent->splits, 1u, __ATOMIC_RELAXED) : 0;
    uint64_t identity = parent != NULL ? parent->identity : 0;

    if (parent != NULL && color != NCCL_NO_COLOR) {
        identity = shim_hash(&identity, sizeof identity, SHIM_HASH_SEED);
        identity = shim_hash(&color, sizeof color, identity);
        identity = shim_hash(&number, sizeof number, identity);
        child = shim_comm_claim(identity, parent->identity, SHIM_UNKNOWN, SHIM_UNKNOWN);
    }
    if (child != NULL) {
        child->color = color;
        nccl_limit_peers(child, parent->ranks);
        child->flags |= parent->flags & SHIM_COMM_LOCAL_ID;
    }
    nccl_enter_rare(visit, child, &facts);
    return child;
}

FORENSICS_EXPORT nccl_result ncclCommSplit(nccl_comm comm, int color, int key, nccl_comm *made, void *config);
nccl_result ncclCommSplit(nccl_comm comm, int color, int key, nccl_comm *made, void *config)
{
    typedef nccl_result (*real)(nccl_comm, int, int, nccl_comm *, void *);
    const struct nccl_library *library = nccl_library_of(__builtin_return_address(0));
    struct nccl_visit visit;

    if (library->functions[NCCL_CommSplit] == NULL)
        return nccl_missing(SHIM_SPLIT);
    nccl_name(begin_child(&visit, SHIM_SPLIT, comm, color), config);
    return end(&visit, made, NCCL_REAL(library, CommSplit, real)(comm, color, key, made, config));
}

FORENSICS_EXPORT nccl_result ncclCommShrink(nccl_comm comm, int *out, int count, nccl_comm *made, void *config, int flags);
nccl_result ncclCommShrink(nccl_comm comm, int *out, int count, nccl_comm *made, void *config, int flags)
{
    typedef nccl_result (*real)(nccl_comm, int *, int, nccl_comm *, void *, int);
    const struct nccl_library *library = nccl_library_of(__builtin_return_address(0));
    struct nccl_visit visit;

    if (library->functions[NCCL_CommShrink] == NULL)
        return nccl_missing(SHIM_SHRINK);
    nccl_name(begin_child(&visit, SHIM_SHRINK, comm, SHRUNK_COLOR), config);
    return end(&visit, made, NCCL_REAL(library, CommShrink, real)(comm, out, count, made, config, flags));
}

/* New ranks know only the unique id, most old ones only the parent: the identity is local, the profiler may give a common one. */
static void begin_grown(struct nccl_visit *visit, nccl_comm comm, int ranks, int rank, const struct nccl_unique_id *id)
{
    struct shim_comm *child;

    if (comm != NULL)
        child = begin_child(visit, SHIM_GROW, comm, GROWN_COLOR);
    else
        child = begin(visit, SHIM_GROW, shim_hash(id, id != NULL ? sizeof *id : 0, SHIM_HASH_SEED), ranks, rank);
    if (child == NULL)
        return;
    child->flags |= SHIM_COMM_LOCAL_ID;
    nccl_limit_peers(child, ranks);
}

FORENSICS_EXPORT nccl_result ncclCommGrow(nccl_comm comm, int ranks, const struct nccl_unique_id *id, int rank, nccl_comm *made,
                                          void *config);
nccl_result ncclCommGrow(nccl_comm comm, int ranks, const struct nccl_unique_id *id, int rank, nccl_comm *made, void *config)
{
    typedef nccl_result (*real)(nccl_comm, int, const struct nccl_unique_id *, int, nccl_comm *, void *);
    const struct nccl_library *library = nccl_library_of(__builtin_return_address(0));
    struct nccl_visit visit;

    if (library->functions[NCCL_CommGrow] == NULL)
        return nccl_missing(SHIM_GROW);
    begin_grown(&visit, comm, ranks, rank, id);
    nccl_name(visit.comm, config);
    return end(&visit, made, NCCL_REAL(library, CommGrow, real)(comm, ranks, id, rank, made, config));
}
