"""The stage-vector file, byte by byte (docs/formats/stage-vectors.md); everything is little-endian."""

from __future__ import annotations

import struct

MAGIC = b"FXSTAGE\x01"
VERSION = 1
HEADER_BYTES = 128
NAMES_OFFSET = 1024
NAME_BYTES = 64
NAMES = 256
SLOTS_OFFSET = NAMES_OFFSET + NAMES * NAME_BYTES
TEXT_BYTES = NAMES_OFFSET - HEADER_BYTES

HEADER = struct.Struct("<8sHHIIIIiiiIIqqQQIIII")
"""magic, version, flags, names offset, slots offset, slot bytes, slots, rank, world size, local rank, pid, text bytes,
realtime and monotonic clock (one reading, ns), steps written, steps dropped, then spans nested, outside a step and beyond the
slot, names."""
NAME = struct.Struct("<HH60s")
"""Flags (1: side channel), bytes of the text, text in UTF-8."""
STEP = struct.Struct("<QqqqqHHI")
"""Serial from 1 (0: never written), step, begin (monotonic ns), wall (ns), batch (-1: unknown), spans, flags, accumulation."""
SPAN = struct.Struct("<HHIqqq")
"""Name, substep, flags, begin after the step's begin (ns), duration (ns), device time (ns, -1: none)."""
TAIL = struct.Struct("<Q")
"""The serial again: a slot whose two serials differ was being written."""

SIDE_CHANNEL = 1
TIMED, NO_TORCH, NO_CUDA, CAPTURING = "timed", "no torch", "no cuda", "capturing"
"""Words of `device` in the header's text: device times were taken, or why none was. Without the word nobody asked for any."""
STEP_RAISED = 1
STEP_OVERFLOWED = 2
SPAN_DEVICE_ASKED = 1
SPAN_DEVICE_READY = 2


def slot_bytes(spans: int) -> int:
    """Size of a slot that holds so many spans."""
    return STEP.size + spans * SPAN.size + TAIL.size
