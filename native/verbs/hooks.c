/* The functions of libibverbs that are ours: found through dlvsym and dlsym (NCCL), or linked. */
#define _GNU_SOURCE

#include <dlfcn.h>
#include <errno.h>
#include <string.h>

#include "forensics/export.h"
#include "verbs/hooks.h"

typedef struct verbs_context *(*open_device)(struct verbs_device *);
typedef int (*close_device)(struct verbs_context *);
typedef struct verbs_qp *(*create_qp)(struct verbs_pd *, struct verbs_qp_init *);
typedef int (*modify_qp)(struct verbs_qp *, struct verbs_qp_attributes *, int);
typedef int (*destroy_qp)(struct verbs_qp *);
typedef int (*destroy_cq)(struct verbs_cq *);
typedef int (*query_gid)(struct verbs_context *, uint8_t, int, uint8_t *);

enum { OPEN_DEVICE, CLOSE_DEVICE, CREATE_QP, MODIFY_QP, DESTROY_QP, DESTROY_CQ, QUERY_GID, FUNCTIONS };

static void *real[FUNCTIONS];
static const char *const names[FUNCTIONS] = {"ibv_open_device", "ibv_close_device", "ibv_create_qp", "ibv_modify_qp",
                                             "ibv_destroy_qp", "ibv_destroy_cq", "ibv_query_gid"};

static struct verbs_context *hooked_open(struct verbs_device *device)
{
    struct verbs_context *context = ((open_device)real[OPEN_DEVICE])(device);
    int error = errno;

    if (context != NULL && context->device == device)
        hook_context(context);
    errno = error;
    return context;
}

static int hooked_close(struct verbs_context *context)
{
    int result;

    unhook_context(context);
    result = ((close_device)real[CLOSE_DEVICE])(context);
    if (result == 0)
        forget_context(context);
    else
        keep_hooked(context);
    return result;
}

static struct verbs_qp *hooked_create(struct verbs_pd *pd, struct verbs_qp_init *init)
{
    struct verbs_qp *qp = ((create_qp)real[CREATE_QP])(pd, init);
    int error = errno;

    if (qp != NULL && hooked_context_of(qp->context) != NULL) {
        keep_hooked(qp->context);
        pair_created(qp, init->all_signaled != 0);
    }
    errno = error;
    return qp;
}

static int hooked_modify(struct verbs_qp *qp, struct verbs_qp_attributes *attributes, int mask)
{
    int result = ((modify_qp)real[MODIFY_QP])(qp, attributes, mask), error = errno;

    if (result == 0 && hooked_context_of(qp->context) != NULL) {
        shim_cover_hook(SHIM_CALLED, SHIM_HOOK_VERBS_MODIFY);
        pair_modified(qp, attributes, mask);
    }
    errno = error;
    return result;
}

static int hooked_destroy(struct verbs_qp *qp)
{
    const struct verbs_context *context = qp->context;
    uint32_t number = qp->number;
    int result = ((destroy_qp)real[DESTROY_QP])(qp), error = errno;

    if (result == 0)
        pair_destroyed(context, number);
    errno = error;
    return result;
}

static int hooked_destroy_cq(struct verbs_cq *cq)
{
    int result = ((destroy_cq)real[DESTROY_CQ])(cq), error = errno;

    if (result == 0)
        forget_cq(cq);
    errno = error;
    return result;
}

static int hooked_query_gid(struct verbs_context *context, uint8_t port, int index, uint8_t *gid)
{
    int result = ((query_gid)real[QUERY_GID])(context, port, index, gid), error = errno;

    if (result == 0)
        learn_gid(context, port, index, gid);
    errno = error;
    return result;
}

static void *const ours[FUNCTIONS] = {(void *)hooked_open, (void *)hooked_close, (void *)hooked_create, (void *)hooked_modify,
                                      (void *)hooked_destroy, (void *)hooked_destroy_cq, (void *)hooked_query_gid};

/* The real one behind a linked call: next in the order of the program, or of a libibverbs that was loaded out of sight. */
static bool resolve(int function)
{
    void *none = NULL, *found = dlsym(RTLD_NEXT, names[function]);
    void *library = found == NULL ? dlopen("libibverbs.so.1", RTLD_LAZY | RTLD_NOLOAD) : NULL;

    if (library != NULL)
        found = dlsym(library, names[function]);
    if (found != NULL)
        (void)__atomic_compare_exchange_n(&real[function], &none, found, false, __ATOMIC_RELEASE, __ATOMIC_RELAXED);
    return found != NULL;
}

static bool linked(int function)
{
    shim_cover_hook(SHIM_HOOKED, SHIM_HOOK_VERBS_LINKED);
    shim_cover_hook(SHIM_CALLED, SHIM_HOOK_VERBS_LINKED);
    if (__atomic_load_n(&real[function], __ATOMIC_ACQUIRE) != NULL || resolve(function))
        return true;
    errno = ENOSYS;
    return false;
}

#define LINKED FORENSICS_EXPORT
LINKED struct verbs_context *ibv_open_device(struct verbs_device *device);
LINKED int ibv_close_device(struct verbs_context *context);
LINKED struct verbs_qp *ibv_create_qp(struct verbs_pd *pd, struct verbs_qp_init *init);
LINKED int ibv_modify_qp(struct verbs_qp *qp, struct verbs_qp_attributes *attributes, int mask);
LINKED int ibv_destroy_qp(struct verbs_qp *qp);
LINKED int ibv_destroy_cq(struct verbs_cq *cq);
LINKED int ibv_query_gid(struct verbs_context *context, uint8_t port, int index, uint8_t *gid);

struct verbs_context *ibv_open_device(struct verbs_device *device) { return linked(OPEN_DEVICE) ? hooked_open(device) : NULL; }
int ibv_close_device(struct verbs_context *context) { return linked(CLOSE_DEVICE) ? hooked_close(context) : -1; }
struct verbs_qp *ibv_create_qp(struct verbs_pd *pd, struct verbs_qp_init *init)
{
    return linked(CREATE_QP) ? hooked_create(pd, init) : NULL;
}
int ibv_modify_qp(struct verbs_qp *qp, struct verbs_qp_attributes *attributes, int mask)
{
    return linked(MODIFY_QP) ? hooked_modify(qp, attributes, mask) : ENOSYS;
}
int ibv_destroy_qp(struct verbs_qp *qp) { return linked(DESTROY_QP) ? hooked_destroy(qp) : ENOSYS; }
int ibv_destroy_cq(struct verbs_cq *cq) { return linked(DESTROY_CQ) ? hooked_destroy_cq(cq) : ENOSYS; }
int ibv_query_gid(struct verbs_context *context, uint8_t port, int index, uint8_t *gid)
{
    return linked(QUERY_GID) ? hooked_query_gid(context, port, index, gid) : -1;
}

static void *const shown[FUNCTIONS] = {(void *)ibv_open_device, (void *)ibv_close_device, (void *)ibv_create_qp,
                                       (void *)ibv_modify_qp, (void *)ibv_destroy_qp, (void *)ibv_destroy_cq,
                                       (void *)ibv_query_gid};

static void *hook(int function, void *found)
{
    void *none = NULL;

    if (found == shown[function]) /* looked up in the program as a whole, where we come first */
        return LOAD(real[function]) != NULL || resolve(function) ? ours[function] : NULL;
    if (__atomic_compare_exchange_n(&real[function], &none, found, false, __ATOMIC_ACQ_REL, __ATOMIC_ACQUIRE) || none == found)
        return ours[function];
    shim_tell(SHIM_REASON_UNKNOWN_ABI, 0, "a second libibverbs: left alone");
    return found;
}

void *hook_for(const char *name, void *found)
{
    for (int function = 0; function < FUNCTIONS; function++)
        if (strcmp(name, names[function]) == 0)
            return hook(function, found);
    return found;
}
