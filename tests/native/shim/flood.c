/* Writes records as fast as it can until it is killed: `flood TRUTH THREADS`. Each record says by itself whether it is whole;
 * TRUTH holds, for each thread, how many were published. Built with the writer's own sources. */
#define _GNU_SOURCE
#include <fcntl.h>
#include <pthread.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "ring/log.h"

struct truth {
    uint64_t thread, published;
};

static void *flood(void *place)
{
    struct truth *truth = place;

    truth->thread = (uint64_t)syscall(SYS_gettid);
    for (uint64_t number = 1;; number++) {
        struct shim_call *call = (struct shim_call *)shim_reserve(SHIM_RING_CALLS);

        if (call == NULL)
            return NULL;
        memset((char *)call + 8, (int)(number & 0xFF), 48);
        call->count = number;
        call->stream = number * 0x9E3779B97F4A7C15ull;
        call->enter = ~call->stream;
        call->kind = SHIM_ALL_REDUCE;
        call->generation = 0;
        call->comm = SHIM_NO_COMM;
        call->leave = 0;
        shim_publish((struct shim_record *)call, SHIM_RING_CALLS);
        __atomic_store_n(&truth->published, number, __ATOMIC_RELEASE);
    }
}

int main(int argc, char **argv)
{
    int file = open(argv[1], O_RDWR | O_CREAT, 0600), count = argc > 2 ? atoi(argv[2]) : 1;
    pthread_t thread;
    struct truth *truth;

    if (ftruncate(file, 4096) != 0 || !shim_start())
        return 1;
    truth = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
    for (int each = 1; each < count; each++)
        pthread_create(&thread, NULL, flood, truth + each);
    flood(truth);
    return 2;
}
