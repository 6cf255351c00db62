/* Removes logs of dead processes of this rank, or a job that is restarted all night would fill the memory of its host. */
#define _GNU_SOURCE

#include <dirent.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "ring/internal.h"

#define MOST_LOGS 512
#define SECOND_NS 1000000000ll
#define FRESH_NS (10 * SECOND_NS)

struct old_log {
    char name[SHIM_NAME_BYTES + 16];
    int64_t made; /* CLOCK_REALTIME */
    bool is_evidence; /* its process did not end in order */
};

struct start_of_log {
    struct shim_head head;
    struct shim_live live;
};

static int64_t now_ns(void)
{
    struct timespec now = {0};

    clock_gettime(CLOCK_REALTIME, &now);
    return now.tv_sec * SECOND_NS + now.tv_nsec;
}

/* Of a name HOST.RANK.PID.START...: such a process runs here. */
static bool runs_here(const char *behind_rank)
{
    char *end = NULL;
    long pid = strtol(behind_rank, &end, 10);
    uint64_t start = end != NULL && *end == '.' ? strtoull(end + 1, NULL, 10) : 0;

    return pid > 0 && start != 0 && shim_process_start(pid) == start;
}

/* Its lock is held while the process lives, in whatever process namespace; a job that closes what it did not open has its heartbeat
 * only, and what is being made has neither. */
static bool is_dead(int file, const struct stat *facts, const struct start_of_log *log)
{
    int64_t made = facts->st_mtim.tv_sec * SECOND_NS + facts->st_mtim.tv_nsec, beat = log->live.last_clock.realtime_ns;

    if (log->head.created_ns == 0 && now_ns() - made < FRESH_NS)
        return false;
    if (log->live.unlocked != 0 && log->live.state != SHIM_STATE_ENDED && now_ns() - beat < FRESH_NS)
        return false;
    return flock(file, LOCK_SH | LOCK_NB) == 0;
}

static bool inspect(int folder, struct old_log *old, const char *behind_rank)
{
    int file = openat(folder, old->name, O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
    struct start_of_log log = {0};
    struct stat facts;
    bool is_old = false;

    if (file < 0)
        return false;
    if (fstat(file, &facts) == 0 && S_ISREG(facts.st_mode) && facts.st_uid == geteuid() && !runs_here(behind_rank)) {
        if (pread(file, &log, sizeof log, 0) != (ssize_t)sizeof log || memcmp(log.head.magic, SHIM_MAGIC, sizeof log.head.magic) != 0)
            memset(&log, 0, sizeof log);
        is_old = is_dead(file, &facts, &log);
        old->made = log.head.created_ns != 0 ? log.head.created_ns : facts.st_mtim.tv_sec * SECOND_NS;
        old->is_evidence = log.head.created_ns != 0 && log.live.state != SHIM_STATE_ENDED;
    }
    close(file);
    return is_old;
}

static int newest_first(const void *one, const void *other)
{
    int64_t left = ((const struct old_log *)one)->made, right = ((const struct old_log *)other)->made;

    return left < right ? 1 : left > right ? -1 : 0;
}

static bool is_log(const char *name)
{
    const char *ending = strrchr(name, '.');

    return ending != NULL && (strcmp(ending, ".frx") == 0 || strcmp(ending, ".off") == 0 || strcmp(ending, ".tmp") == 0);
}

static size_t find(int folder, DIR *entries, const struct shim_place *place, struct old_log *logs)
{
    size_t count = 0, length = strlen(place->rank), own = strlen(place->name);
    struct dirent *entry;

    while (count < MOST_LOGS && (entry = readdir(entries)) != NULL) {
        if (strncmp(entry->d_name, place->rank, length) != 0 || !is_log(entry->d_name) || strlen(entry->d_name) >= sizeof logs->name)
            continue;
        if (strncmp(entry->d_name, place->name, own) == 0)
            continue; /* what ran here before an exec */
        memcpy(logs[count].name, entry->d_name, strlen(entry->d_name) + 1);
        count += inspect(folder, &logs[count], entry->d_name + length);
    }
    return count;
}

/* The newest log of a process that did not end in order may be the only evidence of what became of the rank. */
static void remove_all_but(unsigned long keep, int folder, struct old_log *logs, size_t count)
{
    bool has_evidence = false;

    qsort(logs, count, sizeof *logs, newest_first);
    for (size_t each = 0; each < count; each++) {
        bool is_last = logs[each].is_evidence && !has_evidence;

        has_evidence |= logs[each].is_evidence;
        if (each >= keep && !is_last)
            (void)unlinkat(folder, logs[each].name, 0);
    }
}

void shim_remove_old_logs(int folder, const struct shim_place *place)
{
    struct old_log *logs = calloc(MOST_LOGS, sizeof *logs);
    int copy = openat(folder, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC); /* closedir closes it */
    DIR *entries = copy >= 0 ? fdopendir(copy) : NULL;

    if (logs != NULL && entries != NULL)
        remove_all_but(strtoul(shim_setting("FORENSICS_SHIM_KEEP", "4"), NULL, 10), folder, logs, find(folder, entries, place, logs));
    if (entries != NULL)
        closedir(entries);
    else if (copy >= 0)
        close(copy);
    free(logs);
}
