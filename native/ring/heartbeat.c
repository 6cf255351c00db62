/* The heartbeat: tells that the process lives, reads the clocks once a second, and looks at whatever is in progress. */
#define _GNU_SOURCE

#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <time.h>

#include "ring/internal.h"

#define STACK_BYTES (512u << 10) /* large libraries take thread-local storage out of each stack */
#define CLOCK_APART_NS 30000000000
#define CLOCK_STEP_NS 100000
#define SECOND_MS 1000u

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

static void *run(void *nothing)
{
    uint32_t sample_ms = shim_log.head->sample_ms, since_beat = SECOND_MS;
    struct timespec pause = {.tv_sec = sample_ms / 1000, .tv_nsec = (long)(sample_ms % 1000) * 1000000};

    for (uint64_t look = 0; shim_on(); look++) {
        if (since_beat >= SECOND_MS) {
            beat();
            since_beat = 0;
        }
        SHIM_STORE(shim_hot.looks, (uint32_t)look | 1u << 31);
        shim_checkpoint();
        shim_look_at_file();
        shim_sample_all(look, shim_now());
        clock_nanosleep(CLOCK_MONOTONIC, 0, &pause, NULL);
        since_beat += sample_ms;
    }
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
    pthread_t thread;
    int error;

    if (pthread_attr_init(&attributes) != 0)
        return false;
    pthread_attr_setdetachstate(&attributes, PTHREAD_CREATE_DETACHED);
    pthread_attr_setstacksize(&attributes, STACK_BYTES);
    error = create(&thread, &attributes);
    pthread_attr_destroy(&attributes);
    if (error == 0)
        (void)pthread_setname_np(thread, "frx-heartbeat");
    errno = error;
    return error == 0;
}
