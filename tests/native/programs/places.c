/* Where NCCL is to store communicators: memory that is there for as long as NCCL may write to it, and not a moment longer. */
#define _GNU_SOURCE
#include <string.h>
#include <sys/mman.h>

#include "program.h"

#define PAGE 4096

static ncclComm_t unmapped_page(void)
{
    static void *page;

    if (page == NULL)
        page = mmap(NULL, PAGE, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    return page;
}

/* What lies in memory that was never set, or was used for something else since. Addresses that serve again are not among it: what
 * lives there would depend on the other threads. */
ncclComm_t garbage(void)
{
    switch (roll(worker->reuses ? 5 : 7)) {
    case 0:
        return NULL;
    case 1:
        return (ncclComm_t)(uintptr_t)0xdeadbeefdeadbeefull;
    case 2:
        return (ncclComm_t)(uintptr_t)1;
    case 3:
        return (ncclComm_t)(uintptr_t)0x1000;
    case 4:
        return unmapped_page();
    case 5:
        return worker->comm_count > 0 ? worker->comms[roll((uint32_t)worker->comm_count)] : NULL;
    default:
        return worker->stale_count > 0 ? worker->stale[roll((uint32_t)worker->stale_count)] : NULL;
    }
}

static ncclComm_t *page_of(enum fate fate)
{
    ncclComm_t *page;

    if (fate == KEPT)
        return &worker->kept[worker->kept_count++ % PLACES];
    page = mmap(NULL, PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    return page + roll(2) * (PAGE / sizeof *page - 1);
}

/* NULL: too many are in use. In a `frame` that the caller returns from, or anywhere. */
struct place *place_take(ncclComm_t *frame)
{
    static const enum fate fates[] = {KEPT, UNMAPPED, UNMAPPED, GARBLED, GARBLED, SHUT};
    struct place *place;

    if (worker->place_count == PLACES)
        return NULL;
    place = &worker->places[worker->place_count++];
    place->fate = frame != NULL ? FRAMED : fates[roll(6)];
    place->at = frame != NULL ? frame : page_of(place->fate);
    *place->at = roll(2) == 0 ? NULL : garbage();
    return place;
}

static void *page_around(void *at)
{
    return (void *)((uintptr_t)at & ~(uintptr_t)(PAGE - 1));
}

static void let_go(struct place *place)
{
    if (place->fate == UNMAPPED)
        munmap(page_around(place->at), PAGE);
    if (place->fate == SHUT)
        mprotect(page_around(place->at), PAGE, PROT_NONE);
    if (place->fate == GARBLED || (place->fate == FRAMED && roll(2) == 0))
        *place->at = garbage();
}

/* Only what this thread's last calls made is new; an older value is what lay there before. */
static void harvest(ncclComm_t value)
{
    int number = job.strict.number(value);

    if (value == NULL)
        tape("  place: NULL\n");
    else if (number < 0 || number / 1000 != worker->slot)
        tape("  place: nothing\n");
    else
        tape("  place: %d\n", number);
    if (number >= 0 && number / 1000 == worker->slot)
        keep_comm(value);
}

void places_settle(void)
{
    int left = 0;

    for (int each = 0; each < worker->place_count; each++) {
        if (job.strict.holds(worker->places[each].at)) {
            worker->places[left++] = worker->places[each];
            continue;
        }
        harvest(*worker->places[each].at);
        let_go(&worker->places[each]);
    }
    worker->place_count = left;
}
