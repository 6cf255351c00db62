/* The lock of the slow paths: making a log, taking a ring, claiming a communicator or a queue pair. Never on a hot path. */
#include <pthread.h>

#include "ring/internal.h"

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

void shim_lock(void)
{
    pthread_mutex_lock(&lock);
}

void shim_unlock(void)
{
    pthread_mutex_unlock(&lock);
}

/* Whoever held it in the parent is no thread of the child. */
void shim_unlock_in_child(void)
{
    static const pthread_mutex_t fresh = PTHREAD_MUTEX_INITIALIZER;

    lock = fresh;
}
