/* Devices, contexts, protection domains and memory regions. Device names and contexts differ by provider. */
#define _GNU_SOURCE

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "wire.h"

#define API TESTBED_API

API struct ibv_device **ibv_get_device_list(int *count)
{
    static const char *const NAMES[WIRE_NICS] = {"mlx5_%d", "bnxt_re%d"};
    int nics = (int)bed_number("TESTBED_NICS", WIRE_NICS);
    struct ibv_device **list;

    nics = nics < 0 ? 0 : nics > WIRE_NICS ? WIRE_NICS : nics;
    list = calloc((size_t)nics + 1, sizeof *list);
    for (int nic = 0; list != NULL && nic < nics; nic++) {
        struct bed_device *device = calloc(1, sizeof *device);

        device->slot = bed_host() * WIRE_NICS + nic;
        device->provider = nic;
        device->device.node_type = 1;
        snprintf(device->device.name, sizeof device->device.name, NAMES[nic], nic);
        snprintf(device->device.dev_name, sizeof device->device.dev_name, "uverbs%d", nic);
        list[nic] = &device->device;
    }
    if (count != NULL)
        *count = nics;
    return list;
}

/* Devices stay: contexts point at them, as in the real library while one is open. */
API void ibv_free_device_list(struct ibv_device **list)
{
    free(list);
}

API const char *ibv_get_device_name(struct ibv_device *device)
{
    return device->name;
}

API uint64_t ibv_get_device_guid(struct ibv_device *device)
{
    return 0x0200000000000000u + (uint64_t)((struct bed_device *)device)->slot;
}

API struct ibv_context *ibv_open_device(struct ibv_device *device)
{
    struct bed_context *made = calloc(1, sizeof *made);

    if (made == NULL || ((struct bed_device *)device)->slot >= WIRE_DEVICES) {
        free(made);
        errno = ENODEV;
        return NULL;
    }
    made->device = (struct bed_device *)device;
    made->context.device = device;
    made->context.ops = PROVIDERS[made->device->provider];
    made->context.cmd_fd = made->context.async_fd = -1;
    made->context.num_comp_vectors = 1;
    pthread_mutex_init(&made->context.mutex, NULL);
    return &made->context;
}

API int ibv_close_device(struct ibv_context *context)
{
    free(context);
    return 0;
}

API int ibv_query_device(struct ibv_context *context, void *attributes)
{
    uint64_t guid = ibv_get_device_guid(context->device);

    memset(attributes, 0, 232); /* the size of struct ibv_device_attr */
    snprintf(attributes, 64, "0.0.1");
    memcpy((char *)attributes + 64, &guid, sizeof guid);
    ((char *)attributes)[227] = 1; /* phys_port_cnt */
    return 0;
}

API int ibv_query_port(struct ibv_context *context, uint8_t port, struct ibv_port_attr *attributes)
{
    if (context == NULL || port != 1)
        return EINVAL;
    /* Callers built against older headers pass a shorter structure: only the oldest part may be written. */
    memset(attributes, 0, offsetof(struct ibv_port_attr, port_cap_flags2));
    attributes->state = 4;      /* active */
    attributes->max_mtu = attributes->active_mtu = 5;
    attributes->gid_tbl_len = 1;
    attributes->active_width = 2;
    attributes->active_speed = 64;
    attributes->link_layer = 2; /* Ethernet */
    return 0;
}

API int ibv_query_gid(struct ibv_context *context, uint8_t port, int index, union ibv_gid *gid)
{
    int slot = ((struct bed_context *)context)->device->slot;

    if (port != 1 || index != 0)
        return -1;
    memset(gid, 0, sizeof *gid); /* RoCE: ::ffff:10.0.<host>.<nic + 1> */
    memset(gid->raw + 10, 0xff, 2);
    gid->raw[12] = 10;
    gid->raw[14] = (uint8_t)(slot / WIRE_NICS);
    gid->raw[15] = (uint8_t)(slot % WIRE_NICS + 1);
    return 0;
}

API struct ibv_pd *ibv_alloc_pd(struct ibv_context *context)
{
    struct ibv_pd *pd = calloc(1, sizeof *pd);

    if (pd != NULL)
        pd->context = context;
    return pd;
}

API int ibv_dealloc_pd(struct ibv_pd *pd)
{
    free(pd);
    return 0;
}

API struct ibv_mr *ibv_reg_mr(struct ibv_pd *pd, void *address, size_t length, int access)
{
    struct ibv_mr *mr = calloc(1, sizeof *mr);

    (void)access;
    if (mr == NULL)
        return NULL;
    mr->context = pd->context;
    mr->pd = pd;
    mr->addr = address;
    mr->length = length;
    mr->lkey = mr->rkey = mr->handle = wire_register(address, length);
    return mr;
}

API struct ibv_mr *ibv_reg_mr_iova2(struct ibv_pd *pd, void *address, size_t length, uint64_t iova, unsigned int access)
{
    if (iova != (uint64_t)(uintptr_t)address) {
        errno = EOPNOTSUPP;
        return NULL;
    }
    return ibv_reg_mr(pd, address, length, (int)access);
}

API struct ibv_mr *ibv_reg_dmabuf_mr(struct ibv_pd *pd, uint64_t offset, size_t length, uint64_t iova, int fd, int access)
{
    (void)pd, (void)offset, (void)length, (void)iova, (void)fd, (void)access;
    errno = EOPNOTSUPP;
    return NULL;
}

API int ibv_dereg_mr(struct ibv_mr *mr)
{
    wire_forget(mr->rkey);
    free(mr);
    return 0;
}

/* Nothing asynchronous ever happens to a device of the test bed. */
API int ibv_get_async_event(struct ibv_context *context, void *event)
{
    (void)context, (void)event;
    errno = EAGAIN;
    return -1;
}

API void ibv_ack_async_event(void *event)
{
    (void)event;
}

API int ibv_fork_init(void)
{
    return 0;
}

API const char *ibv_event_type_str(int event)
{
    (void)event;
    return "unknown";
}

API const char *ibv_wc_status_str(int status)
{
    switch (status) {
    case IBV_WC_SUCCESS:
        return "success";
    case IBV_WC_WR_FLUSH_ERR:
        return "Work Request Flushed Error";
    case IBV_WC_RETRY_EXC_ERR:
        return "transport retry counter exceeded";
    default:
        return "error";
    }
}

API int ibv_query_ece(struct ibv_qp *qp, void *ece)
{
    (void)qp;
    memset(ece, 0, 12);
    return 0;
}

API int ibv_set_ece(struct ibv_qp *qp, void *ece)
{
    (void)qp, (void)ece;
    return EOPNOTSUPP;
}

API int ibv_query_port_speed(struct ibv_context *context, uint32_t port, uint64_t *speed)
{
    (void)context, (void)port;
    *speed = 4000; /* units of 100 Mb/s */
    return 0;
}
