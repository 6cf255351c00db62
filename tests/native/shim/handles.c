/* Handles of communicators: found while they are bound, by whatever way, and not afterwards. */
#include "driver.h"

#define COMMS 200

/* Pointers as allocators give them, and some that do not fit into a word with their slot. */
static uint64_t handle_of(uint64_t number)
{
    switch (number % 4) {
    case 0: return 0x7f0000000000ull + number * 0x4000;
    case 1: return 0x550000000000ull + number * 16;
    case 2: return 0x7f0000000000ull + number * 0x4000 + 9;
    default: return 0xb400007f00000000ull + number * 4096; /* with a tag in the top byte */
    }
}

static struct shim_comm *bound(uint64_t handle)
{
    struct shim_comm *comm = shim_comm_claim(handle, 0, 0, 2);

    CHECK(comm != NULL);
    shim_comm_bind(comm, handle);
    return comm;
}

int main(void)
{
    static struct shim_comm *comms[COMMS];

    CHECK(shim_start());
    CHECK(shim_comm_find(0) == NULL);
    for (uint64_t each = 0; each < COMMS; each++)
        comms[each] = bound(handle_of(each));
    for (uint64_t each = 0; each < COMMS; each++) {
        CHECK(shim_comm_find(handle_of(each)) == comms[each]);
        CHECK(shim_comm_find(handle_of(each) ^ 1ull << 60) == NULL);
    }
    for (uint64_t each = 0; each < COMMS; each += 3)
        shim_comm_close(comms[each], SHIM_COMM_DESTROYED);
    for (uint64_t each = 0; each < COMMS; each++)
        CHECK(shim_comm_find(handle_of(each)) == (each % 3 == 0 ? NULL : comms[each]));
    for (uint64_t each = 0; each < 30; each++) { /* NCCL gives handles again */
        struct shim_comm *comm = bound(handle_of(3 * each));

        CHECK(comm != comms[3 * each] || comm->generation == 2);
        CHECK(shim_comm_find(handle_of(3 * each)) == comm);
    }
    return 0;
}
