/* What the files of the writer share among themselves; the hooks use ring/log.h. */
#ifndef FORENSICS_RING_INTERNAL_H
#define FORENSICS_RING_INTERNAL_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "ring/log.h"
#include "ring/mask.h"

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

/* launch.c: rank, job and run. */
void shim_fill_launch(struct shim_head *head);
uint64_t shim_process_start(long pid); /* field 22 of /proc/PID/stat; 0: no such process */

/* place.c: the folder of the job; `name` is that of the file without its ending. Descriptors are -1 when it cannot be used. */
#define SHIM_ROOT_BYTES 513
#define SHIM_NAME_BYTES 160
struct shim_place {
    char job[104], rank[96], name[SHIM_NAME_BYTES]; /* `rank` is what the names of all files of this rank begin with */
    enum shim_reason reason;                        /* why the folder cannot be used */
    int error;
};
void shim_find_place(struct shim_place *place, const struct shim_head *head);
int shim_open_folder(struct shim_place *place);
int shim_open_own_folder(const struct shim_place *place, int number);
mode_t shim_file_mode(void);

/* notes.c, prune.c */
void shim_leave_note(const struct shim_place *place, enum shim_reason reason, int error);
void shim_remove_old_logs(int folder, const struct shim_place *place);

/* file.c */
struct shim_file {
    void *base;
    uint64_t bytes;
    int descriptor;          /* of the file, locked while the process lives */
    enum shim_reason reason; /* why it is smaller, or why there is none */
    int error;
    struct shim_place place;
};
struct shim_file shim_open_file(const struct shim_head *identity);

/* faults.c: the file may be cut or removed while it is mapped. */
void shim_guard(const struct shim_file *file);
void shim_guard_forget(void);
void shim_check_file(void); /* by the heartbeat, with each sweep */
void shim_tell_of_file(void);  /* by the heartbeat, when recording is over */

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
void shim_journal_start(void);
void shim_journal_forget(void);

/* heartbeat.c: false when the thread cannot be started. */
bool shim_heartbeat_start(void);
bool shim_is_main_gone(void);
void shim_append_clock(const struct forensics_clock_reading *reading, bool only_news);

/* samples.c: one sweep over everything in progress, by the heartbeat; `beat` counts sweeps. */
void shim_sample_all(uint64_t beat, uint64_t now);

extern uint32_t shim_active_proxy_ops; /* published and not ended */
extern uint32_t shim_used_queue_pairs; /* slots ever claimed */

#define SHIM_LOAD(field) __atomic_load_n(&(field), __ATOMIC_RELAXED)
#define SHIM_STORE(field, value) __atomic_store_n(&(field), (value), __ATOMIC_RELAXED)
#define SHIM_ADD(field, value) __atomic_fetch_add(&(field), (value), __ATOMIC_RELAXED)

#pragma GCC visibility pop

#endif
