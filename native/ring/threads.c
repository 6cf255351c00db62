/* Gives each thread its rings, and takes them back when it ends. */
#define _GNU_SOURCE

#include <errno.h>
#include <pthread.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "ring/internal.h"

static struct shim_cursor pool[SHIM_MAX_THREADS][SHIM_RING_CLASSES];
static bool taken[SHIM_MAX_THREADS];
static pthread_key_t key;
static bool have_key;

/* The record that tells who goes on with a ring. */
static void introduce(enum shim_ring_class ring_class, uint32_t thread)
{
    struct shim_call *record = (struct shim_call *)shim_reserve(ring_class);

    if (record == NULL)
        return;
    record->enter = record->leave = shim_now();
    record->count = thread;
    record->stream = 0;
    record->op_number = record->p2p_number = 0;
    record->peer = SHIM_UNKNOWN;
    record->dtype = record->redop = 255;
    record->depth = record->result = record->generation = 0;
    record->kind = SHIM_THREAD;
    record->comm = SHIM_NO_COMM;
    shim_publish((struct shim_record *)record, ring_class);
}

static struct shim_ring *free_ring(enum shim_ring_class ring_class)
{
    struct shim_ring *best = NULL;

    for (uint32_t each = 0; each < shim_log.ring_count; each++) {
        struct shim_ring *ring = &shim_log.rings[each];

        if (ring->ring_class != (uint32_t)ring_class || SHIM_LOAD(ring->owned))
            continue;
        if (best == NULL || SHIM_LOAD(ring->head) < SHIM_LOAD(best->head))
            best = ring;
    }
    return best;
}

static void own(struct shim_cursor *cursor, struct shim_ring *ring)
{
    SHIM_STORE(ring->owned, 1u);
    cursor->thread = (uint32_t)syscall(SYS_gettid);
    SHIM_STORE(ring->thread, cursor->thread);
    SHIM_STORE(ring->owned_from, SHIM_LOAD(ring->head));
    SHIM_ADD(ring->owners, 1u);
    (void)prctl(PR_GET_NAME, ring->thread_name, 0, 0, 0);
    cursor->ring = ring;
    cursor->mask = ring->records - 1;
    cursor->next = SHIM_LOAD(ring->head);
    cursor->records = &shim_log.records[ring->first];
}

static struct shim_cursor *free_cursors(void)
{
    for (int each = 0; each < SHIM_MAX_THREADS; each++) {
        if (taken[each])
            continue;
        taken[each] = true;
        memset(pool[each], 0, sizeof pool[each]);
        return pool[each];
    }
    return NULL;
}

/* The next owner goes on where this one ended. */
static void let_go(const struct shim_cursor *cursor)
{
    if (cursor->ring == NULL)
        return;
    SHIM_STORE(cursor->ring->head, cursor->next);
    __atomic_store_n(&cursor->ring->owned, 0u, __ATOMIC_RELEASE);
}

/* Runs when the thread ends. What it records later makes it take rings again, and the library calls here again. */
static void give_back(void *value)
{
    struct shim_cursor *cursors = value;

    if (shim_self.cursors != cursors)
        return; /* of the parent: this is the forked thread of a child */
    shim_lock();
    for (int each = 0; each < SHIM_RING_CLASSES; each++)
        let_go(shim_cursor(&shim_self, each));
    shim_self.cursors = NULL;
    memset(&shim_self.calls, 0, sizeof shim_self.calls);
    taken[(cursors - pool[0]) / SHIM_RING_CLASSES] = false;
    shim_unlock();
}

static bool take(enum shim_ring_class ring_class)
{
    struct shim_ring *ring;
    bool is_new = shim_self.cursors == NULL;

    ring = free_ring(ring_class);
    if (ring == NULL || ring->records == 0) /* the file was cut: recording is over */
        return false;
    if (is_new && (shim_self.cursors = free_cursors()) == NULL)
        return false;
    own(shim_cursor(&shim_self, ring_class), ring);
    if (is_new)
        SHIM_ADD(shim_log.live->threads, 1u);
    if (is_new && have_key)
        (void)pthread_setspecific(key, shim_self.cursors);
    return true;
}

struct shim_record *shim_reserve_first(enum shim_ring_class ring_class)
{
    int error = errno;
    bool got = false;

    if ((shim_self.refused & (1u << ring_class)) == 0) {
        shim_lock();
        got = take(ring_class);
        shim_unlock();
    }
    if (!got) {
        shim_self.refused |= 1u << ring_class;
        SHIM_ADD(shim_log.live->dropped[ring_class], 1u);
        errno = error;
        return NULL;
    }
    introduce(ring_class, shim_cursor(&shim_self, ring_class)->thread);
    errno = error;
    return shim_reserve(ring_class);
}

void shim_threads_start(void)
{
    if (!have_key)
        have_key = pthread_key_create(&key, give_back) == 0;
}

void shim_threads_forget(void)
{
    memset(taken, 0, sizeof taken);
    if (have_key)
        (void)pthread_setspecific(key, NULL);
}
