#define _GNU_SOURCE

#include "truth.h"

#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

#include "bed.h"

static const char *const NAMES[TRUTH_KINDS] = {"calls", "works", "steps", "qps"};
static struct truth_header *files[TRUTH_KINDS];
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

static struct truth_header *create(enum truth_kind kind)
{
    const char *folder = getenv("TESTBED_TRUTH");
    size_t size = 64 * (TRUTH_ROWS + 1);
    char path[BED_PATH];
    void *memory = MAP_FAILED;
    int file;

    if (folder == NULL || snprintf(path, sizeof path, "%s/%d.%s", folder, bed_rank(), NAMES[kind]) >= BED_PATH)
        return NULL;
    file = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
    if (file >= 0 && ftruncate(file, (off_t)size) == 0)
        memory = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
    if (file >= 0)
        close(file);
    return memory != MAP_FAILED ? memory : NULL;
}

void *truth_row(enum truth_kind kind)
{
    static _Alignas(64) char nowhere[64];
    struct truth_header *file;
    uint64_t row;

    if (getenv("TESTBED_TRUTH") == NULL)
        return nowhere;
    pthread_mutex_lock(&lock);
    if (files[kind] == NULL)
        files[kind] = create(kind);
    file = files[kind];
    pthread_mutex_unlock(&lock);
    if (file == NULL)
        return nowhere;
    row = atomic_fetch_add(&file->rows, 1);
    return row < TRUTH_ROWS ? (char *)file + 64 * (row + 1) : nowhere;
}
