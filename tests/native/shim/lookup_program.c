/* `lookup_program dlvsym|dlsym|default|linked|old|next|none`: reaches a verbs library in one of the ways there are, posts and
 * polls once, and says "nothing" where there is none. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdio.h>
#include <string.h>

#include "verbs/abi.h"

struct verbs_device *ibv_first_device(void);
#ifdef LINKED
struct verbs_context *ibv_open_device(struct verbs_device *);
#endif

typedef struct verbs_context *(*open_device)(struct verbs_device *);

static int use(struct verbs_context *context)
{
    struct { struct verbs_cq cq; char rest[64]; } cq = {.cq.context = context};
    struct { struct verbs_qp qp; char rest[64]; } qp = {.qp = {.context = context, .send_cq = &cq.cq, .number = 7}};
    struct verbs_sge sge = {.length = 1000};
    struct verbs_send_wr wr = {.sges = &sge, .sge_count = 1, .flags = SEND_SIGNALED}, *bad;
    struct verbs_wc wc;

    context->operations.poll(&cq.cq, 1, &wc);
    context->operations.post_send(&qp.qp, &wr, &bad);
    context->operations.post_recv(&qp.qp, NULL, NULL);
    context->operations.poll(&cq.cq, 1, &wc);
    return 0;
}

int main(int count, char **arguments)
{
    const char *way = count > 1 ? arguments[1] : "", *path = count > 2 ? arguments[2] : "";
    void *library = strcmp(way, "none") == 0 ? NULL : dlopen(path, RTLD_NOW | (strcmp(way, "default") == 0 ? RTLD_GLOBAL : 0));
    struct verbs_device *(*first)(void) = NULL;
    open_device open_it = NULL;
    void *found = NULL, *name = NULL;

    if (library != NULL)
        name = dlvsym(library, "ibv_first_device", "IBVERBS_1.1");
    memcpy(&first, &name, sizeof first);
    if (strcmp(way, "dlvsym") == 0)
        found = dlvsym(library, "ibv_open_device", "IBVERBS_1.1");
    else if (strcmp(way, "dlsym") == 0)
        found = dlsym(library, "ibv_open_device");
    else if (strcmp(way, "default") == 0)
        found = dlsym(RTLD_DEFAULT, "ibv_open_device");
    else if (strcmp(way, "old") == 0)
        found = dlvsym(library, "ibv_open_device", "IBVERBS_1.0");
    else if (strcmp(way, "next") == 0)
        found = dlsym(RTLD_NEXT, "strlen") == dlsym(RTLD_DEFAULT, "strlen") ? dlsym(RTLD_NEXT, "main") : (void *)1;
    else if (strcmp(way, "none") == 0)
        found = dlsym(RTLD_DEFAULT, "ibv_open_device");
#ifdef LINKED
    open_it = ibv_open_device;
    found = (void *)open_it;
    first = ibv_first_device;
#endif
    if (found == NULL || first == NULL) {
        puts("nothing");
        return 0;
    }
    memcpy(&open_it, &found, sizeof open_it);
    return use(open_it(first()));
}
