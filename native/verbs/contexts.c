/* Device contexts and completion queues that go through us. */
#define _GNU_SOURCE

#include <pthread.h>
#include <string.h>

#include "verbs/hooks.h"

struct hooked_context hooked_contexts[CONTEXTS];
struct polled_cq polled_cqs[CQS];

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

static void forget_in_child(void)
{
    static const pthread_mutex_t fresh = PTHREAD_MUTEX_INITIALIZER;
    struct pair *pair;

    lock = fresh;
    for (uint32_t each = 0; (pair = pair_at(each)) != NULL; each++)
        if (pair->slot != NULL) /* it lies in the parent's log */
            pair->slot = NULL;
}

void verbs_lock(void) { pthread_mutex_lock(&lock); }
void verbs_unlock(void) { pthread_mutex_unlock(&lock); }

static bool is_free(const void *key)
{
    return key == NULL || (uintptr_t)key == GONE;
}

static void forget_cqs(const struct verbs_context *context)
{
    for (uint32_t each = 0; each < CQS; each++)
        if (!is_free(polled_cqs[each].cq) && polled_cqs[each].context == context)
            __atomic_store_n(&polled_cqs[each].cq, (struct verbs_cq *)GONE, __ATOMIC_RELEASE);
}

static struct hooked_context *free_place(const struct verbs_context *context)
{
    for (uint32_t at = place_of(context, CONTEXTS), step = 0; step < CONTEXTS; at = (at + 1) & (CONTEXTS - 1), step++)
        if (is_free(hooked_contexts[at].context) || hooked_contexts[at].context == context)
            return &hooked_contexts[at];
    return NULL;
}

static void swap(struct hooked_context *hooked, struct verbs_context *context)
{
    struct verbs_operations *operations = &context->operations;

    if (operations->post_send != hooked_post_send)
        hooked->post_send = operations->post_send;
    if (operations->post_recv != hooked_post_recv)
        hooked->post_recv = operations->post_recv;
    if (operations->poll != hooked_poll)
        hooked->poll = operations->poll;
    __atomic_store_n(&hooked->context, context, __ATOMIC_RELEASE);
    operations->post_send = hooked_post_send;
    operations->post_recv = hooked_post_recv;
    operations->poll = hooked_poll;
}

static void first_time(void)
{
    static bool done;

    if (done)
        return;
    done = true;
    (void)pthread_atfork(NULL, NULL, forget_in_child);
    probe_setting();
}

static bool looks_known(const struct verbs_context *context)
{
    const struct verbs_operations *operations = &context->operations;

    return operations->poll != NULL && operations->post_send != NULL && operations->post_recv != NULL;
}

void hook_context(struct verbs_context *context)
{
    struct hooked_context *hooked;

    if (!shim_start())
        return;
    if (!looks_known(context)) {
        shim_tell(SHIM_REASON_UNKNOWN_ABI, 0, "a verbs context that does not look like one: left alone");
        return;
    }
    verbs_lock();
    first_time();
    hooked = free_place(context);
    if (hooked != NULL) {
        forget_cqs(context); /* of a context that had this address before */
        swap(hooked, context);
    }
    verbs_unlock();
    if (hooked == NULL)
        return;
    for (int hook = SHIM_HOOK_VERBS_CONTEXT; hook <= SHIM_HOOK_VERBS_MODIFY; hook++)
        shim_cover_hook(SHIM_HOOKED, (enum shim_hook)hook);
    __atomic_fetch_add(&shim_log.live->verbs_contexts, 1u, __ATOMIC_RELAXED);
}

void keep_hooked(struct verbs_context *context)
{
    struct hooked_context *hooked = hooked_context_of(context);

    if (hooked == NULL || (context->operations.poll == hooked_poll && context->operations.post_send == hooked_post_send))
        return;
    verbs_lock();
    forget_cqs(context); /* they remember the poll function of before */
    swap(hooked, context);
    verbs_unlock();
}

/* Before it is closed: the provider finds its table as it left it. */
void unhook_context(struct verbs_context *context)
{
    struct hooked_context *hooked = hooked_context_of(context);

    if (hooked == NULL)
        return;
    context->operations.post_send = hooked->post_send;
    context->operations.post_recv = hooked->post_recv;
    context->operations.poll = hooked->poll;
}

void forget_context(struct verbs_context *context)
{
    struct hooked_context *hooked = hooked_context_of(context);

    if (hooked == NULL)
        return;
    verbs_lock();
    forget_cqs(context);
    __atomic_store_n(&hooked->context, (struct verbs_context *)GONE, __ATOMIC_RELEASE);
    verbs_unlock();
}

static struct polled_cq *find_cq(const struct verbs_cq *cq, bool or_free)
{
    struct polled_cq *free_one = NULL;

    for (uint32_t at = place_of(cq, CQS), step = 0; step < CQS; at = (at + 1) & (CQS - 1), step++) {
        struct polled_cq *entry = &polled_cqs[at];

        if (entry->cq == cq)
            return entry;
        if (is_free(entry->cq) && free_one == NULL)
            free_one = entry;
        if (entry->cq == NULL)
            break;
    }
    return or_free ? free_one : NULL;
}

static void fill_cq(struct polled_cq *entry, struct verbs_cq *cq, const struct hooked_context *hooked)
{
    entry->context = cq->context;
    entry->poll = hooked->poll;
    entry->stamp = shim_now();
    entry->empties = 0;
    __atomic_store_n(&entry->cq, cq, __ATOMIC_RELEASE);
}

/* First poll of a queue, and every poll of one whose place in the table is taken by another. */
struct polled_cq *meet_cq(struct verbs_cq *cq)
{
    struct hooked_context *hooked = hooked_context_of(cq->context);
    struct polled_cq *entry;
    bool is_new;

    verbs_lock();
    entry = find_cq(cq, true);
    is_new = entry != NULL && (entry->cq != cq || entry->context != cq->context);
    if (is_new && hooked != NULL)
        fill_cq(entry, cq, hooked);
    verbs_unlock();
    if (is_new)
        pairs_polled(cq);
    return entry;
}

void forget_cq(const struct verbs_cq *cq)
{
    struct polled_cq *entry;

    verbs_lock();
    entry = find_cq(cq, false);
    if (entry != NULL)
        __atomic_store_n(&entry->cq, (struct verbs_cq *)GONE, __ATOMIC_RELEASE);
    verbs_unlock();
}
