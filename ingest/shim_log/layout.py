"""Layout 1 of the shim log as numpy types, field by field as on docs/formats/shim-log.md."""

from __future__ import annotations

from typing import Any, Final

import numpy as np

MAGIC: Final = b"FRXSHIM\n"
MAJOR: Final = 1
HEAD_BYTES: Final = 2048
BYTE_ORDER: Final = 0x0A0B0C0D
BUSY: Final = 1 << 63
NO_COMM: Final = 0xFFFF

CLOCKS, COMMS, PROXY_OPS, QUEUE_PAIRS, EPOCHS, RINGS, RECORDS = range(1, 8)
"""Kinds of section."""
RING_CLASSES: Final = ("calls", "rare", "flows", "samples")

OPERATIONS: Final = {
    1: "all_reduce",
    2: "all_gather",
    3: "reduce_scatter",
    4: "reduce",
    5: "broadcast",
    6: "all_to_all",
    7: "gather",
    8: "scatter",
    9: "send",
    10: "recv",
    11: "put_signal",
    12: "signal",
    13: "wait_signal",
}
SEND, WAIT_SIGNAL, GROUP_START, GROUP_END = 9, 13, 16, 17
EVENTS: Final = {
    32: "get_unique_id",
    33: "init_rank",
    34: "init_rank_config",
    35: "init_rank_scalable",
    36: "init_all",
    37: "split",
    38: "shrink",
    39: "grow",
    40: "finalize",
    41: "destroy",
    42: "abort",
    43: "revoke",
    44: "async_error",
    45: "suspend",
    46: "resume",
    47: "window_register",
    48: "window_deregister",
    49: "dev_comm_create",
    50: "dev_comm_destroy",
}
"""Calls on a communicator that are no operations: they make, change or end it, or all of its members must make them."""
THREAD, QP_EVENT_KIND, PROXY_STATE, PROXY_DONE, PROXY_WAITS, OP_DONE, QP_STATE, QP_RATE = 64, 65, 80, 81, 82, 83, 84, 85
LEFT: Final = 1
"""`leave` of a call that returned between two sweeps of the writer: the moment was not taken."""
LOG_STATES: Final = {1: "recording", 2: "stopped", 3: "ended", 4: "recording without a heartbeat"}
COMM_STATES: Final = ("free", "starting", "ready", "failed", "finalized", "destroyed", "aborted", "revoked")


def _dtype(size: int, fields: str, **nested: np.dtype[Any]) -> np.dtype[Any]:
    """A structure of `name type[*count]` fields (`name @[*count]` for a nested one) and `<n>x` bytes left out."""
    names, formats, offsets, offset = [], [], [], 0
    for field in fields.split(","):
        name, _, kind = field.strip().partition(" ")
        if not kind:
            offset += int(name.removesuffix("x"))
            continue
        base, _, count = kind.partition("*")
        item = nested[name] if base == "@" else np.dtype(base)
        shaped = np.dtype((item, (int(count),))) if count else item
        names.append(name)
        formats.append(shaped)
        offsets.append(offset)
        offset += shaped.itemsize
    if offset != size:
        raise AssertionError(f"layout of {size} bytes adds up to {offset}")
    return np.dtype({"names": names, "formats": formats, "offsets": offsets, "itemsize": size})


SECTION: Final = _dtype(
    32,
    "kind u4, entry_bytes u4, offset u8, count u8, 8x",
)
"""One entry of the section directory."""

CLOCK: Final = _dtype(
    48,
    "realtime_ns i8, monotonic_ns i8, boottime_ns i8, counter u8, bound_ns i8, attempts u4, counter_kind u2, layout u2",
)
"""A clock reading (docs/formats/clock-reading.md)."""

HEAD: Final = _dtype(
    2048,
    "magic S8, byte_order u4, major u2, minor u2, head_bytes u4, record_bytes u4, file_bytes u8, checksum u4, "
    "section_count u4, section_offset u4, section_entry_bytes u4, pid u8, parent_pid u8, process_start u8, "
    "created_ns i8, created u8, ticks u2, architecture u2, epoch_shift u2, epoch_bins u2, rank i4, local_rank i4, "
    "world_size i4, sample_ms u4, live_offset u4, live_bytes u4, mode u4, 4x, host S64, boot_id S40, rank_variable S24, "
    "executable S128, job S64, visible_devices S64, sections @*32, build S64, run S32, 416x",
    sections=SECTION,
)
"""The first 2048 bytes."""

LIVE: Final = _dtype(
    2048,
    "state u4, reason u4, reason_errno i4, beat_version u4, beats u8, last_clock @, clocks u8, hooked u8*2, "
    "called u8*2, unresolved u8*2, dropped u8*4, threads u8, lost_comms u8, lost_proxy_ops u8, lost_queue_pairs u8, "
    "ended u8, nccl_version u4, profiler_version u4, profiler_mask u4, verbs_contexts u4, forks u4, unlocked u4, note S128, "
    "1696x",
    last_clock=CLOCK,
)
"""The live page behind the head."""

RING: Final = _dtype(
    128,
    "ring_class u4, thread u4, first u8, records u8, head u8, owned_from u8, thread_name S16, owned u4, 4x, owners u8, 56x",
)
"""One ring."""

RECORD: Final = _dtype(
    64,
    "sequence u8, time u8, payload u1*40, kind u1, generation u1, comm u2, check u4",
)
"""Any record."""

CALL: Final = _dtype(
    64,
    "sequence u8, enter u8, leave u8, count u8, stream u8, op_number u4, p2p_number u4, peer i4, dtype u1, redop u1, "
    "depth u1, result u1, kind u1, generation u1, comm u2, check u4",
)
"""A call of an NCCL function."""

PROXY: Final = _dtype(
    64,
    "sequence u8, time u8, op_number u4, peer i4, slot u2, channel u1, direction u1, total u4, posted u4, ready u4, "
    "passed u4, done u4, bytes u8, kind u1, generation u1, comm u2, check u4",
)
"""Counters of a proxy operation."""

WAITS: Final = _dtype(
    64,
    "sequence u8, time u8, start u8, wait f4*6, stuck f4, slot u2, channel u1, direction u1, kind u1, generation u1, "
    "comm u2, check u4",
)
"""Second half of PROXY."""

DONE: Final = _dtype(
    64,
    "sequence u8, start u8, end u8, bytes u8, parent u8, op_number u4, p2p_number u4, peer i4, operation u1, "
    "algorithm u1, protocol u1, channels u1, kind u1, generation u1, comm u2, check u4",
)
"""An NCCL operation whose proxy operations all ended."""

QP: Final = _dtype(
    64,
    "sequence u8, time u8, posted_wrs u8, completed_wrs u8, posted_bytes u8, completed_bytes u8, oldest f4, slot u2, "
    "in_flight u2, kind u1, generation u1, comm u2, check u4",
)
"""Counters of a queue pair."""

RATE: Final = _dtype(
    64,
    "sequence u8, time u8, busy u8, window_bytes u8, window_ticks u8, received_bytes u8, poll_gap f4, slot u2, "
    "tail u2, kind u1, generation u1, comm u2, check u4",
)
"""Second half of QP."""

QP_EVENT: Final = _dtype(
    64,
    "sequence u8, time u8, wr_id u8, context u8, number u4, remote_number u4, status u4, vendor_error u4, slot u4, "
    "event u1, port u1, timeout u1, retry_count u1, kind u1, generation u1, comm u2, check u4",
)
"""A queue pair made, changed, ended or failed."""

COMM: Final = _dtype(
    384,
    "state u4, generation u4, handle u8, identity u8, parent u8, comm_id u8, rank i4, ranks i4, color i4, device i4, "
    "nodes i4, flags u4, init_enter u8, init_leave u8, closed u8, ops u8, last_enter u8, last_leave u8, inside u4, "
    "inside_kind u4, profiler_ops u8, ops_done u8, async_error i4, splits u4, 64x, name S64, 112x",
)
"""One communicator."""

STEP: Final = _dtype(
    24,
    "state u4, number u4, since u8, bytes u8",
)
"""One live step of a proxy operation."""

PROXY_OP: Final = _dtype(
    512,
    "state u4, generation u4, comm u2, channel u1, direction u1, peer i4, parent u8, pid u4, op_number u4, total u4, "
    "posted u4, gpu_ready u4, transmitted u4, done u4, received u4, flushed u4, consumed u4, bytes u8, start u8, "
    "last_change u8, end u8, wait u8*6, operation u1, comm_generation u1, 2x, chunk_bytes u4, steps @*8, waiting u4, "
    "unbalanced u4, pairs u2*4, p2p_number u4, 148x",
    steps=STEP,
)
"""One proxy operation."""

QUEUE_PAIR: Final = _dtype(
    512,
    "state u4, generation u4, context u8, number u4, remote_number u4, device S32, port u1, timeout u1, "
    "retry_count u1, link u1, lid u2, remote_lid u2, gid u1*16, remote_gid u1*16, created u8, connected u8, "
    "posted_wrs u8, posted_bytes u8, completed_wrs u8, completed_bytes u8, received_wrs u8, received_bytes u8, "
    "signaled_posted u8, signaled_completed u8, oldest_post u8, last_post u8, last_completion u8, tail_wrs u8, "
    "busy u8, window_bytes u8, window_ticks u8, poll_gap u8, marks_lost u8, error_time u8, error_wr_id u8, "
    "error_status u4, error_vendor u4, errors u8, bins u8, gid_index u2, mtu u2, 4x, post_errors u8, "
    "flow_peer i4, flow_comm u2, flow_generation u1, flow_channel u1, flow_direction u1, flows u1, 198x",
)
"""One queue pair."""

EPOCH_BIN: Final = _dtype(
    16,
    "epoch u8, bytes u4, poll_gap u4",
)
"""Bytes of one queue pair in one epoch."""
