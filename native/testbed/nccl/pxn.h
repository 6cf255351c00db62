/* PXN: what a rank sends to another host goes out through the process of a peer of its own host, the one whose device is on the rail
 * of the receiver. The peer's proxy thread owns the queue pair and moves the steps; the rank asks for it in a mapped box. */
#ifndef TESTBED_PXN_H
#define TESTBED_PXN_H

#include "comm.h"

int pxn_is_on(void);
/* The rank of the communicator whose process sends for this one to a peer; -1: it does so itself. */
int pxn_rank(const struct ncclComm *comm, int peer);
/* Maps a link's memory and asks the other process to open it. */
int pxn_open(struct link *link, int through, const char *file);
/* An operation of a link that another process serves. */
void pxn_append(const struct link *link, const struct proxy_op *op);
/* By the proxy thread: takes what peers ask for. Returns how many operations were added. */
int pxn_take(struct ncclComm *comm, struct proxy_op **active);
/* By the proxy thread, when an operation of another process is done. */
void pxn_done(const struct proxy_op *op);
/* Whether nobody's requests wait, neither those of others here nor own ones elsewhere. */
int pxn_is_drained(const struct ncclComm *comm);
void pxn_close(struct ncclComm *comm);

#endif
