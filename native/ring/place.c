/* Where the log lies. Folders of memory are shared with other users: nothing is written through a link, or into a folder that
 * somebody else could change. */
#define _GNU_SOURCE

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "ring/internal.h"

#define FOREIGN (-1) /* no errno: what is there is not ours to use */

mode_t shim_file_mode(void)
{
    return strcmp(shim_setting("FORENSICS_SHIM_MODE", "0600"), "0640") == 0 ? 0640 : 0600;
}

static mode_t folder_mode(void)
{
    return shim_file_mode() == 0640 ? 0750 : 0700;
}

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
    char path[SHIM_ROOT_BYTES];

    snprintf(path, sizeof path, "%s", root);
    for (char *cut = path + 1; (cut = strchr(cut, '/')) != NULL; *cut++ = '/') {
        *cut = '\0';
        (void)mkdir(path, 0755);
    }
}

/* 0 when only we can change what lies in the folder; its mode is then as wanted. */
static int make_ours(int folder)
{
    struct stat facts;

    if (fstat(folder, &facts) != 0)
        return errno;
    if (facts.st_uid != geteuid() || (facts.st_mode & 0022) != 0)
        return FOREIGN;
    if ((facts.st_mode & 07777) != folder_mode())
        (void)fchmod(folder, folder_mode());
    return 0;
}

/* A link to the folder of logs is one of the user's own making, or of root's. */
static bool is_foreign_link(const char *path)
{
    struct stat facts;

    return lstat(path, &facts) == 0 && S_ISLNK(facts.st_mode) && facts.st_uid != geteuid() && facts.st_uid != 0;
}

/* A descriptor of the folder below which jobs have theirs; else -1 and *error. One that was asked for by name may be shared: it is
 * the job's own folder that counts. */
static int open_root(const char *path, bool is_private, int *error)
{
    int flags = O_RDONLY | O_DIRECTORY | O_CLOEXEC | (is_private ? O_NOFOLLOW : 0), root = -1;

    make_parents(path);
    (void)mkdir(path, folder_mode());
    *error = is_foreign_link(path) ? FOREIGN : 0;
    if (*error == 0 && (root = open(path, flags)) < 0)
        *error = errno == ELOOP || (is_private && errno == ENOTDIR) ? FOREIGN : errno;
    if (root >= 0 && is_private && (*error = make_ours(root)) != 0) {
        close(root);
        root = -1;
    }
    return root;
}

static int open_job(int root, const char *job, int *error)
{
    int folder;

    if (mkdirat(root, job, folder_mode()) != 0 && errno != EEXIST) {
        *error = errno;
        return -1;
    }
    folder = openat(root, job, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    *error = folder >= 0 ? make_ours(folder) : errno == ELOOP || errno == ENOTDIR ? FOREIGN : errno;
    if (folder >= 0 && *error != 0) {
        close(folder);
        folder = -1;
    }
    return folder;
}

static int open_below(const char *path, bool is_private, const char *job, int *error)
{
    int root = *path != '\0' && strlen(path) < SHIM_ROOT_BYTES ? open_root(path, is_private, error) : -1, folder = -1;

    if (root >= 0) {
        folder = open_job(root, job, error);
        close(root);
    }
    return folder;
}

int shim_open_folder(struct shim_place *place)
{
    const char *wanted = shim_setting("FORENSICS_SHIM_DIR", "");
    char own[64];
    int error = ENAMETOOLONG, folder;

    snprintf(own, sizeof own, "/dev/shm/forensics-%u", (unsigned)geteuid());
    folder = open_below(*wanted != '\0' ? wanted : own, *wanted == '\0', place->job, &error);
    place->reason = error == FOREIGN ? SHIM_REASON_FOREIGN_FOLDER : SHIM_REASON_CANNOT_CREATE;
    place->error = error == FOREIGN ? 0 : error;
    return folder;
}

/* For a note when the wanted place cannot be used: folders that are ours alone, the first in memory, the second on disk. */
int shim_open_own_folder(const struct shim_place *place, int number)
{
    const char *below = number == 0 ? "/dev/shm" : "/tmp";
    char path[64];
    int error;

    snprintf(path, sizeof path, "%s/forensics-%u", below, (unsigned)geteuid());
    return open_below(path, true, place->job, &error);
}

void shim_find_place(struct shim_place *place, const struct shim_head *head)
{
    char host[sizeof head->host], rank[16] = "x";

    memcpy(host, head->host, sizeof host);
    clean(host);
    if (head->rank >= 0)
        snprintf(rank, sizeof rank, "%d", head->rank);
    snprintf(place->job, sizeof place->job, "%s%s%s", head->job, head->run[0] != '\0' ? "-" : "", head->run);
    clean(place->job);
    snprintf(place->rank, sizeof place->rank, "%s.%s.", host, rank);
    snprintf(place->name, sizeof place->name, "%s%llu.%llu", place->rank, (unsigned long long)head->pid,
             (unsigned long long)head->process_start);
}
