/* The heartbeat: tells that the process lives, reads the clocks once a second, and sweeps over whatever is in progress. */
#define _GNU_SOURCE

#include <errno.h>
#include <pthread.h>
#include <linux/futex.h>
#include <signal.h>
#include <string.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "ring/internal.h"

#define STACK_BYTES (512u << 10) /* large libraries take thread-local storage out of each stack */
#define CLOCK_APART_NS 30000000000
#define CLOCK_STEP_NS 100000
#define SECOND_MS 1000u

static pthread_t heartbeat;
static uint32_t is_stopping; /* a futex */
static uint32_t runs_in;     /* incarnation of the process that has the thread, and 1; 0: none */
static struct forensics_clock_reading appended; /* the last one in the table */

static uint64_t clock_slot(uint64_t number)
{
    return number == 0 ? 0 : 1 + (number - 1) % (shim_log.clock_count - 1);
}

static void append(const struct forensics_clock_reading *reading)
{
    struct forensics_clock_reading *entry = &shim_log.clocks[clock_slot(SHIM_LOAD(shim_log.live->clocks))];

    __atomic_store_n(&entry->layout, 0, __ATOMIC_RELEASE);
    entry->realtime_ns = reading->realtime_ns;
    entry->monotonic_ns = reading->monotonic_ns;
    entry->boottime_ns = reading->boottime_ns;
    entry->counter = reading->counter;
    entry->bound_ns = reading->bound_ns;
    entry->attempts = reading->attempts;
    entry->counter_kind = reading->counter_kind;
    __atomic_store_n(&entry->layout, reading->layout, __ATOMIC_RELEASE);
    SHIM_ADD(shim_log.live->clocks, 1u);
    appended = *reading;
}

/* The first reading and those after a step are what the conversion of ticks needs; the rest would only fill the table. */
static bool is_news(const struct forensics_clock_reading *reading)
{
    int64_t step = (reading->realtime_ns - reading->monotonic_ns) - (appended.realtime_ns - appended.monotonic_ns);

    return reading->monotonic_ns - appended.monotonic_ns >= CLOCK_APART_NS || step > CLOCK_STEP_NS || step < -CLOCK_STEP_NS;
}

/* The start and the end of the process append too, whatever they read. */
void shim_append_clock(const struct forensics_clock_reading *reading, bool only_news)
{
    shim_lock();
    if (!only_news || is_news(reading))
        append(reading);
    shim_unlock();
}

static void beat(void)
{
    struct forensics_clock_reading reading = {0};
    struct shim_live *live = shim_log.live;

    if (forensics_clock_read(&reading, 4) != 0)
        return;
    SHIM_ADD(live->beat_version, 1u);
    __atomic_thread_fence(__ATOMIC_RELEASE);
    live->last_clock = reading;
    __atomic_thread_fence(__ATOMIC_RELEASE);
    SHIM_ADD(live->beat_version, 1u);
    SHIM_ADD(live->beats, 1u);
    shim_append_clock(&reading, true);
}

/* A process whose main thread ended lasts as long as any other thread, and the last one runs what the program does at its end. That is
 * none of our business: with the main thread this one goes too. */
bool shim_is_main_gone(void)
{
    char text[1024];
    const char *state;

    shim_read_text("/proc/self/stat", text, sizeof text);
    state = strrchr(text, ')');
    return state != NULL && strncmp(state, ") Z", 3) == 0;
}

static void sweep_once(uint64_t sweep, bool is_beat)
{
    if (is_beat)
        beat();
    SHIM_STORE(shim_hot.sweeps, (uint32_t)sweep | 1u << 31);
    shim_checkpoint();
    shim_check_file();
    shim_sample_all(sweep, shim_now());
}

static void *run(void *nothing)
{
    uint32_t wanted = shim_log.head->sample_ms; /* 0: the file was cut before this thread came to run */
    uint32_t sample_ms = wanted > 0 ? wanted : SECOND_MS, sweeps_a_beat = sample_ms < SECOND_MS ? SECOND_MS / sample_ms : 1;
    struct timespec pause = {.tv_sec = sample_ms / 1000, .tv_nsec = (long)(sample_ms % 1000) * 1000000};

    for (uint64_t sweep = 0; shim_on() && !SHIM_LOAD(is_stopping); sweep++) {
        bool is_beat = sweep % sweeps_a_beat == 0;

        if (is_beat && shim_is_main_gone())
            break;
        sweep_once(sweep, is_beat);
        (void)syscall(SYS_futex, &is_stopping, FUTEX_WAIT_PRIVATE, 0, &pause, NULL, 0);
    }
    SHIM_STORE(shim_hot.sweeps, 0u); /* calls take the moment of their return themselves from now on */
    if (shim_on())
        SHIM_STORE(shim_log.live->state, SHIM_STATE_UNWATCHED);
    shim_tell_of_file();
    return nothing;
}

/* The job's signals are for the job's threads: this one takes none but its own faults. */
static int create(pthread_t *thread, const pthread_attr_t *attributes)
{
    sigset_t all, before;
    int error;

    sigfillset(&all);
    sigdelset(&all, SIGBUS);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    error = pthread_create(thread, attributes, run, NULL);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    return error;
}

bool shim_heartbeat_start(void)
{
    pthread_attr_t attributes;
    int error;

    if (pthread_attr_init(&attributes) != 0)
        return false;
    pthread_attr_setstacksize(&attributes, STACK_BYTES);
    is_stopping = 0;
    error = create(&heartbeat, &attributes);
    pthread_attr_destroy(&attributes);
    SHIM_STORE(runs_in, error == 0 ? shim_incarnation + 1 : 0);
    if (error == 0)
        (void)pthread_setname_np(heartbeat, "frx-heartbeat");
    errno = error;
    return error == 0;
}

/* Called by the main thread when it ends before the process, and by others that end after it. Waiting for it matters: it must not be the
 * last thread, and it has little left to do. */
void shim_heartbeat_stop(void)
{
    struct timespec until = {0};

    if (__atomic_exchange_n(&runs_in, 0u, __ATOMIC_ACQ_REL) != shim_incarnation + 1)
        return; /* not running here, or somebody else ends it */
    SHIM_STORE(is_stopping, 1u);
    (void)syscall(SYS_futex, &is_stopping, FUTEX_WAKE_PRIVATE, 1, NULL, NULL, 0);
    clock_gettime(CLOCK_REALTIME, &until);
    until.tv_sec += 2;
    (void)pthread_timedjoin_np(heartbeat, NULL, &until);
}
