/* What the files of the writer share among themselves; the doors use ring/log.h. */
#ifndef FORENSICS_RING_INTERNAL_H
#define FORENSICS_RING_INTERNAL_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "ring/log.h"

#pragma GCC visibility push(hidden)

#define SHIM_MAX_THREADS 64 /* threads with rings at one time */
#define SHIM_MAX_COMMS 1024 /* slots at the largest budget for slots (layout.c) */
#define SHIM_MAX_RINGS 64
#define SHIM_MAX_PROXY_OPS 4096
#define SHIM_MAX_QUEUE_PAIRS 2048
#define SHIM_LEAST_BYTES (1u << 20)
#define SHIM_MOST_BYTES (1u << 28)

/* ticks.c */
void shim_choose_ticks(void);
uint16_t shim_epoch_shift(void);

/* identity.c: text of a small file without its line feed; empty when it cannot be read. */
void shim_read_text(const char *path, char *text, size_t size);
void shim_copy_text(char *target, size_t size, const char *text);
void shim_fill_identity(struct shim_head *head);
const char *shim_setting(const char *name, const char *fallback);

/* layout.c: sizes of the sections for a budget; fills the section directory. Returns the size of the file. */
uint64_t shim_plan(struct shim_head *head, uint64_t budget);
void shim_lay_out(struct shim_log *log, void *base);
void shim_lay_out_rings(struct shim_log *log, uint64_t budget);
uint32_t shim_crc32(const void *bytes, size_t count);

/* file.c */
struct shim_file {
    void *base;
    uint64_t bytes;
    enum shim_reason reason; /* why it is smaller, or why there is none */
    int error;
};
struct shim_file shim_open_file(const struct shim_head *identity);

/* lock.c: the slow paths' only lock. */
void shim_lock(void);
void shim_unlock(void);
void shim_unlock_in_child(void);

/* threads.c */
void shim_threads_start(void);
void shim_threads_forget(void);

/* comms.c, slots.c */
void shim_comms_forget(void);
void shim_slots_forget(void);

/* journal.c */
void shim_journal_forget(void);

/* heartbeat.c: false when the thread cannot be started. */
bool shim_heartbeat_start(void);
void shim_append_clock(const struct forensics_clock_reading *reading, bool only_news);

/* samples.c: one look at everything in progress, by the heartbeat; `beat` counts looks. */
void shim_sample_all(uint64_t beat, uint64_t now);
void shim_samples_forget(void);

extern uint32_t shim_active_proxy_ops; /* published and not ended */
extern uint32_t shim_used_queue_pairs; /* slots ever claimed */

#define SHIM_LOAD(field) __atomic_load_n(&(field), __ATOMIC_RELAXED)
#define SHIM_STORE(field, value) __atomic_store_n(&(field), (value), __ATOMIC_RELAXED)
#define SHIM_ADD(field, value) __atomic_fetch_add(&(field), (value), __ATOMIC_RELAXED)

#pragma GCC visibility pop

#endif
