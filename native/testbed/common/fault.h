/* The faults of a job, read from TESTBED_FAULT by the doubles alone: "kind:rank=1,step=2,peer=0;kind:...".
 *
 * rank: the rank at fault (-1: every rank). step, until: first and last step in which it acts. peer: the other end of a
 * link. oneway: 1 if a link fault meets only what `rank` sends. us: microseconds. ms: how long a dead link is silent before
 * the completion with an error. status: of that completion. after: how many work requests of a queue pair pass first. pair: which
 * exchange with other stages of a step it strikes, from 1, instead of a collective. */
#ifndef TESTBED_FAULT_H
#define TESTBED_FAULT_H


enum fault_kind {
    FAULT_NEVER_CALLS,     /* the host code blocks before the collective */
    FAULT_COMPUTE_STALL,   /* a compute kernel never ends */
    FAULT_CREDIT_WITHHELD, /* the proxy posts no receive buffers */
    FAULT_LINK_DOWN,       /* nothing on the link is acknowledged */
    FAULT_LINK_SLOW,       /* every work request on the link takes `us` */
    FAULT_CQE_ERROR,       /* a work request completes with `status` */
    FAULT_KILL,            /* SIGKILL */
    FAULT_STOP,            /* SIGSTOP */
    FAULT_SKIP,            /* a collective is not called */
    FAULT_REORDER,         /* two collectives are called in the other order */
    FAULT_WRONG_SIZE,      /* a collective is called with another count */
    FAULT_LATE,            /* the host code comes `us` late */
    FAULT_JITTER,          /* everything takes up to `us` longer, at random */
    FAULT_KINDS
};

struct fault {
    enum fault_kind kind;
    int rank, peer, step, until, oneway, pair;
    long us, ms, status, after;
};

/* The fault of a kind that acts now on this rank, or NULL. */
const struct fault *fault_now(enum fault_kind kind);
/* The same for the faults that name this exchange of the step. */
const struct fault *fault_on_pair(enum fault_kind kind, int pair);
/* The fault of a kind that acts now on what this rank sends to another, or NULL. */
const struct fault *fault_on_link(enum fault_kind kind, int other);
/* A pause of up to `us` microseconds where the jitter fault acts. */
void fault_jitter(void);

#endif
