#include "pxn.h"

#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

#include "net.h"
#include "profiler.h"

#define BOX_ROOM 1024

enum { REQUEST_OPEN = 1, REQUEST_OPERATION = 2 };

/* A link is named by its row in the table of links. Pointers mean something in the process that asked only. */
struct request {
    int32_t what, row, channel, peer, mask, pid;
    uint32_t total, number;
    uint64_t context, task;
};

/* One writer and one reader: what a killed writer left half done was not announced, and nobody waits for it. */
struct pxn_box {
    _Atomic uint32_t written, taken, finished;
    struct request requests[BOX_ROOM];
};

int pxn_is_on(void)
{
    return bed_number("TESTBED_PXN", 0) != 0;
}

/* How many ranks before this one are on its host. */
static int place_on_host(const struct ncclComm *comm, int rank)
{
    int place = 0;

    for (int other = 0; other < rank; other++)
        place += comm->hosts[other] == comm->hosts[rank];
    return place;
}

static int rank_at(const struct ncclComm *comm, int host, int place)
{
    for (int rank = 0; rank < comm->count; rank++)
        if (comm->hosts[rank] == host && place-- == 0)
            return rank;
    return -1;
}

int pxn_rank(const struct ncclComm *comm, int peer)
{
    int host = comm->hosts[comm->rank], through;

    if (!pxn_is_on() || comm->hosts[peer] == host)
        return -1;
    through = rank_at(comm, host, place_on_host(comm, peer));
    return through == comm->rank ? -1 : through;
}

static struct pxn_box *map_box(const struct ncclComm *comm, int by, int from)
{
    char file[64];

    snprintf(file, sizeof file, "pxn-%016llx-%d-%d", (unsigned long long)comm->id, by, from);
    return bed_map(file, sizeof(struct pxn_box));
}

static void ask(struct pxn_box *box, const struct request *request)
{
    uint32_t number = atomic_load(&box->written);
    unsigned idle = 0;

    while (number - atomic_load(&box->finished) >= BOX_ROOM)
        bed_pause(&idle);
    box->requests[number % BOX_ROOM] = *request;
    atomic_store(&box->written, number + 1);
}

static struct pxn_box *out_box(struct ncclComm *comm, int through)
{
    if (comm->out[through] == NULL)
        comm->out[through] = map_box(comm, through, comm->rank);
    return comm->out[through];
}

int pxn_open(struct link *link, int through, const char *file)
{
    struct request request = {REQUEST_OPEN, link->row, link->channel, link->peer, 0, getpid(), 0, 0, 0, 0};
    struct net_memory *memory = bed_map(file, net_memory_size());

    link->box = out_box(link->comm, through);
    link->slots = &memory->slots;
    ask(link->box, &request);
    return 0;
}

void pxn_append(const struct link *link, const struct proxy_op *op)
{
    struct request request = {REQUEST_OPERATION, link->row, link->channel, link->peer, op->mask, getpid(), op->total, op->number,
                              (uint64_t)(uintptr_t)link->comm->profiler, (uint64_t)(uintptr_t)op->task_handle};

    ask(link->box, &request);
}

static struct link *lent_link(struct ncclComm *comm, int row)
{
    struct link *link = comm->lent;

    while (link != NULL && link->row != row)
        link = link->next;
    return link;
}

static void open_for(struct ncclComm *comm, const struct request *request)
{
    struct link *link = calloc(1, sizeof *link);

    if (link == NULL)
        return;
    *link = (struct link){.comm = comm, .peer = request->peer, .channel = request->channel, .is_send = 1, .row = request->row,
                          .next = comm->lent};
    if (link_open_net(link) != 0) {
        atomic_store(&comm->error, ncclSystemError);
        free(link);
        return;
    }
    comm->lent = link;
}

static struct proxy_op *operation_for(struct ncclComm *comm, const struct request *request, struct pxn_box *box)
{
    struct proxy_op *op = calloc(1, sizeof *op);

    if (op == NULL)
        return NULL;
    op->link = lent_link(comm, request->row);
    op->mask = request->mask;
    op->total = request->total;
    op->number = request->number;
    op->pid = request->pid;
    op->context = (void *)(uintptr_t)request->context;
    op->task_handle = (void *)(uintptr_t)request->task;
    op->box = box;
    proxy_truth(op);
    return op;
}

/* Returns 1 if an operation was added. */
static int take_one(struct ncclComm *comm, struct pxn_box *box, struct proxy_op **active)
{
    const struct request *request = &box->requests[atomic_load(&box->taken) % BOX_ROOM];
    struct proxy_op *op = NULL;

    if (request->what == REQUEST_OPEN)
        open_for(comm, request);
    else if (lent_link(comm, request->row) != NULL)
        op = operation_for(comm, request, box);
    atomic_fetch_add(&box->taken, 1);
    if (op == NULL) {
        atomic_fetch_add(&box->finished, 1);
        return 0;
    }
    while (*active != NULL)
        active = &(*active)->next;
    *active = op;
    profiler_op_start(op);
    return 1;
}

int pxn_take(struct ncclComm *comm, struct proxy_op **active)
{
    int added = 0;

    for (int from = 0; from < comm->count && pxn_is_on(); from++) {
        if (from == comm->rank || comm->hosts[from] != comm->hosts[comm->rank])
            continue;
        if (comm->in[from] == NULL)
            comm->in[from] = map_box(comm, comm->rank, from);
        while (atomic_load(&comm->in[from]->taken) != atomic_load(&comm->in[from]->written))
            added += take_one(comm, comm->in[from], active);
    }
    return added;
}

void pxn_done(const struct proxy_op *op)
{
    atomic_fetch_add(&op->box->finished, 1);
}

static int is_empty(const struct pxn_box *box)
{
    return box == NULL || atomic_load(&box->finished) == atomic_load(&box->written);
}

int pxn_is_drained(const struct ncclComm *comm)
{
    int drained = 1;

    for (int rank = 0; rank < comm->count; rank++)
        drained &= is_empty(comm->in[rank]) && is_empty(comm->out[rank]);
    return drained;
}

void pxn_close(struct ncclComm *comm)
{
    for (int rank = 0; rank < comm->count; rank++) {
        if (comm->in[rank] != NULL)
            munmap(comm->in[rank], sizeof *comm->in[rank]);
        if (comm->out[rank] != NULL)
            munmap(comm->out[rank], sizeof *comm->out[rank]);
    }
    while (comm->lent != NULL) {
        struct link *next = comm->lent->next;

        net_destroy(comm->lent->net);
        free(comm->lent);
        comm->lent = next;
    }
}
