/* Links between two ranks: shared memory inside a host, verbs between hosts. A link is made on first use and both ends wait
 * for each other then, so a peer that never comes blocks the call that needed it (the ring: communicator creation). */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "comm.h"
#include "net.h"
#include "pxn.h"

#define ROWS 16384

/* What the two ends tell each other. */
struct link_row {
    _Atomic uint64_t about;
    _Atomic uint32_t ready[2];
    struct net_address addresses[2];
};

static struct link_row *rows(void)
{
    static _Atomic(struct link_row *) mapped;
    struct link_row *table = atomic_load(&mapped);

    if (table == NULL) {
        table = bed_map("links", sizeof *table * ROWS);
        atomic_store(&mapped, table);
    }
    return table;
}

/* The table may be mapped twice, by two threads that both came first: one mapping is used for the whole search. */
static int find_row(uint64_t about)
{
    struct link_row *table = rows();

    for (uint64_t probe = 0; probe < ROWS; probe++) {
        struct link_row *row = &table[(about + probe) % ROWS];
        uint64_t unused = 0;

        if (atomic_compare_exchange_strong(&row->about, &unused, about) || unused == about)
            return (int)(row - table);
    }
    return -1;
}

static size_t slots_size(void)
{
    return sizeof(struct slots) + STEPS * chunk_bytes();
}

static int open_slots(struct link *link)
{
    char file[64];

    if (link->comm->hosts[link->peer] == link->comm->hosts[link->comm->rank]) {
        snprintf(file, sizeof file, "link-%d", link->row);
        link->slots = bed_map(file, slots_size());
        return 0;
    }
    if (link->is_send && pxn_rank(link->comm, link->peer) >= 0) {
        snprintf(file, sizeof file, "link-%d-send", link->row);
        return pxn_open(link, pxn_rank(link->comm, link->peer), file);
    }
    return link_open_net(link);
}

int link_open_net(struct link *link)
{
    char file[64];

    snprintf(file, sizeof file, "link-%d-%s", link->row, link->is_send ? "send" : "recv");
    link->net = net_create(file, link->is_send);
    if (link->net == NULL)
        return -1;
    link->slots = &link->net->memory->slots;
    rows()[link->row].addresses[link->is_send] = link->net->own;
    atomic_store(&rows()[link->row].ready[link->is_send], 1);
    return 0;
}

static struct link *create(struct ncclComm *comm, int p2p, int channel, int peer, int is_send)
{
    struct link *link = calloc(1, sizeof *link);
    int from = is_send ? comm->rank : peer, to = is_send ? peer : comm->rank;
    uint64_t about = bed_mix(bed_mix(comm->id, (uint64_t)(p2p * MAX_CHANNELS + channel + 1)), (uint64_t)(from * 1000 + to + 1));

    if (link == NULL)
        return NULL;
    *link = (struct link){.comm = comm, .peer = peer, .channel = channel, .is_send = is_send, .row = find_row(about)};
    if (link->row < 0 || open_slots(link) != 0) {
        free(link);
        return NULL;
    }
    if (link->box == NULL)
        atomic_store(&rows()[link->row].ready[is_send], 1);
    return link;
}

struct link *link_publish(struct ncclComm *comm, int p2p, int channel, int peer, int is_send)
{
    struct link **place = &comm->links[((p2p * MAX_CHANNELS + channel) * comm->count + peer) * 2 + is_send];

    pthread_mutex_lock(&comm->lock);
    if (*place == NULL)
        *place = create(comm, p2p, channel, peer, is_send);
    pthread_mutex_unlock(&comm->lock);
    return *place;
}

ncclResult_t link_finish(struct link *link)
{
    struct link_row *row = &rows()[link->row];
    unsigned idle = 0;

    while (!atomic_load(&row->ready[!link->is_send])) {
        if (atomic_load(&link->comm->aborted))
            return ncclRemoteError;
        bed_pause(&idle);
    }
    if (link->net == NULL || link->net->remote.qpns[0] != 0)
        return ncclSuccess;
    link->net->remote = row->addresses[!link->is_send];
    return net_connect(link->net) == 0 ? ncclSuccess : ncclSystemError;
}

int link_is_ready(struct link *link)
{
    struct link_row *row = &rows()[link->row];

    if (link->net->remote.qpns[0] != 0)
        return 1;
    if (!atomic_load(&row->ready[!link->is_send]))
        return 0;
    link->net->remote = row->addresses[!link->is_send];
    return net_connect(link->net) == 0 ? 1 : -1;
}

ncclResult_t links_of_ring(struct ncclComm *comm)
{
    int next = (comm->rank + 1) % comm->count, before = (comm->rank + comm->count - 1) % comm->count;
    struct link *made[2 * MAX_CHANNELS];
    ncclResult_t result = ncclSuccess;

    for (int channel = 0; channel < comm->channels && comm->count > 1; channel++) {
        made[2 * channel] = link_publish(comm, 0, channel, next, 1);
        made[2 * channel + 1] = link_publish(comm, 0, channel, before, 0);
        if (made[2 * channel] == NULL || made[2 * channel + 1] == NULL)
            return ncclSystemError;
    }
    for (int index = 0; index < 2 * comm->channels && comm->count > 1 && result == ncclSuccess; index++)
        result = link_finish(made[index]);
    return result;
}

void links_close(struct ncclComm *comm)
{
    for (int index = 0; index < 2 * MAX_CHANNELS * comm->count * 2; index++) {
        struct link *link = comm->links[index];

        if (link == NULL)
            continue;
        if (link->net != NULL)
            net_destroy(link->net);
        else if (link->box != NULL)
            munmap((char *)link->slots - offsetof(struct net_memory, slots), net_memory_size());
        else
            munmap(link->slots, slots_size());
        free(link);
    }
    free(comm->links);
}
