"""PyTorch Flight Recorder dumps, pickle or JSON, of every backend (docs/formats/flight-recorder.md)."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from itertools import takewhile
from typing import Any

import numpy as np

from forensics.bundle.artefact import Artefact
from forensics.ingest._shared.content import from_first_character, read_document
from forensics.ingest._shared.frames import FrameTable
from forensics.ingest._shared.packed import constant, number_column
from forensics.ingest._shared.values import text
from forensics.ingest._shared.weights import Allowed, Weights, allowed, too_heavy
from forensics.ingest.flight_recorder.calls import calls_of
from forensics.ingest.flight_recorder.columns import operation_columns
from forensics.ingest.flight_recorder.document import read_dump, version_problems
from forensics.ingest.flight_recorder.entries import Entries, read_entries
from forensics.ingest.flight_recorder.groups import group_columns
from forensics.ingest.flight_recorder.membership import implied_rank
from forensics.ingest.flight_recorder.native import MEMBERS, open_dump
from forensics.ingest.interface import Batch, Identity, Ingester, Item, Problem

_PICKLE = re.compile(rb"\x80[\x02-\x05]")
_MARKS = (b"pg_config", b"pg_status", b"nccl_comm_state", b"comm_lib_version", b"nccl_version")
_MEMBER = re.compile(r":(?:send|recv)\b")
_ENTRY_MARKS = (b"profiling_name", b"seq_id", b"input_sizes", b"output_sizes", b"entries", b"time_created_")


def sniff(head: bytes, path: str) -> int:
    """A pickle or JSON whose first keys are those of a dump; the name does not matter."""
    if not _PICKLE.match(head) and from_first_character(head)[:1] not in (b"{", b"["):
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
    with open_dump(content) as native:
        if native is not None:
            yield from version_problems(native.values)
            yield from _facts(native.entries, range(native.entries.count), native.values, artefact, is_whole=True)
            return
    dump = read_dump(content)
    yield from dump.problems
    limits = allowed(len(content)) if content[:1] == b"\x80" else None
    kept = _without_open_call(dump.entries) if dump.problems else dump.entries
    entries = read_entries(kept, limits)
    values = _light(dump.values, limits, entries.heavy)
    yield from _facts(entries, dump.numbers[: len(kept)], values, artefact, is_whole=not dump.problems)


def _without_open_call(entries: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """The entries of a cut dump without those of a group call whose end was cut: that alone shows whether they are done."""
    names = [str(entry["profiling_name"]) for entry in entries]
    if not any("coalesced" in name for name in names):
        return entries
    members = takewhile(lambda name: _MEMBER.search(name) is not None, reversed(names))
    return entries[: len(entries) - sum(1 for _ in members)]


def _light(values: Mapping[str, Any], limits: Allowed | None, heavy: list[str]) -> Mapping[str, Any]:
    """The values that are used, None for what says far more than the file holds."""
    found = {key: values[key] for key in MEMBERS if key in values}
    weigh = Weights().of
    heavy += [key for key, value in found.items() if limits is not None and weigh(value) > limits.value]
    return {key: None if key in heavy else value for key, value in found.items()}


def _unread(count: int) -> Iterator[Batch]:
    """What was left out because only the end of the history was asked for."""
    if count:
        reason = f"{count} older calls not read; --full reads them"
        row = {"scope": "rank", "kind": "recorder_history", "status": "partial", "reason": reason}
        yield Batch("coverage", {name: [value] for name, value in row.items()})


def _facts(
    entries: Entries, numbers: Sequence[int], values: Mapping[str, Any], artefact: Artefact, *, is_whole: bool
) -> Iterator[Item]:
    """The rows of a dump: `numbers` are those of the entries in the artefact; it implies a rank where nothing states one."""
    calls = calls_of(entries)
    groups = calls.groups
    if entries.count:
        begin = calls.begin(artefact.newest_ns) if is_whole and artefact.newest_ns is not None else 0
        yield from _unread(begin)
        frames = FrameTable()
        kept = entries.since(begin)
        columns = operation_columns(kept, calls.since(begin), frames)
        locators = number_column(np.array(numbers[begin:], dtype=np.int64), np.zeros(kept.count, dtype=np.bool_))
        own = {"locator": locators, "snapshot": constant(artefact.sample or 0, "INTEGER", kept.count)}
        yield Batch("operations", {**columns, **own})
        yield from frames.batches()
    yield from map(too_heavy, dict.fromkeys(entries.heavy))
    views = group_columns(values, set(groups.values))
    if views["pg_name"]:
        yield Batch("group_views", views)
        if not artefact.has_stated_rank:
            yield Identity(rank=implied_rank(views, entries, groups))
    keys = {"flight_recorder.version": "version", "comm_lib_version": "comm_lib_version", "nccl_version": "nccl_version"}
    found = [(name, text(values.get(key))) for name, key in keys.items()]
    config = [(name, value) for name, value in found if value]
    if config:
        names, texts = zip(*config, strict=True)
        yield Batch("job_config", {"key": names, "value": texts, "confidence": ["read"] * len(names)})


INGESTER = Ingester("flight_recorder", "flight_recorder", sniff, rows, most=95)
