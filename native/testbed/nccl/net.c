#define _GNU_SOURCE

#include "net.h"

#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#define FUNCTIONS(each)                                                                                                   \
    each(struct ibv_device **, get_device_list, (int *))                                                                  \
    each(void, free_device_list, (struct ibv_device **))                                                                  \
    each(struct ibv_context *, open_device, (struct ibv_device *))                                                        \
    each(int, query_port, (struct ibv_context *, uint8_t, struct ibv_port_attr *))                                        \
    each(int, query_gid, (struct ibv_context *, uint8_t, int, union ibv_gid *))                                           \
    each(struct ibv_pd *, alloc_pd, (struct ibv_context *))                                                               \
    each(struct ibv_mr *, reg_mr, (struct ibv_pd *, void *, size_t, int))                                                 \
    each(int, dereg_mr, (struct ibv_mr *))                                                                                \
    each(struct ibv_cq *, create_cq, (struct ibv_context *, int, void *, struct ibv_comp_channel *, int))                 \
    each(int, destroy_cq, (struct ibv_cq *))                                                                              \
    each(struct ibv_qp *, create_qp, (struct ibv_pd *, struct ibv_qp_init_attr *))                                        \
    each(int, modify_qp, (struct ibv_qp *, struct ibv_qp_attr *, int))                                                    \
    each(int, destroy_qp, (struct ibv_qp *))

#define DECLARE(type, name, parameters) type(*name) parameters;
static struct { FUNCTIONS(DECLARE) } verbs;
static struct ibv_context *context;
static struct ibv_pd *pd;
static union ibv_gid gid;
static pthread_once_t once = PTHREAD_ONCE_INIT;

static void *open_verbs(void)
{
    const char *names[] = {library_version() >= 23000 ? getenv("NCCL_IBVERBS_LIB") : NULL, "libibverbs.so", "libibverbs.so.1"};
    void *library = NULL;

    for (int index = 0; index < 3 && library == NULL; index++)
        if (names[index] != NULL)
            library = dlopen(names[index], RTLD_NOW);
    return library;
}

#define LOAD(type, name, parameters)                                            \
    symbol = dlvsym(library, "ibv_" #name, "IBVERBS_1.1");                      \
    if (symbol == NULL)                                                         \
        return -1;                                                              \
    memcpy(&verbs.name, &symbol, sizeof symbol);

static int load(void *library)
{
    void *symbol;

    FUNCTIONS(LOAD)
    return 0;
}

/* Each rank of a host uses one device, like a GPU its nearest. */
static void open_device(void)
{
    void *library = open_verbs();
    struct ibv_device **devices;
    struct ibv_port_attr port;
    int count = 0;

    if (library == NULL || load(library) != 0)
        return;
    devices = verbs.get_device_list(&count);
    if (devices != NULL && count > 0)
        context = verbs.open_device(devices[bed_number("LOCAL_RANK", 0) % count]);
    if (devices != NULL)
        verbs.free_device_list(devices);
    if (context == NULL || verbs.query_port(context, 1, &port) != 0 || verbs.query_gid(context, 1, 0, &gid) != 0)
        return;
    pd = verbs.alloc_pd(context);
}

static struct ibv_qp *create_qp(struct ibv_cq *cq)
{
    struct ibv_qp_init_attr wanted = {.send_cq = cq, .recv_cq = cq, .cap = {2 * CREDITS, CREDITS, 1, 1, 32}, .qp_type = 2};

    return verbs.create_qp(pd, &wanted);
}

static int connect_qp(struct ibv_qp *qp, const union ibv_gid *to, uint32_t qpn)
{
    struct ibv_qp_attr attributes = {.qp_state = IBV_QPS_RTR, .dest_qp_num = qpn, .timeout = 20, .retry_cnt = 7, .port_num = 1};
    int status = 0;

    attributes.ah_attr.grh.dgid = *to;
    attributes.ah_attr.is_global = attributes.ah_attr.port_num = 1;
    status |= verbs.modify_qp(qp, &attributes, IBV_QP_STATE | IBV_QP_AV | IBV_QP_DEST_QPN);
    attributes.qp_state = IBV_QPS_RTS;
    status |= verbs.modify_qp(qp, &attributes, IBV_QP_STATE | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT);
    return status;
}

static int qps_per_connection(void)
{
    long wanted = bed_number("NCCL_IB_QPS_PER_CONNECTION", 1);

    return wanted < 1 ? 1 : wanted > MAX_QPS ? MAX_QPS : (int)wanted;
}

#define FLUSH_ROOM 64

size_t net_memory_size(void)
{
    return sizeof(struct net_memory) + STEPS * chunk_bytes() + FLUSH_ROOM;
}

struct net_end *net_create(const char *file, int is_send)
{
    struct net_end *end = calloc(1, sizeof *end);

    pthread_once(&once, open_device);
    if (pd == NULL || end == NULL) {
        free(end);
        return NULL;
    }
    end->memory = bed_map(file, net_memory_size());
    end->flush_target = (char *)end->memory + net_memory_size() - FLUSH_ROOM;
    end->cq = verbs.create_cq(context, 2 * CREDITS, NULL, NULL, 0);
    end->mr = verbs.reg_mr(pd, end->memory, net_memory_size(), 7);
    end->own = (struct net_address){.gid = gid, .key = end->mr->rkey, .memory = (uint64_t)(uintptr_t)end->memory};
    for (int index = 0; index < qps_per_connection(); index++) {
        end->qps[index] = create_qp(end->cq);
        end->own.qpns[index] = end->qps[index]->qp_num;
    }
    end->loop = is_send ? NULL : create_qp(end->cq);
    return end;
}

int net_connect(struct net_end *end)
{
    int status = 0;

    for (int index = 0; index < qps_per_connection(); index++)
        status |= connect_qp(end->qps[index], &end->remote.gid, end->remote.qpns[index]);
    if (end->loop != NULL)
        status |= connect_qp(end->loop, &gid, end->loop->qp_num);
    return status;
}

void net_destroy(struct net_end *end)
{
    for (int index = 0; index < qps_per_connection(); index++)
        verbs.destroy_qp(end->qps[index]);
    if (end->loop != NULL)
        verbs.destroy_qp(end->loop);
    verbs.destroy_cq(end->cq);
    verbs.dereg_mr(end->mr);
    munmap(end->memory, net_memory_size());
    free(end);
}

static int post(struct ibv_qp *qp, struct ibv_send_wr *chain)
{
    struct ibv_send_wr *bad;

    return qp->context->ops.post_send(qp, chain, &bad) == 0 ? 1 : -1;
}

/* One queue pair's part of a step. A large part is a plain write and an empty write with immediate behind it; a small one goes
 * with the immediate, which tells the size of the whole step. */
static int send_part(struct net_end *end, struct ibv_qp *qp, struct ibv_sge *sge, const struct credit *credit, size_t offset,
                     size_t size)
{
    struct ibv_send_wr last = {.wr_id = end->posted % CREDITS, .opcode = IBV_WR_RDMA_WRITE_WITH_IMM};
    struct ibv_send_wr data = {.wr_id = last.wr_id, .opcode = IBV_WR_RDMA_WRITE, .sg_list = sge, .num_sge = 1, .next = &last};

    last.send_flags = IBV_SEND_SIGNALED;
    data.wr.rdma.remote_addr = last.wr.rdma.remote_addr = credit->address + offset;
    data.wr.rdma.rkey = last.wr.rdma.rkey = credit->key;
    last.imm_data = (uint32_t)size;
    if (sge->length > (size_t)bed_number("TESTBED_SPLIT_ABOVE", 1024))
        return post(qp, &data);
    last.sg_list = sge;
    last.num_sge = 1;
    return post(qp, &last);
}

int net_send(struct net_end *end, uint32_t slot, size_t size)
{
    const struct credit *credit = &end->memory->credits[end->posted % CREDITS];
    uint64_t from = (uint64_t)(uintptr_t)end->memory->slots.data + slot * chunk_bytes();
    size_t count = (size_t)qps_per_connection(), part = (size + count - 1) / count;
    int status = 1;

    if (atomic_load(&credit->number) != end->posted + 1)
        return 0;
    for (size_t index = 0; index < count && status > 0; index++) {
        size_t offset = index * part < size ? index * part : size;
        size_t length = size - offset < part ? size - offset : part;
        struct ibv_sge sge = {from + offset, (uint32_t)length, end->mr->lkey};

        status = send_part(end, end->qps[index], &sge, credit, offset, size);
    }
    end->posted++;
    return status;
}

static int post_receives(struct net_end *end, uint32_t place)
{
    struct ibv_recv_wr recv = {.wr_id = place}, *bad;

    for (int index = 0; index < qps_per_connection(); index++)
        if (end->qps[index]->context->ops.post_recv(end->qps[index], &recv, &bad) != 0)
            return -1;
    return 0;
}

int net_receive(struct net_end *end, uint32_t slot)
{
    uint32_t place = end->posted % CREDITS;
    struct credit credit = {(uint64_t)(uintptr_t)end->memory->slots.data + slot * chunk_bytes(), end->mr->rkey,
        end->posted + 1};
    struct ibv_sge sge = {(uint64_t)(uintptr_t)&credit, sizeof credit, 0};
    struct ibv_send_wr write = {.wr_id = place, .sg_list = &sge, .num_sge = 1, .send_flags = IBV_SEND_INLINE};

    if (post_receives(end, place) != 0)
        return -1;
    write.opcode = IBV_WR_RDMA_WRITE;
    write.wr.rdma.remote_addr = end->remote.memory + place * sizeof credit;
    write.wr.rdma.rkey = end->remote.key;
    if (place == 0) /* one in 256 asks for a completion, so that the queue's room can be used again */
        write.send_flags |= IBV_SEND_SIGNALED;
    end->posted++;
    return post(end->qps[place % (uint32_t)qps_per_connection()], &write);
}

int net_flush(struct net_end *end, uint32_t slot)
{
    struct ibv_sge sge = {(uint64_t)(uintptr_t)end->flush_target, 1, end->mr->lkey};
    struct ibv_send_wr read = {.wr_id = slot, .opcode = IBV_WR_RDMA_READ, .sg_list = &sge, .num_sge = 1,
        .send_flags = IBV_SEND_SIGNALED};

    read.wr.rdma.remote_addr = end->own.memory;
    read.wr.rdma.rkey = end->mr->rkey;
    end->flush_posted++;
    return post(end->loop, &read);
}

static uint32_t least(const uint32_t *counts)
{
    uint32_t found = counts[0];

    for (int index = 1; index < qps_per_connection(); index++)
        found = counts[index] < found ? counts[index] : found;
    return found;
}

/* A step is done when each queue pair has done its part. */
static void take(struct net_end *end, const struct ibv_wc *completion)
{
    int index = 0;

    if (completion->opcode == IBV_WC_RDMA_READ) {
        end->flushed++;
        return;
    }
    while (index < MAX_QPS - 1 && end->own.qpns[index] != completion->qp_num)
        index++;
    if (completion->opcode & IBV_WC_RECV)
        end->lengths[end->arrived_on[index]++ % STEPS] = (int32_t)completion->imm_data;
    else if (end->loop == NULL)
        end->sent_on[index]++;
    end->arrived = least(end->arrived_on);
    end->sent = least(end->sent_on);
}

int net_poll(struct net_end *end)
{
    struct ibv_wc completions[4];
    int count = end->cq->context->ops.poll_cq(end->cq, 4, completions);

    for (int index = 0; index < count; index++) {
        if (completions[index].status != IBV_WC_SUCCESS)
            return -1;
        take(end, &completions[index]);
    }
    return count;
}
