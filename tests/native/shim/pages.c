/* Prints how many pages of data of the collector a call touches, and one of point to point: `pages`. The kernel's marks of referenced
 * pages are cleared before the call and read after it. Exits with 77 where the kernel keeps no such marks. */
#define _GNU_SOURCE
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <stdint.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "nccl_double.h"

#define WALK (64u << 20)

static ncclComm_t comm;
static char maps[1 << 20];

/* Clearing leaves translations in the processor, and a page that needs no walk is not marked: so many others are walked that they go. */
static void clear_marks(void)
{
    static volatile char *many;

    int file = open("/proc/self/clear_refs", O_WRONLY);

    if (file < 0 || write(file, "1", 1) != 1)
        exit(77);
    close(file);
    if (many == NULL) {
        many = mmap(NULL, WALK, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        (void)madvise((void *)(uintptr_t)many, WALK, MADV_NOHUGEPAGE);
    }
    for (size_t at = 0; at < WALK; at += 4096)
        many[at]++;
}

static void read_maps(void)
{
    int file = open("/proc/self/smaps", O_RDONLY);
    size_t used = 0;
    ssize_t got;

    while (file >= 0 && (got = read(file, maps + used, sizeof maps - 1 - used)) > 0)
        used += (size_t)got;
    maps[used] = '\0';
    close(file);
}

/* The library's data, what lies behind it without a name (its zeroed data), and the log. */
static long touched_kib(void)
{
    long total = 0, value;
    unsigned long begin, end, after_library = 0;
    const char *logs = getenv("FORENSICS_SHIM_DIR");
    char rights[8], *line;
    int is_ours = 0;

    read_maps();
    for (line = strtok(maps, "\n"); line != NULL; line = strtok(NULL, "\n")) {
        if (sscanf(line, "%lx-%lx %7s", &begin, &end, rights) == 3) {
            int is_library = strstr(line, "libforensics_shim") != NULL;

            is_ours = strchr(rights, 'x') == NULL && (is_library || strstr(line, logs) != NULL || begin == after_library);
            after_library = is_library ? end : after_library;
        } else if (is_ours && sscanf(line, "Referenced: %ld", &value) == 1) {
            total += value;
        }
    }
    return total;
}

static void operation(void)
{
    ncclAllReduce(NULL, NULL, 1, 7, 0, comm, NULL);
}

static void message(void)
{
    ncclSend(NULL, 1, 7, 2, comm, NULL);
}

static void measure(const char *name, void (*call)(void))
{
    long least = 1 << 20;

    for (int each = 0; each < 20; each++)
        call();
    for (int each = 0; each < 20; each++) { /* the heartbeat may look in between */
        long found;

        clear_marks();
        call();
        found = touched_kib();
        least = found < least ? found : least;
    }
    printf("%s %ld\n", name, least * 1024 / sysconf(_SC_PAGESIZE));
}

int main(void)
{
    ncclUniqueId id;

    ncclGetUniqueId(&id);
    ncclCommInitRank(&comm, 8, id, 3);
    measure("operation", operation);
    measure("message", message);
    return 0;
}
