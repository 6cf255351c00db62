/* Who this process is: what the head of the log says. */
#define _GNU_SOURCE

#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "ring/internal.h"

void shim_copy_text(char *target, size_t size, const char *text)
{
    size_t length = strnlen(text, size - 1);

    memcpy(target, text, length);
    memset(target + length, 0, size - length);
}

void shim_read_text(const char *path, char *text, size_t size)
{
    int file = open(path, O_RDONLY | O_CLOEXEC);
    ssize_t got = file >= 0 ? read(file, text, size - 1) : -1;

    if (file >= 0)
        close(file);
    text[got > 0 ? got : 0] = '\0';
    text[strcspn(text, "\n")] = '\0';
}

const char *shim_setting(const char *name, const char *fallback)
{
    const char *value = getenv(name);

    return value != NULL && value[0] != '\0' ? value : fallback;
}

static void fill_executable(struct shim_head *head)
{
    char path[4096];
    ssize_t length = readlink("/proc/self/exe", path, sizeof path - 1);
    size_t room = sizeof head->executable - 1;

    if (length <= 0)
        return;
    path[length] = '\0';
    shim_copy_text(head->executable, sizeof head->executable, (size_t)length > room ? path + ((size_t)length - room) : path);
}

/* A host name may say more than a site wants to give away: its hash still tells hosts apart. */
static void fill_host(struct shim_head *head)
{
    static const char digits[] = "0123456789abcdef";
    uint64_t hash;

    gethostname(head->host, sizeof head->host - 1);
    if (strcmp(shim_setting("FORENSICS_SHIM_HASH_HOST", "0"), "1") != 0)
        return;
    hash = shim_hash(head->host, strnlen(head->host, sizeof head->host), SHIM_HASH_SEED);
    memset(head->host, 0, sizeof head->host);
    for (int each = 0; each < 16; each++)
        head->host[each] = digits[(hash >> (60 - 4 * each)) & 15];
}

void shim_fill_identity(struct shim_head *head)
{
    head->pid = (uint64_t)getpid();
    head->parent_pid = (uint64_t)getppid();
    head->process_start = shim_process_start(getpid());
#if defined(__x86_64__)
    head->architecture = SHIM_ARCH_X86_64;
#elif defined(__aarch64__)
    head->architecture = SHIM_ARCH_AARCH64;
#endif
    shim_fill_launch(head);
    fill_host(head);
    fill_executable(head);
    shim_read_text("/proc/sys/kernel/random/boot_id", head->boot_id, sizeof head->boot_id);
    shim_copy_text(head->visible_devices, sizeof head->visible_devices, shim_setting("CUDA_VISIBLE_DEVICES", ""));
    shim_copy_text(head->build, sizeof head->build, "forensics shim " __VERSION__);
}
