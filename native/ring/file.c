/* The file of the log: allocated in full before it is used, so that a full disk is found here and not as a SIGBUS in training. */
#define _GNU_SOURCE

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include "ring/internal.h"

#ifndef MADV_POPULATE_WRITE
#define MADV_POPULATE_WRITE 23 /* Linux 5.14 */
#endif

#define ROOT_BYTES 513

struct place {
    char folder[768];
    char name[960]; /* without the ending */
};

/* A file name from text of unknown origin. */
static void clean(char *text)
{
    static const char allowed[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789_-.";

    for (size_t at = 0; text[at] != '\0'; at++)
        if (strchr(allowed, text[at]) == NULL || (at == 0 && text[at] == '.'))
            text[at] = '_';
}

static void make_parents(const char *root)
{
    char path[ROOT_BYTES];

    snprintf(path, sizeof path, "%s", root);
    for (char *cut = path + 1; (cut = strchr(cut, '/')) != NULL; *cut++ = '/') {
        *cut = '\0';
        (void)mkdir(path, 0755);
    }
}

static bool make_folders(struct place *place, const char *root, const char *job)
{
    make_parents(root);
    if (mkdir(root, 01777) == 0)
        (void)chmod(root, 01777); /* shared by all users of the host, like /tmp: umask must not decide */
    snprintf(place->folder, sizeof place->folder, "%s/%s", root, job);
    return mkdir(place->folder, 0755) == 0 || errno == EEXIST;
}

static bool find_place(struct place *place, const struct shim_head *identity)
{
    const char *root = shim_setting("FORENSICS_SHIM_DIR", "/dev/shm/forensics");
    char job[sizeof identity->job], host[sizeof identity->host], rank[16] = "x";

    if (*root == '\0' || strlen(root) >= ROOT_BYTES)
        return false;
    memcpy(job, identity->job, sizeof job);
    memcpy(host, identity->host, sizeof host);
    clean(job);
    clean(host);
    if (identity->rank >= 0)
        snprintf(rank, sizeof rank, "%d", identity->rank);
    if (!make_folders(place, root, job))
        return false;
    snprintf(place->name, sizeof place->name, "%s/%s.%s.%llu.%llu", place->folder, host, rank,
             (unsigned long long)identity->pid, (unsigned long long)identity->process_start);
    return true;
}

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

/* The largest file between the budget and the least one that there is room for; its head is `identity`, complete. */
static struct shim_file allocate(int descriptor, const struct shim_head *identity, uint64_t budget)
{
    struct shim_file file = {0};

    for (uint64_t size = budget; size >= SHIM_LEAST_BYTES; size /= 2) {
        struct shim_head head = *identity;

        file.bytes = shim_plan(&head, size);
        file.error = reserve(descriptor, file.bytes);
        if (file.error != 0)
            continue;
        file.base = map(descriptor, file.bytes);
        if (file.base == MAP_FAILED) {
            file = (struct shim_file){.reason = SHIM_REASON_CANNOT_MAP, .error = errno};
            return file;
        }
        memcpy(file.base, &head, sizeof head);
        complete(&file, size);
        file.reason = size < budget ? SHIM_REASON_SHRUNK : SHIM_REASON_NONE;
        return file;
    }
    file.reason = SHIM_REASON_NO_SPACE;
    return file;
}

/* Gives the file its name. exec keeps pid and start time, so that the name may be taken by what ran here before. */
static bool publish(const struct place *place, const char *temporary)
{
    char path[1024];

    for (int turn = 1; turn < 1000; turn++) {
        if (turn == 1)
            snprintf(path, sizeof path, "%s.frx", place->name);
        else
            snprintf(path, sizeof path, "%s-%d.frx", place->name, turn);
        if (link(temporary, path) == 0) {
            unlink(temporary);
            return true;
        }
        if (errno != EEXIST)
            return access(path, F_OK) != 0 && rename(temporary, path) == 0;
    }
    return false;
}

/* Where there is no log, a line in its place says why: no log must not read as a process that never used NCCL. It names the
 * process, for a reader takes files of equal bytes for copies of one. */
static void leave_note(const struct place *place, const struct shim_file *file)
{
    const char *folder_end = strrchr(place->name, '/'), *name = folder_end != NULL ? folder_end + 1 : place->name;
    char path[1024], line[512];
    int descriptor, length;

    length = snprintf(line, sizeof line, "FRXSHIM-OFF 1 reason=%d errno=%d of=%.400s\n", (int)file->reason, file->error, name);
    snprintf(path, sizeof path, "%s.off", place->name);
    descriptor = open(path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, 0644);
    if (descriptor < 0)
        return;
    if (write(descriptor, line, (size_t)length) != length)
        (void)unlink(path);
    close(descriptor);
}

static uint64_t budget(void)
{
    uint64_t wanted = strtoull(shim_setting("FORENSICS_SHIM_BYTES", "8388608"), NULL, 10);

    return wanted < SHIM_LEAST_BYTES ? SHIM_LEAST_BYTES : wanted > SHIM_MOST_BYTES ? SHIM_MOST_BYTES : wanted;
}

struct shim_file shim_open_file(const struct shim_head *identity)
{
    struct shim_file file = {.reason = SHIM_REASON_CANNOT_CREATE};
    struct place place;
    char temporary[1024];
    int descriptor;

    if (!find_place(&place, identity))
        return file;
    snprintf(temporary, sizeof temporary, "%s.tmp", place.name);
    (void)unlink(temporary); /* of an exec that was killed here */
    descriptor = open(temporary, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, 0644);
    file.error = errno;
    if (descriptor < 0)
        return file;
    file = allocate(descriptor, identity, budget());
    if (file.base != NULL && !publish(&place, temporary)) {
        munmap(file.base, file.bytes);
        file = (struct shim_file){.reason = SHIM_REASON_CANNOT_CREATE, .error = errno};
    }
    close(descriptor);
    if (file.base == NULL) {
        (void)unlink(temporary);
        leave_note(&place, &file);
    }
    return file;
}
