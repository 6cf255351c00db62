/* The part of libibverbs' binary interface that the hook needs (IBVERBS_1.1; rdma-core, unchanged for many years), declared
 * anew: only sizes and offsets are taken over. */
#ifndef FORENSICS_VERBS_ABI_H
#define FORENSICS_VERBS_ABI_H

#include <stddef.h>
#include <stdint.h>

#define VERBS_VERSION "IBVERBS_1.1" /* 1.0 is another binary interface under the same names */

enum { WC_SUCCESS = 0, WC_FLUSHED = 5 };
enum { WC_RECV_BIT = 128 };
enum { SEND_SIGNALED = 2 };
enum { WR_RDMA_WRITE = 0 };
enum { QPS_RESET = 0, QPS_RTR = 2, QPS_RTS = 3 };
enum { ATTR_STATE = 1 << 0, ATTR_AV = 1 << 7, ATTR_PATH_MTU = 1 << 8, ATTR_TIMEOUT = 1 << 9, ATTR_RETRY_COUNT = 1 << 10,
       ATTR_DEST_NUMBER = 1 << 20 };

struct verbs_device { void *operations[2]; int32_t node_type, transport_type; char name[64]; };
struct verbs_context;
struct verbs_cq { struct verbs_context *context; };
struct verbs_pd { struct verbs_context *context; };

struct verbs_qp {
    struct verbs_context *context;
    void *qp_context;
    struct verbs_pd *pd;
    struct verbs_cq *send_cq, *recv_cq;
    void *srq;
    uint32_t handle, number;
};

struct verbs_sge { uint64_t address; uint32_t length, key; };

struct verbs_send_wr {
    uint64_t wr_id;
    struct verbs_send_wr *next;
    struct verbs_sge *sges;
    int32_t sge_count, opcode, flags;
    uint32_t immediate;
    uint64_t by_opcode[11];
};

struct verbs_recv_wr;

struct verbs_wc {
    uint64_t wr_id;
    int32_t status, opcode;
    uint32_t vendor_error, byte_count, immediate, qp_number, source_number;
    int32_t flags;
    uint64_t rest;
};

typedef int (*verbs_poll)(struct verbs_cq *, int, struct verbs_wc *);
typedef int (*verbs_post_send)(struct verbs_qp *, struct verbs_send_wr *, struct verbs_send_wr **);
typedef int (*verbs_post_recv)(struct verbs_qp *, struct verbs_recv_wr *, struct verbs_recv_wr **);

/* `operations` lies in the context itself: each context has its own. */
struct verbs_operations {
    void *before_poll[11];
    verbs_poll poll;
    void *before_send[13];
    verbs_post_send post_send;
    verbs_post_recv post_recv;
    void *after_recv[5];
};

struct verbs_context { struct verbs_device *device; struct verbs_operations operations; int32_t command_file; };

struct verbs_address {
    uint8_t gid[16];
    uint32_t flow_label;
    uint8_t gid_index, hop_limit, traffic_class;
    uint16_t lid;
    uint8_t service_level, path_bits, rate, is_global, port;
} __attribute__((aligned(8)));

struct verbs_qp_attributes {
    int32_t state, current_state, path_mtu, migration;
    uint32_t qkey, receive_psn, send_psn, dest_number;
    int32_t access;
    uint32_t capacities[5];
    struct verbs_address address, alternate;
    uint16_t pkey_index, alternate_pkey_index;
    uint8_t drain_notify, draining, read_atomics, dest_read_atomics, rnr_timer, port, timeout, retry_count, rnr_retry;
};

struct verbs_qp_init {
    void *qp_context;
    struct verbs_cq *send_cq, *recv_cq;
    void *srq;
    uint32_t capacities[5];
    int32_t type, all_signaled;
};

#define AT(type, member, offset) _Static_assert(offsetof(struct type, member) == (offset), "libibverbs' layout on LP64")
#if UINTPTR_MAX == UINT64_MAX
AT(verbs_device, name, 24);
AT(verbs_context, operations, 8); AT(verbs_context, operations.poll, 96); AT(verbs_context, operations.post_send, 208);
AT(verbs_context, operations.post_recv, 216); AT(verbs_context, command_file, 264);
AT(verbs_qp, send_cq, 24); AT(verbs_qp, handle, 48); AT(verbs_qp, number, 52);
AT(verbs_send_wr, sges, 16); AT(verbs_send_wr, sge_count, 24); AT(verbs_send_wr, opcode, 28); AT(verbs_send_wr, flags, 32);
AT(verbs_wc, status, 8); AT(verbs_wc, opcode, 12); AT(verbs_wc, vendor_error, 16); AT(verbs_wc, byte_count, 20);
AT(verbs_wc, qp_number, 28); AT(verbs_wc, flags, 36);
AT(verbs_qp_attributes, path_mtu, 8); AT(verbs_qp_attributes, dest_number, 28); AT(verbs_qp_attributes, address, 56);
AT(verbs_qp_attributes, address.gid_index, 76); AT(verbs_qp_attributes, address.lid, 80);
AT(verbs_qp_attributes, address.is_global, 85); AT(verbs_qp_attributes, address.port, 86);
AT(verbs_qp_attributes, port, 129); AT(verbs_qp_attributes, timeout, 130); AT(verbs_qp_attributes, retry_count, 131);
AT(verbs_qp_init, send_cq, 8); AT(verbs_qp_init, type, 52); AT(verbs_qp_init, all_signaled, 56);
_Static_assert(sizeof(struct verbs_send_wr) == 128 && sizeof(struct verbs_wc) == 48 && sizeof(struct verbs_sge) == 16, "");
_Static_assert(sizeof(struct verbs_operations) == 256, "libibverbs' layout on LP64");
#endif
#undef AT

#endif
