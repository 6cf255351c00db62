/* The proxy: one thread per communicator that moves the steps of network links, and tells the profiler in NCCL's order.
 *
 * Sender: a step is posted, the GPU fills it, the peer's credit is asked for in every turn until it is there, it goes out, it
 * completes. Receiver: posted with its credit, arrived, flushed, consumed by the GPU. At most one move per turn. */
#include "comm.h"
#include "fault.h"
#include "net.h"
#include "profiler.h"
#include "pxn.h"

#include <stdlib.h>

static int gpu_filled(const struct proxy_op *op)
{
    return atomic_load(&op->link->slots->tail) > op->base + op->transmitted;
}

static void post_send_step(struct proxy_op *op)
{
    profiler_step_start(op, op->posted);
    op->posted++;
    truth_count(&op->truth->posted);
    profiler_step_state(op, op->posted - 1, STATE_SEND_GPU_WAIT);
    profiler_op_state(op, STATE_OP_SEND_POSTED, op->posted);
}

/* 1: sent. 0: no credit yet. */
static int transmit(struct proxy_op *op)
{
    struct slots *slots = op->link->slots;
    uint32_t slot = (uint32_t)((op->base + op->transmitted) % STEPS);
    int status;

    if (op->ready == op->transmitted) {
        op->ready++;
        truth_count(&op->truth->ready);
    }
    profiler_step_state(op, op->transmitted, STATE_SEND_PEER_WAIT);
    profiler_op_state(op, STATE_OP_SEND_REM_FIFO_WAIT, op->transmitted);
    status = net_send(op->link->net, slot, (size_t)atomic_load(&slots->sizes[slot]));
    if (status <= 0)
        return status;
    op->moved = (size_t)atomic_load(&slots->sizes[slot]);
    op->transmitted++;
    truth_count(&op->truth->transmitted);
    profiler_step_state(op, op->transmitted - 1, STATE_SEND_WAIT);
    profiler_op_state(op, STATE_OP_SEND_TRANSMITTED, op->transmitted);
    return 1;
}

static int finish_send_step(struct proxy_op *op)
{
    if (net_poll(op->link->net) < 0)
        return -1;
    if ((int32_t)(op->link->net->sent - (uint32_t)(op->base + op->done)) <= 0)
        return 0;
    op->done++;
    truth_count(&op->truth->done);
    profiler_step_stop(op, op->done - 1);
    profiler_op_state(op, STATE_OP_SEND_DONE, op->done);
    atomic_fetch_add(&op->link->slots->head, 1);
    return 1;
}

/* 1: something moved. 0: nothing to do. Negative: the network broke. */
static int move_send(struct proxy_op *op)
{
    int status = 0;

    if (op->posted < op->total && op->posted < op->done + STEPS) {
        post_send_step(op);
        return 1;
    }
    if (op->transmitted < op->posted && gpu_filled(op))
        status = transmit(op);
    if (status == 0 && op->done < op->transmitted)
        status = finish_send_step(op);
    return status;
}

static int withheld(const struct proxy_op *op)
{
    const struct fault *fault = fault_now(FAULT_CREDIT_WITHHELD);

    return fault != NULL && (fault->peer < 0 || fault->peer == op->link->peer);
}

static int post_recv_step(struct proxy_op *op)
{
    if (withheld(op))
        return 0;
    profiler_step_start(op, op->posted);
    if (net_receive(op->link->net, (uint32_t)((op->base + op->posted) % STEPS)) < 0)
        return -1;
    op->posted++;
    truth_count(&op->truth->posted);
    profiler_step_state(op, op->posted - 1, STATE_RECV_WAIT);
    profiler_op_state(op, STATE_OP_RECV_POSTED, op->posted);
    return 1;
}

static int take_arrival(struct proxy_op *op)
{
    struct net_end *net = op->link->net;
    uint32_t step = (uint32_t)(op->base + op->received);

    if ((int32_t)(net->arrived - step) <= 0)
        return 0;
    op->moved = (size_t)net->lengths[step % STEPS];
    atomic_store(&op->link->slots->sizes[step % STEPS], net->lengths[step % STEPS]);
    op->received++;
    truth_count(&op->truth->received);
    profiler_step_state(op, op->received - 1, STATE_RECV_FLUSH_WAIT);
    profiler_op_state(op, STATE_OP_RECV_RECEIVED, op->received);
    return net_flush(net, step % STEPS);
}

static int take_flush(struct proxy_op *op)
{
    if ((int32_t)(op->link->net->flushed - (uint32_t)(op->base + op->flushed)) <= 0)
        return 0;
    op->flushed++;
    truth_count(&op->truth->flushed);
    profiler_step_state(op, op->flushed - 1, STATE_RECV_GPU_WAIT);
    profiler_op_state(op, STATE_OP_RECV_TRANSMITTED, op->flushed);
    atomic_fetch_add(&op->link->slots->tail, 1);
    return 1;
}

static int take_consumed(struct proxy_op *op)
{
    int moved = 0;

    while (op->done < op->flushed && atomic_load(&op->link->slots->head) > op->base + op->done) {
        op->done++;
        truth_count(&op->truth->done);
        profiler_step_stop(op, op->done - 1);
        profiler_op_state(op, STATE_OP_RECV_DONE, op->done);
        moved = 1;
    }
    return moved;
}

static int move_recv(struct proxy_op *op)
{
    int status = 0;

    if (op->posted < op->total && op->posted < op->done + STEPS)
        status = post_recv_step(op);
    if (status == 0 && op->done < op->posted && net_poll(op->link->net) < 0)
        return -1;
    if (status == 0 && op->received < op->posted)
        status = take_arrival(op);
    if (status == 0 && op->flushed < op->received)
        status = take_flush(op);
    return status == 0 ? take_consumed(op) : status;
}

static int move_op(struct proxy_op *op)
{
    struct link *link = op->link;

    if (link->current != NULL && link->current != op)
        return 0;
    if (op->box != NULL && link_is_ready(link) <= 0)
        return link_is_ready(link);
    if (!op->started) {
        link->current = op;
        op->started = 1;
        op->base = link->base;
        link->base += op->total;
        profiler_op_state(op, STATE_OP_IN_PROGRESS, 0);
    }
    return link->is_send ? move_send(op) : move_recv(op);
}

/* One turn over all operations; finished ones leave. */
static int turn(struct ncclComm *comm)
{
    struct proxy *proxy = &comm->proxy;
    int moved = 0;

    for (struct proxy_op **at = &proxy->active; *at != NULL;) {
        struct proxy_op *op = *at;
        int status = move_op(op);

        if (status < 0) {
            atomic_store(&comm->error, ncclRemoteError);
            return -1;
        }
        moved += status;
        if (op->done < op->total) {
            at = &op->next;
            continue;
        }
        profiler_op_stop(op);
        op->link->current = NULL;
        *at = op->next;
        if (op->box != NULL)
            pxn_done(op);
        else
            atomic_fetch_sub(&proxy->left, 1);
        free(op);
    }
    return moved;
}

static int take_inbox(struct ncclComm *comm, int wait)
{
    struct proxy *proxy = &comm->proxy;
    struct proxy_op *taken, **end = &proxy->active;
    int added = 0;

    pthread_mutex_lock(&proxy->lock);
    while (wait && proxy->inbox == NULL && !proxy->ending)
        pthread_cond_wait(&proxy->changed, &proxy->lock);
    taken = proxy->inbox;
    proxy->inbox = NULL;
    pthread_mutex_unlock(&proxy->lock);
    while (*end != NULL)
        end = &(*end)->next;
    *end = taken;
    for (; taken != NULL; taken = taken->next, added++)
        profiler_op_start(taken);
    return added + pxn_take(comm, &proxy->active);
}

static void discard(struct proxy_op *list)
{
    while (list != NULL) {
        struct proxy_op *next = list->next;

        free(list);
        list = next;
    }
}

static void *run(void *argument)
{
    struct ncclComm *comm = argument;
    struct proxy *proxy = &comm->proxy;
    unsigned idle = 0;
    int was_idle = 1, moved;

    while (!proxy->ending && !atomic_load(&comm->aborted)) {
        int broken = atomic_load(&comm->error) != ncclSuccess;
        int added = take_inbox(comm, (proxy->active == NULL || broken) && !pxn_is_on());

        if (added > 0)
            profiler_control(comm, added);
        moved = broken ? 0 : turn(comm);
        if (was_idle != (moved == 0))
            profiler_control_idle(comm, moved == 0);
        was_idle = moved == 0;
        if (moved > 0)
            bed_moved();
        idle = moved > 0 ? 0 : idle;
        if (moved == 0)
            bed_pause(&idle);
    }
    discard(proxy->active);
    discard(proxy->inbox);
    return NULL;
}

ncclResult_t proxy_start(struct ncclComm *comm)
{
    pthread_mutex_init(&comm->proxy.lock, NULL);
    pthread_cond_init(&comm->proxy.changed, NULL);
    comm->proxy.running = pthread_create(&comm->proxy.thread, NULL, run, comm) == 0;
    return comm->proxy.running ? ncclSuccess : ncclSystemError;
}

void proxy_stop(struct ncclComm *comm)
{
    if (!comm->proxy.running)
        return;
    pthread_mutex_lock(&comm->proxy.lock);
    comm->proxy.ending = 1;
    pthread_cond_broadcast(&comm->proxy.changed);
    pthread_mutex_unlock(&comm->proxy.lock);
    pthread_join(comm->proxy.thread, NULL);
    comm->proxy.running = 0;
}

void proxy_append(struct ncclComm *comm, struct proxy_op *op)
{
    struct proxy_op **end = &comm->proxy.inbox;

    atomic_fetch_add(&comm->proxy.left, 1);
    pthread_mutex_lock(&comm->proxy.lock);
    while (*end != NULL)
        end = &(*end)->next;
    *end = op;
    pthread_cond_broadcast(&comm->proxy.changed);
    pthread_mutex_unlock(&comm->proxy.lock);
}
