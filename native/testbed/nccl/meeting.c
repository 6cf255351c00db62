/* The bootstrap: ranks meet in a mapped table. A rank that never comes leaves the others waiting, as at a real rendezvous. */
#include <string.h>

#include "comm.h"

#define MEETINGS 512

struct meeting {
    _Atomic uint64_t about;
    struct meet_word words[BED_RANKS];
};

static struct meeting *find(uint64_t about)
{
    static _Atomic(struct meeting *) mapped;
    struct meeting *table = atomic_load(&mapped);

    if (table == NULL) {
        table = bed_map("meetings", sizeof *table * MEETINGS);
        atomic_store(&mapped, table);
    }
    for (uint64_t probe = 0; probe < MEETINGS; probe++) {
        struct meeting *row = &table[(about + probe) % MEETINGS];
        uint64_t unused = 0;

        if (atomic_compare_exchange_strong(&row->about, &unused, about) || unused == about)
            return row;
    }
    return NULL;
}

ncclResult_t meet(uint64_t about, int rank, int count, struct meet_word *own, struct meet_word *all, _Atomic int *aborted)
{
    struct meeting *meeting = find(about);
    unsigned idle = 0;

    if (meeting == NULL || count > BED_RANKS)
        return ncclSystemError;
    meeting->words[rank].host = own->host;
    meeting->words[rank].color = own->color;
    meeting->words[rank].key = own->key;
    atomic_store(&meeting->words[rank].here, 1);
    for (int other = 0; other < count; other++) {
        while (!atomic_load(&meeting->words[other].here)) {
            if (aborted != NULL && atomic_load(aborted))
                return ncclRemoteError;
            bed_pause(&idle);
        }
        all[other].host = meeting->words[other].host;
        all[other].color = meeting->words[other].color;
        all[other].key = meeting->words[other].key;
    }
    return ncclSuccess;
}
