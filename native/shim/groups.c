/* Groups: what is between the outermost start and end is launched at the end. */
#include "shim/nccl.h"

typedef nccl_result (*plain)(void);
typedef nccl_result (*simulate)(void *);

static inline struct nccl_facts facts_of(enum shim_kind kind)
{
    return (struct nccl_facts){.peer = SHIM_UNKNOWN, .kind = (uint8_t)kind, .dtype = 255, .redop = 255};
}

FORENSICS_EXPORT nccl_result ncclGroupStart(void);
nccl_result ncclGroupStart(void)
{
    const struct nccl_library *library = nccl_library_of(__builtin_return_address(0));
    const struct nccl_facts facts = facts_of(SHIM_GROUP_START);
    struct shim_thread *me = shim_me();
    struct nccl_visit visit;
    nccl_result result;

    if (library->functions[NCCL_GroupStart] == NULL)
        return nccl_missing(SHIM_GROUP_START);
    if (!nccl_is_outer(me) || me->groups > 0) {
        result = NCCL_REAL(library, GroupStart, plain)();
        me->groups += me->inside == 0 && result == NCCL_SUCCESS;
        return result;
    }
    nccl_enter(&visit, library, NULL, &facts);
    result = NCCL_REAL(library, GroupStart, plain)();
    nccl_leave(&visit, result);
    if (result == NCCL_SUCCESS) {
        me->groups++;
        nccl_group_began();
    }
    return result;
}

FORENSICS_EXPORT nccl_result ncclGroupEnd(void);
nccl_result ncclGroupEnd(void)
{
    const struct nccl_library *library = nccl_library_of(__builtin_return_address(0));
    const struct nccl_facts facts = facts_of(SHIM_GROUP_END);
    struct shim_thread *me = shim_me();
    struct nccl_visit visit;
    nccl_result result;

    if (library->functions[NCCL_GroupEnd] == NULL)
        return nccl_missing(SHIM_GROUP_END);
    if (!nccl_is_outer(me) || me->groups > 1) {
        me->groups -= me->inside == 0 && me->groups > 0;
        return NCCL_REAL(library, GroupEnd, plain)();
    }
    nccl_enter(&visit, library, NULL, &facts);
    visit.sweeps = 0; /* the launch of all that is in the group: how long it took is told */
    result = NCCL_REAL(library, GroupEnd, plain)();
    nccl_leave(&visit, result);
    me->groups = 0;
    nccl_group_ended(result);
    return result;
}

FORENSICS_EXPORT nccl_result ncclGroupSimulateEnd(void *info);
nccl_result ncclGroupSimulateEnd(void *info)
{
    const struct nccl_library *library = nccl_library_of(__builtin_return_address(0));
    const struct nccl_facts facts = facts_of(SHIM_GROUP_SIMULATE_END);
    struct nccl_visit visit;
    nccl_result result;

    if (library->functions[NCCL_GroupSimulateEnd] == NULL)
        return nccl_missing(SHIM_GROUP_SIMULATE_END);
    nccl_enter(&visit, library, NULL, &facts);
    result = NCCL_REAL(library, GroupSimulateEnd, simulate)(info);
    nccl_leave(&visit, result);
    if (shim_self.inside == 0 && shim_self.groups > 0 && --shim_self.groups == 0)
        nccl_group_ended(NCCL_INVALID_USAGE); /* nothing was made */
    return result;
}
