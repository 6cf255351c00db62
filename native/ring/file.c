/* The file of the log: allocated in full before it is used, so that a full disk is found here and not as a SIGBUS in training. */
#define _GNU_SOURCE

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include "ring/internal.h"

#ifndef MADV_POPULATE_WRITE
#define MADV_POPULATE_WRITE 23 /* Linux 5.14 */
#endif

#define SHARE 16u           /* of the free space: what eight ranks take at one time leaves half of it */
#define HIGH_DESCRIPTOR 300 /* programs count on the low numbers */

static void *map(int descriptor, uint64_t bytes)
{
    void *base = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_POPULATE, descriptor, 0);

    if (base != MAP_FAILED)
        (void)madvise(base, bytes, MADV_POPULATE_WRITE); /* else the first write to each page is a fault in the job */
    return base;
}

static void complete(struct shim_file *file, uint64_t size)
{
    struct shim_log parts = {0};
    struct shim_head *head = file->base;

    shim_lay_out(&parts, file->base);
    shim_lay_out_rings(&parts, size);
    head->file_bytes = file->bytes;
    head->checksum = 0;
    head->checksum = shim_crc32(head, SHIM_HEAD_BYTES);
}

/* Beyond the limit on file sizes the kernel would not only refuse: it would send a signal that ends the job. */
static int reserve(int descriptor, uint64_t bytes)
{
    struct rlimit limit;

    if (getrlimit(RLIMIT_FSIZE, &limit) == 0 && limit.rlim_cur != RLIM_INFINITY && limit.rlim_cur < bytes)
        return EFBIG;
    return ftruncate(descriptor, 0) == 0 ? posix_fallocate(descriptor, 0, (off_t)bytes) : errno;
}

/* Others need the file system too, above all data loaders: all we may take of it. */
static uint64_t share_of(int descriptor)
{
    struct statvfs facts;

    if (fstatvfs(descriptor, &facts) != 0 || facts.f_blocks == 0)
        return UINT64_MAX; /* it does not tell */
    return (uint64_t)facts.f_bavail * facts.f_frsize / SHARE;
}

static enum shim_reason reserve_share(struct shim_file *file, uint64_t share)
{
    file->error = 0;
    if (file->bytes > share)
        return SHIM_REASON_SHARE;
    file->error = reserve(file->descriptor, file->bytes);
    return file->error != 0 ? SHIM_REASON_SHRUNK : SHIM_REASON_NONE;
}

static void give_up(struct shim_file *file, enum shim_reason reason, int error)
{
    file->base = NULL;
    file->reason = reason;
    file->error = error;
}

static void fill(struct shim_file *file, const struct shim_head *head, uint64_t size)
{
    file->base = map(file->descriptor, file->bytes);
    if (file->base == MAP_FAILED) {
        give_up(file, SHIM_REASON_CANNOT_MAP, errno);
        return;
    }
    memcpy(file->base, head, sizeof *head);
    complete(file, size);
}

/* The largest file between the budget and the least one that there is room for; its head is `identity`, complete. */
static void allocate(struct shim_file *file, const struct shim_head *identity, uint64_t budget)
{
    uint64_t share = share_of(file->descriptor);
    enum shim_reason refusal, before = SHIM_REASON_NONE;

    for (uint64_t size = budget; size >= SHIM_LEAST_BYTES; size /= 2, before = refusal) {
        struct shim_head head = *identity;

        file->bytes = shim_plan(&head, size);
        refusal = reserve_share(file, share);
        if (refusal != SHIM_REASON_NONE)
            continue;
        file->reason = before;
        fill(file, &head, size);
        return;
    }
    give_up(file, before == SHIM_REASON_SHARE ? SHIM_REASON_NO_SHARE : SHIM_REASON_NO_SPACE, file->error);
}

/* Gives the file its name. exec keeps pid and start time, so that the name may be taken by what ran here before. */
static bool publish(int folder, const struct shim_place *place, const char *temporary)
{
    char name[SHIM_NAME_BYTES + 16];

    for (int turn = 1; turn < 1000; turn++) {
        if (turn == 1)
            snprintf(name, sizeof name, "%s.frx", place->name);
        else
            snprintf(name, sizeof name, "%s-%d.frx", place->name, turn);
        if (linkat(folder, temporary, folder, name, 0) == 0) {
            unlinkat(folder, temporary, 0);
            return true;
        }
        if (errno != EEXIST)
            return faccessat(folder, name, F_OK, AT_SYMLINK_NOFOLLOW) != 0 && renameat(folder, temporary, folder, name) == 0;
    }
    return false;
}

static uint64_t budget(void)
{
    uint64_t wanted = strtoull(shim_setting("FORENSICS_SHIM_BYTES", "8388608"), NULL, 10);

    return wanted < SHIM_LEAST_BYTES ? SHIM_LEAST_BYTES : wanted > SHIM_MOST_BYTES ? SHIM_MOST_BYTES : wanted;
}

/* The lock says that the process lives, to whoever cleans up here, in whatever process namespace. */
static int create(int folder, const char *temporary)
{
    int descriptor, high;

    (void)unlinkat(folder, temporary, 0); /* of an exec that was killed here */
    descriptor = openat(folder, temporary, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, shim_file_mode());
    if (descriptor < 0)
        return -1;
    (void)fchmod(descriptor, shim_file_mode()); /* umask may have taken the group's bits */
    (void)flock(descriptor, LOCK_EX | LOCK_NB);
    high = fcntl(descriptor, F_DUPFD_CLOEXEC, HIGH_DESCRIPTOR);
    if (high < 0)
        return descriptor;
    close(descriptor);
    return high;
}

static void make(struct shim_file *file, int folder, const struct shim_head *identity, const struct shim_place *place)
{
    char temporary[SHIM_NAME_BYTES + 8];

    snprintf(temporary, sizeof temporary, "%s.tmp", place->name);
    file->descriptor = create(folder, temporary);
    if (file->descriptor < 0) {
        file->error = errno;
        return;
    }
    allocate(file, identity, budget());
    if (file->base != NULL && !publish(folder, place, temporary)) {
        int error = errno;

        munmap(file->base, file->bytes);
        give_up(file, SHIM_REASON_CANNOT_CREATE, error);
    }
    if (file->base != NULL)
        return;
    (void)unlinkat(folder, temporary, 0);
    close(file->descriptor);
}

struct shim_file shim_open_file(const struct shim_head *identity)
{
    struct shim_file file = {.reason = SHIM_REASON_CANNOT_CREATE, .descriptor = -1};
    int folder;

    shim_find_place(&file.place, identity);
    folder = shim_open_folder(&file.place);
    if (folder < 0) {
        shim_leave_note(&file.place, file.place.reason, file.place.error);
        return file;
    }
    shim_remove_old_logs(folder, &file.place);
    make(&file, folder, identity, &file.place);
    close(folder);
    if (file.base == NULL)
        shim_leave_note(&file.place, file.reason, file.error);
    return file;
}
