/* dlsym and dlvsym behind ours. They cannot be asked for with dlsym, which is ours: the symbol tables of the objects that were
 * loaded after us are read instead, in the order in which the linker would search them. */
#define _GNU_SOURCE

#include <elf.h>
#include <link.h>
#include <string.h>

#include "verbs/next.h"

struct tables { const ElfW(Sym) *symbols; const char *strings; const uint32_t *hash; const ElfW(Half) *versions; };
struct search { const char *name; void *found; bool after_us; };

static uint32_t gnu_hash(const char *name)
{
    uint32_t hash = 5381;

    for (const unsigned char *each = (const unsigned char *)name; *each != 0; each++)
        hash = hash * 33 + *each;
    return hash;
}

/* The C library stores addresses here, the kernel's own object offsets. */
static const void *pointer(const struct dl_phdr_info *object, const ElfW(Dyn) *entry)
{
    uintptr_t value = (uintptr_t)entry->d_un.d_ptr;

    return (const void *)(value < object->dlpi_addr ? value + object->dlpi_addr : value);
}

static struct tables read_tables(const struct dl_phdr_info *object)
{
    struct tables tables = {0};
    const ElfW(Dyn) *entry = NULL;

    for (int each = 0; each < object->dlpi_phnum; each++)
        if (object->dlpi_phdr[each].p_type == PT_DYNAMIC)
            entry = (const void *)(object->dlpi_addr + object->dlpi_phdr[each].p_vaddr);
    for (; entry != NULL && entry->d_tag != DT_NULL; entry++) {
        if (entry->d_tag == DT_SYMTAB)
            tables.symbols = pointer(object, entry);
        else if (entry->d_tag == DT_STRTAB)
            tables.strings = pointer(object, entry);
        else if (entry->d_tag == DT_GNU_HASH)
            tables.hash = pointer(object, entry);
        else if (entry->d_tag == DT_VERSYM)
            tables.versions = pointer(object, entry);
    }
    return tables;
}

static bool is_it(const struct tables *tables, uint32_t index, const char *name)
{
    const ElfW(Sym) *symbol = &tables->symbols[index];

    return symbol->st_shndx != SHN_UNDEF && (symbol->st_info & 0xF) == STT_FUNC &&
           (tables->versions == NULL || (tables->versions[index] & 0x8000) == 0) && /* the default version */
           strcmp(tables->strings + symbol->st_name, name) == 0;
}

/* Layout of the table: buckets, first symbol, words of the filter, shift; filter; buckets; chains. */
static const ElfW(Sym) *find(const struct tables *tables, const char *name)
{
    const uint32_t *hash = tables->hash;
    const uint32_t *buckets = (const uint32_t *)((const ElfW(Addr) *)(hash + 4) + hash[2]), *chains = buckets + hash[0];
    uint32_t wanted = gnu_hash(name), index = hash[0] != 0 ? buckets[wanted % hash[0]] : 0;

    if (index < hash[1])
        return NULL;
    for (;; index++) {
        uint32_t chain = chains[index - hash[1]];

        if ((chain | 1) == (wanted | 1) && is_it(tables, index, name))
            return &tables->symbols[index];
        if (chain & 1)
            return NULL;
    }
}

static bool holds(const struct dl_phdr_info *object, const void *address)
{
    uintptr_t here = (uintptr_t)address;

    for (int each = 0; each < object->dlpi_phnum; each++) {
        const ElfW(Phdr) *part = &object->dlpi_phdr[each];

        if (part->p_type == PT_LOAD && here - (object->dlpi_addr + part->p_vaddr) < part->p_memsz)
            return true;
    }
    return false;
}

static bool is_us(const struct dl_phdr_info *object)
{
    return holds(object, (const void *)(uintptr_t)&is_us);
}

static const ElfW(Sym) *symbol_of(const struct dl_phdr_info *object, const char *name)
{
    struct tables tables = read_tables(object);

    return tables.symbols != NULL && tables.strings != NULL && tables.hash != NULL ? find(&tables, name) : NULL;
}

static int visit(struct dl_phdr_info *object, size_t size, void *data)
{
    struct search *search = data;
    const ElfW(Sym) *symbol;

    (void)size;
    if (!search->after_us) {
        search->after_us = is_us(object);
        return 0;
    }
    symbol = symbol_of(object, search->name);
    if (symbol == NULL)
        return 0;
    search->found = (void *)(object->dlpi_addr + symbol->st_value);
    return 1;
}

static void *next(const char *name)
{
    struct search search = {.name = name};

    dl_iterate_phdr(visit, &search);
    return search.found;
}

lookup next_dlsym(void)
{
    static lookup found;

    if (__atomic_load_n(&found, __ATOMIC_ACQUIRE) == NULL)
        __atomic_store_n(&found, (lookup)next("dlsym"), __ATOMIC_RELEASE);
    return found;
}

lookup_version next_dlvsym(void)
{
    static lookup_version found;

    if (__atomic_load_n(&found, __ATOMIC_ACQUIRE) == NULL)
        __atomic_store_n(&found, (lookup_version)next("dlvsym"), __ATOMIC_RELEASE);
    return found;
}

int (*next_dlclose(void))(void *handle)
{
    static int (*found)(void *);

    if (__atomic_load_n(&found, __ATOMIC_ACQUIRE) == NULL)
        __atomic_store_n(&found, (int (*)(void *))next("dlclose"), __ATOMIC_RELEASE);
    return found;
}

struct step {
    const void *caller;
    const char *name;
    bool after_caller, is_us;
};

static int visit_next(struct dl_phdr_info *object, size_t size, void *data)
{
    struct step *step = data;

    (void)size;
    if (!step->after_caller) {
        step->after_caller = holds(object, step->caller);
        return 0;
    }
    if (symbol_of(object, step->name) == NULL)
        return 0;
    step->is_us = is_us(object);
    return 1;
}

bool next_is_us(const void *caller, const char *name)
{
    struct step step = {.caller = caller, .name = name};

    dl_iterate_phdr(visit_next, &step);
    return step.is_us;
}
