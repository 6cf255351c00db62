/* Which clock the records use. */
#define _GNU_SOURCE

#include "ring/ticks.h"

#include <fcntl.h>
#include <string.h>
#include <unistd.h>

#include "forensics/shim_log.h"
#include "ring/internal.h"

#if defined(__x86_64__)
#include <cpuid.h>
#endif

struct shim_hot shim_hot = {.ticks = SHIM_TICKS_MONOTONIC_NS};

uint64_t shim_monotonic_ns(void)
{
    struct timespec now = {0};

    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

#if defined(__x86_64__)
/* The counter must run at one rate in every state of the CPU (invariant TSC), and the kernel must still believe so: it
 * changes the clock source when it saw the counters of two CPUs disagree. */
static uint16_t choose(void)
{
    unsigned eax = 0, ebx = 0, ecx = 0, edx = 0;
    char source[16];

    if (!__get_cpuid(0x80000007u, &eax, &ebx, &ecx, &edx) || (edx & (1u << 8)) == 0)
        return SHIM_TICKS_MONOTONIC_NS;
    shim_read_text("/sys/devices/system/clocksource/clocksource0/current_clocksource", source, sizeof source);
    return strcmp(source, "tsc") == 0 ? FORENSICS_COUNTER_TSC : SHIM_TICKS_MONOTONIC_NS;
}
#elif defined(__aarch64__)
/* The architecture promises one rate and agreement of all CPUs. */
static uint16_t choose(void)
{
    return FORENSICS_COUNTER_CNTVCT;
}
#else
static uint16_t choose(void)
{
    return SHIM_TICKS_MONOTONIC_NS;
}
#endif

void shim_choose_ticks(void)
{
    __atomic_store_n(&shim_hot.ticks, choose(), __ATOMIC_RELAXED);
}

/* An epoch of about 100 us, whatever the counter's rate: long enough for several completions, short against a stall. */
uint16_t shim_epoch_shift(void)
{
    struct timespec pause = {.tv_nsec = 200000};
    uint64_t ticks = shim_now(), ns = shim_monotonic_ns();
    uint16_t shift = 0;

    nanosleep(&pause, NULL);
    ticks = shim_now() - ticks;
    ns = shim_monotonic_ns() - ns;
    for (double length = ns > 0 ? 100000.0 * (double)ticks / (double)ns : 0; length > 1.5 && shift < 40; length /= 2)
        shift++;
    return shift;
}
