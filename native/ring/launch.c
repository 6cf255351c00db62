/* What the launcher says: rank, job, and what tells this job from others of the same name on this host. */
#define _GNU_SOURCE

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "ring/internal.h"

#define MOST_ANCESTORS 16

struct launcher {
    const char *rank, *size, *local;
};

/* In the order in which forensics collect believes them. */
static const struct launcher launchers[] = {
    {"RANK", "WORLD_SIZE", "LOCAL_RANK"},
    {"SLURM_PROCID", "SLURM_NTASKS", "SLURM_LOCALID"},
    {"OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_LOCAL_RANK"},
    {"PMI_RANK", "PMI_SIZE", "MPI_LOCALRANKID"},
};

struct ancestor {
    long pid, parent, session;
    uint64_t start;
};

static int32_t number(const char *name)
{
    const char *value = shim_setting(name, "");
    char *end = NULL;
    long result = strtol(value, &end, 10);

    return value[0] != '\0' && *end == '\0' && result >= 0 && result <= INT32_MAX ? (int32_t)result : SHIM_UNKNOWN;
}

/* The launcher whose variables give the rank, or NULL. */
static const struct launcher *fill_rank(struct shim_head *head)
{
    head->rank = head->local_rank = head->world_size = SHIM_UNKNOWN;
    for (size_t each = 0; each < sizeof launchers / sizeof launchers[0]; each++) {
        head->rank = number(launchers[each].rank);
        if (head->rank < 0)
            continue;
        head->world_size = number(launchers[each].size);
        head->local_rank = number(launchers[each].local);
        shim_copy_text(head->rank_variable, sizeof head->rank_variable, launchers[each].rank);
        return &launchers[each];
    }
    return NULL;
}

/* Field `wanted` of /proc/PID/stat, from 3 on; the name in field 2 may hold blanks and parentheses. */
static uint64_t field(const char *stat, int wanted)
{
    const char *at = strrchr(stat, ')');

    for (int each = 2; at != NULL && each < wanted; each++)
        at = strchr(at + 1, ' ');
    return at != NULL ? strtoull(at, NULL, 10) : 0;
}

static struct ancestor ancestor_of(long pid)
{
    char path[64], text[1024];

    snprintf(path, sizeof path, "/proc/%ld/stat", pid);
    shim_read_text(path, text, sizeof text);
    return (struct ancestor){pid, (long)field(text, 4), (long)field(text, 6), field(text, 22)};
}

uint64_t shim_process_start(long pid)
{
    return ancestor_of(pid).start;
}

/* Looks for "NAME=" at the start of an entry; *at is how much of it was found, -1 inside another entry. */
static bool scan(const char *text, ssize_t length, const char *name, long *at)
{
    for (ssize_t each = 0; each < length; each++) {
        if (text[each] == '\0')
            *at = 0;
        else if (*at >= 0 && text[each] == '=' && name[*at] == '\0')
            return true;
        else
            *at = *at >= 0 && name[*at] == text[each] ? *at + 1 : -1;
    }
    return false;
}

/* Whether a process was started with this variable; false also where nobody may know. */
static bool has_variable(long pid, const char *name)
{
    char path[64], text[4096];
    bool found = false;
    long at = 0;
    ssize_t got;
    int file;

    snprintf(path, sizeof path, "/proc/%ld/environ", pid);
    file = open(path, O_RDONLY | O_CLOEXEC);
    while (file >= 0 && !found && (got = read(file, text, sizeof text)) > 0)
        found = scan(text, got, name, &at);
    if (file >= 0)
        close(file);
    return found;
}

/* The first ancestor that is no rank itself: between a rank and its launcher there may be a shell of its own for each rank. */
static struct ancestor find_launcher(const struct launcher *launcher)
{
    struct ancestor found = ancestor_of(getppid());
    const char *name = launcher == NULL ? NULL : getenv(launcher->local) != NULL ? launcher->local : launcher->rank;

    for (int step = 0; name != NULL && step < MOST_ANCESTORS && found.parent > 0 && has_variable(found.pid, name); step++)
        found = ancestor_of(found.parent);
    return found;
}

/* Ranks that were started by hand share the port they meet at, and the script they were started from. A shell that somebody types
 * into lives longer than a job, and ranks of one job may have several: there the port must do. */
static void fill_run_by_hand(struct shim_head *head, const struct launcher *launcher)
{
    struct ancestor found = find_launcher(launcher);
    bool is_by_hand = launcher == NULL || launcher == &launchers[0];
    bool is_known = found.start != 0 && !(is_by_hand && found.session == found.pid);
    const char *port = shim_setting("MASTER_PORT", "");
    char start[21] = "";

    if (is_known)
        snprintf(start, sizeof start, "%llu", (unsigned long long)found.start);
    snprintf(head->run, sizeof head->run, "%.8s%s%s", port, *port != '\0' && is_known ? "-" : "", start);
}

/* torchrun calls each job "none" that was not given a name, and many are given one from the documentation: what tells them apart
 * is when their agent started. */
static void fill_run_of_torchrun(struct shim_head *head, const struct launcher *launcher)
{
    if (strcmp(head->job, "none") == 0)
        shim_copy_text(head->job, sizeof head->job, "torchrun");
    snprintf(head->run, sizeof head->run, "%llu", (unsigned long long)find_launcher(launcher).start);
}

static bool fill_job(struct shim_head *head, const char *variable)
{
    const char *value = shim_setting(variable, "");

    shim_copy_text(head->job, sizeof head->job, value);
    return value[0] != '\0';
}

void shim_fill_launch(struct shim_head *head)
{
    const struct launcher *launcher = fill_rank(head);

    if (fill_job(head, "FORENSICS_SHIM_JOB"))
        return;
    if (fill_job(head, "TORCHELASTIC_RUN_ID")) {
        fill_run_of_torchrun(head, launcher);
    } else if (fill_job(head, "SLURM_JOB_ID")) {
        shim_copy_text(head->run, sizeof head->run, shim_setting("SLURM_STEP_ID", ""));
    } else {
        shim_copy_text(head->job, sizeof head->job, "job");
        fill_run_by_hand(head, launcher);
    }
}
