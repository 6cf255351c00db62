"""PyTorch Flight Recorder dumps, pickle or JSON, of every backend (docs/formats/flight-recorder.md)."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from forensics.bundle.artefact import Artefact
from forensics.ingest._content import read_document
from forensics.ingest._frames import FrameTable
from forensics.ingest._recorder_columns import Group, operation_columns, process_groups
from forensics.ingest._recorder_document import Dump, read_dump
from forensics.ingest._recorder_entries import Entries, read_entries
from forensics.ingest._recorder_groups import group_columns
from forensics.ingest._values import text
from forensics.ingest.interface import Batch, Ingester, Item, Problem

_PICKLE = re.compile(rb"\x80[\x02-\x05]")
_MARKS = (b"pg_config", b"pg_status", b"nccl_comm_state", b"comm_lib_version", b"nccl_version")
_ENTRY_MARKS = (b"profiling_name", b"seq_id", b"input_sizes", b"output_sizes", b"entries", b"time_created_")


def sniff(head: bytes, path: str) -> int:
    """A pickle or JSON whose first keys are those of a dump; the name does not matter."""
    if not _PICKLE.match(head) and head.lstrip(b"\xef\xbb\xbf \t\r\n")[:1] not in (b"{", b"["):
        return 0
    top = sum(mark in head for mark in _MARKS)
    inner = sum(mark in head for mark in _ENTRY_MARKS)
    # In a large world the members of the first group alone fill the head.
    if b"version" in head[:64] and b"pg_config" in head[:256]:
        return 95
    return 95 if top and top + inner >= 2 else 85 if inner >= 3 else 0


def rows(artefact: Artefact) -> Iterator[Item]:
    """Operations, group views, call paths and the versions of one dump."""
    content = read_document(artefact)
    if isinstance(content, Problem):
        yield content
        return
    dump = read_dump(content)
    yield from dump.problems
    entries = read_entries(dump.entries)
    named = process_groups(entries)
    if dump.entries:
        yield from _operations(dump, entries, named, artefact.sample)
    groups = group_columns(dump.values, set(named))
    if groups["pg_name"]:
        yield Batch("group_views", groups)
    keys = {"flight_recorder.version": "version", "comm_lib_version": "comm_lib_version", "nccl_version": "nccl_version"}
    found = [(name, text(dump.values.get(key))) for name, key in keys.items()]
    config = [(name, value) for name, value in found if value]
    if config:
        names, values = zip(*config, strict=True)
        yield Batch("job_config", {"key": names, "value": values, "confidence": ["read"] * len(names)})


def _operations(dump: Dump, entries: Entries, groups: Sequence[Group], sample: int | None) -> Iterator[Item]:
    """The entries, and the call paths they refer to."""
    frames = FrameTable()
    columns = operation_columns(entries, groups, frames)
    yield Batch("operations", {**columns, "locator": dump.numbers, "snapshot": [sample or 0] * entries.count})
    yield from frames.batches()


INGESTER = Ingester("flight_recorder", "flight_recorder", sniff, rows)
