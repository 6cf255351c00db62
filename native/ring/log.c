/* The log of this process: made on the first NCCL or verbs call, forgotten in a forked child. */
#define _GNU_SOURCE

#include "ring/log.h"

#include <errno.h>
#include <pthread.h>
#include <sched.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "ring/internal.h"

enum phase { PHASE_DORMANT, PHASE_STARTING, PHASE_SETTLED };

struct shim_log shim_log;
_Thread_local struct shim_thread shim_self __attribute__((tls_model("initial-exec")));

/* What handlers of forks are registered under. The compiler's start files have it, without which the library is linked. */
extern void *__dso_handle;
void *__dso_handle __attribute__((weak, visibility("hidden"))) = &__dso_handle;

static uint32_t phase; /* enum phase; while starting, with the process id */
static struct shim_file file;
static bool fork_handled;

static struct shim_head identity(const struct forensics_clock_reading *now)
{
    unsigned long wanted = strtoul(shim_setting("FORENSICS_SHIM_SAMPLE_MS", "100"), NULL, 10);
    struct shim_head head = {
        .byte_order = SHIM_BYTE_ORDER,
        .major = SHIM_MAJOR,
        .minor = SHIM_MINOR,
        .head_bytes = SHIM_HEAD_BYTES,
        .record_bytes = SHIM_RECORD_BYTES,
        .section_offset = offsetof(struct shim_head, sections),
        .section_entry_bytes = sizeof(struct shim_section),
        .live_offset = SHIM_HEAD_BYTES,
        .live_bytes = SHIM_LIVE_BYTES,
        .epoch_bins = SHIM_EPOCH_BINS,
        .mode = shim_file_mode(),
        .sample_ms = wanted >= 10 && wanted <= 10000 ? (uint32_t)wanted : 100,
    };

    memcpy(head.magic, SHIM_MAGIC, sizeof head.magic);
    head.created_ns = now->realtime_ns;
    head.created = shim_now();
    head.ticks = shim_hot.ticks;
    head.epoch_shift = shim_epoch_shift();
    shim_fill_identity(&head);
    return head;
}

/* The child's copy of the mapping is the parent's file. Anonymous memory takes its place, so that a pointer into the log that
 * some thread or NCCL still holds stays writable and writes nowhere. What a process never used it need not clear: each page that
 * is written here is copied first. */
static void forget_log(void)
{
    shim_guard_forget();
    mmap(file.base, file.bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED | MAP_NORESERVE, -1, 0);
    file.base = NULL;
    memset(&shim_log, 0, sizeof shim_log);
    shim_threads_forget();
    shim_comms_forget();
    shim_slots_forget();
    shim_journal_forget();
}

static bool was_called(void)
{
    return (shim_covered[SHIM_CALLED][0] | shim_covered[SHIM_CALLED][1]) != 0;
}

static void forget_in_child(void)
{
    if (SHIM_LOAD(phase) == PHASE_DORMANT && !was_called())
        return;
    SHIM_STORE(shim_recording, (uint16_t)0);
    shim_self = (struct shim_thread){.groups = shim_self.groups}; /* NCCL's groups stay open in the thread that forked */
    memset(shim_covered[SHIM_CALLED], 0, sizeof shim_covered[SHIM_CALLED]);
    shim_incarnation++;
    shim_unlock_in_child();
    SHIM_STORE(shim_hot.sweeps, 0u);
    if (file.base != NULL)
        forget_log();
    SHIM_STORE(phase, PHASE_DORMANT);
}

static void count_fork(void)
{
    if (shim_on())
        SHIM_ADD(shim_log.live->forks, 1u);
}

static void write_coverage(void)
{
    for (int word = 0; word < 2; word++) {
        __atomic_fetch_or(&shim_log.live->hooked[word], SHIM_LOAD(shim_covered[SHIM_HOOKED][word]), __ATOMIC_RELAXED);
        __atomic_fetch_or(&shim_log.live->called[word], SHIM_LOAD(shim_covered[SHIM_CALLED][word]), __ATOMIC_RELAXED);
        __atomic_fetch_or(&shim_log.live->unresolved[word], SHIM_LOAD(shim_covered[SHIM_UNRESOLVED][word]), __ATOMIC_RELAXED);
    }
}

static void append_clock_now(void)
{
    struct forensics_clock_reading reading = {0};

    if (forensics_clock_read(&reading, 16) == 0)
        shim_append_clock(&reading, false);
}

static void begin(void)
{
    struct forensics_clock_reading reading = {0};
    struct shim_head head;

    forensics_clock_read(&reading, 16);
    head = identity(&reading);
    shim_mask_choose((head.mode & 0077) != 0);
    file = shim_open_file(&head);
    if (file.base == NULL)
        return;
    shim_guard(&file);
    shim_lay_out(&shim_log, file.base);
    shim_hot.comms = shim_log.comms;
    shim_journal_start();
    shim_append_clock(&reading, false);
    append_clock_now(); /* two readings tell the length of a tick, however soon the process ends */
    SHIM_STORE(shim_log.live->state, SHIM_STATE_RECORDING);
    shim_threads_start();
    __atomic_store_n(&shim_recording, (uint16_t)1, __ATOMIC_RELEASE);
    write_coverage();
    if (file.reason != SHIM_REASON_NONE)
        shim_tell(file.reason, file.error, file.reason == SHIM_REASON_SHARE ? "a smaller log: more than a sixteenth of the free space"
                                                                            : "a smaller log: no room for the wanted size");
    if (shim_heartbeat_start())
        return;
    SHIM_STORE(shim_log.live->state, SHIM_STATE_UNWATCHED);
    shim_tell(SHIM_REASON_NO_THREAD, errno, "no heartbeat thread");
}

/* A process that makes no call pays for no handler. */
static void prepare(void)
{
    if (shim_thread_pointer() != NULL)
        shim_hot.self = (char *)&shim_self - shim_thread_pointer();
    if (!fork_handled)
        fork_handled = pthread_atfork(NULL, count_fork, forget_in_child) == 0;
}

static void start_once(void)
{
    prepare();
    shim_self.starting = 1;
    shim_choose_ticks();
    if (fork_handled && strcmp(shim_setting("FORENSICS_SHIM", "1"), "0") != 0)
        begin();
    shim_self.starting = 0;
    __atomic_store_n(&phase, PHASE_SETTLED, __ATOMIC_RELEASE);
}

static uint32_t starting_here(void)
{
    return PHASE_STARTING | (uint32_t)getpid() << 2;
}

/* A child that was forked while a thread of its parent was at it, before the handler was there: it has no such thread. */
static bool is_of_parent(uint32_t found)
{
    return (found & 3u) == PHASE_STARTING && found != starting_here();
}

bool shim_start(void)
{
    uint32_t found = __atomic_load_n(&phase, __ATOMIC_ACQUIRE);
    int error = errno;

    if (__builtin_expect(found == PHASE_SETTLED, 1))
        return shim_on();
    if (shim_self.starting)
        return false;
    if ((found == PHASE_DORMANT || is_of_parent(found)) &&
        __atomic_compare_exchange_n(&phase, &found, starting_here(), false, __ATOMIC_ACQ_REL, __ATOMIC_ACQUIRE))
        start_once();
    while (__atomic_load_n(&phase, __ATOMIC_ACQUIRE) != PHASE_SETTLED)
        sched_yield(); /* another thread is at it: some milliseconds, once */
    errno = error;
    return shim_on();
}

void shim_tell(enum shim_reason reason, int error, const char *note)
{
    uint32_t none = SHIM_REASON_NONE;

    if (!shim_on())
        return;
    if (!__atomic_compare_exchange_n(&shim_log.live->reason, &none, (uint32_t)reason, false, __ATOMIC_RELAXED, __ATOMIC_RELAXED))
        return;
    SHIM_STORE(shim_log.live->reason_errno, error);
    shim_copy_text(shim_log.live->note, sizeof shim_log.live->note, note);
}

void shim_cover_first(enum shim_coverage what, unsigned word, uint64_t bit)
{
    __atomic_fetch_or(&shim_covered[what][word], bit, __ATOMIC_RELAXED);
    if (what == SHIM_CALLED && word == 0)
        __atomic_fetch_or(&shim_covered[what][1], 1ull << SHIM_HOOK_NCCL_API, __ATOMIC_RELAXED);
    if (shim_on())
        write_coverage();
}

uint64_t shim_hash(const void *bytes, size_t count, uint64_t seed)
{
    const unsigned char *byte = bytes;

    for (size_t at = 0; at < count; at++)
        seed = (seed ^ byte[at]) * 0x100000001b3ull;
    return seed;
}

/* Others may still call NCCL from their own destructors: only the fact is stored. */
__attribute__((destructor)) static void end_in_order(void)
{
    if (!shim_on())
        return;
    append_clock_now();
    shim_checkpoint();
    SHIM_STORE(shim_log.live->ended, shim_now());
    SHIM_STORE(shim_log.live->state, SHIM_STATE_ENDED);
}
