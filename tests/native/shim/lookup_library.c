/* A stand-in for libibverbs.so.1: versioned names, one device. A second file of it is a second implementation. */
#include <stdlib.h>

#include "verbs/abi.h"

static struct verbs_device device = {.name = "lookup_0"};

static int poll_none(struct verbs_cq *cq, int room, struct verbs_wc *wc) { (void)cq, (void)room, (void)wc; return 0; }
static int post_send(struct verbs_qp *qp, struct verbs_send_wr *wr, struct verbs_send_wr **bad)
{
    (void)qp, (void)wr, (void)bad;
    return 0;
}

static int post_recv(struct verbs_qp *qp, struct verbs_recv_wr *wr, struct verbs_recv_wr **bad)
{
    (void)qp, (void)wr, (void)bad;
    return 0;
}


struct verbs_device *ibv_first_device(void) { return &device; }

struct verbs_context *ibv_open_device(struct verbs_device *opened)
{
    struct verbs_context *context = calloc(1, 328);

    context->device = opened;
    context->operations.poll = poll_none;
    context->operations.post_send = post_send;
    context->operations.post_recv = post_recv;
    return context;
}

int ibv_close_device(struct verbs_context *context) { free(context); return 0; }
