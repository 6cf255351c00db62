/* Memory of the wire: which file lies behind an address, and how another process reaches it. */
#define _GNU_SOURCE

#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "wire.h"

struct wire *wire(void)
{
    static _Atomic(struct wire *) mapped;
    struct wire *memory = atomic_load(&mapped);

    if (memory == NULL) {
        memory = bed_map("wire", sizeof *memory);
        atomic_store(&mapped, memory);
    }
    return memory;
}

/* Fills in path and offset where the address lies in a shared mapping of a file. */
static void find_file(struct wire_region *region)
{
    FILE *maps = fopen("/proc/self/maps", "re");
    unsigned long start, end, offset;
    char line[512], modes[5], path[BED_PATH];

    while (maps != NULL && fgets(line, sizeof line, maps) != NULL) {
        if (sscanf(line, "%lx-%lx %4s %lx %*s %*s %255s", &start, &end, modes, &offset, path) != 5 || modes[3] != 's')
            continue;
        if (region->address < start || region->address + region->length > end)
            continue;
        region->offset = offset + (region->address - start);
        memcpy(region->path, path, sizeof path);
        break;
    }
    if (maps != NULL)
        fclose(maps);
}

uint32_t wire_register(const void *address, size_t length)
{
    uint32_t number = atomic_fetch_add(&wire()->regions_made, 1);
    struct wire_region *region = &wire()->regions[number % WIRE_REGIONS];

    region->path[0] = '\0';
    region->address = (uint64_t)(uintptr_t)address;
    region->length = length;
    find_file(region);
    atomic_store(&region->key, number + 1);
    return number + 1;
}

static struct wire_region *region_of(uint32_t key)
{
    struct wire_region *region = &wire()->regions[(key - 1) % WIRE_REGIONS];

    return key != 0 && atomic_load(&region->key) == key ? region : NULL;
}

void wire_forget(uint32_t key)
{
    struct wire_region *region = region_of(key);

    if (region != NULL)
        atomic_store(&region->key, 0);
}

static int within(const struct wire_region *region, uint64_t address, size_t length)
{
    return region != NULL && address >= region->address && address + length <= region->address + region->length;
}

int wire_covers(uint32_t key, uint64_t address, size_t length)
{
    return length == 0 || within(region_of(key), address, length);
}

static void *map_region(const struct wire_region *region)
{
    uint64_t page = region->offset & ~(uint64_t)4095;
    int file = open(region->path, O_RDWR | O_CLOEXEC);
    char *memory;

    if (file < 0)
        return NULL;
    memory = mmap(NULL, region->length + (region->offset - page), PROT_READ | PROT_WRITE, MAP_SHARED, file, (off_t)page);
    close(file);
    return memory != MAP_FAILED ? memory + (region->offset - page) : NULL;
}

void *wire_reach(uint32_t key, uint64_t address, size_t length)
{
    static struct {
        uint32_t key;
        char *memory;
    } views[WIRE_REGIONS];
    static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
    struct wire_region *region = region_of(key);
    char *memory;

    if (!within(region, address, length) || region->path[0] == '\0')
        return NULL;
    pthread_mutex_lock(&lock);
    if (views[(key - 1) % WIRE_REGIONS].key != key) {
        views[(key - 1) % WIRE_REGIONS].memory = map_region(region);
        views[(key - 1) % WIRE_REGIONS].key = key;
    }
    memory = views[(key - 1) % WIRE_REGIONS].memory;
    pthread_mutex_unlock(&lock);
    return memory != NULL ? memory + (address - region->address) : NULL;
}
