/* Where there is no log, a line in its place says why: no log must not read as a process that never used NCCL. It names the
 * process, for a reader takes files of equal bytes for copies of one. */
#define _GNU_SOURCE

#include <fcntl.h>
#include <stdio.h>
#include <sys/stat.h>
#include <unistd.h>

#include "ring/internal.h"

static bool write_note(int folder, const struct shim_place *place, enum shim_reason reason, int error)
{
    char name[SHIM_NAME_BYTES + 8], line[512];
    int length = snprintf(line, sizeof line, "FRXSHIM-OFF 1 reason=%d errno=%d of=%s\n", (int)reason, error, place->name);
    int note;
    bool is_whole;

    snprintf(name, sizeof name, "%s.off", place->name);
    note = openat(folder, name, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, shim_file_mode());
    if (note < 0)
        return faccessat(folder, name, F_OK, AT_SYMLINK_NOFOLLOW) == 0; /* the process said so before */
    (void)fchmod(note, shim_file_mode());
    is_whole = write(note, line, (size_t)length) == length;
    close(note);
    if (!is_whole)
        (void)unlinkat(folder, name, 0);
    return is_whole;
}

static bool note_in(int folder, const struct shim_place *place, enum shim_reason reason, int error)
{
    bool is_written = folder >= 0 && write_note(folder, place, reason, error);

    if (folder >= 0)
        close(folder);
    return is_written;
}

void shim_leave_note(const struct shim_place *place, enum shim_reason reason, int error)
{
    struct shim_place wanted = *place;

    if (note_in(shim_open_folder(&wanted), place, reason, error))
        return;
    for (int number = 0; number < 2; number++)
        if (note_in(shim_open_own_folder(place, number), place, reason, error))
            return;
}
