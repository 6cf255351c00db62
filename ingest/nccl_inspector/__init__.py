"""Completed operations as NCCL Inspector writes them, one JSON object a line (docs/formats/nccl-inspector.md).

The profiler plugin that NVIDIA ships in the source tree of NCCL from 2.28 on; upstream inspector.cc (2.28, 2.29) and
inspector_json.cc (2.30) below `ext-profiler/inspector` and, from 2.29.7 on, `plugins/profiler/inspector`. Format version v4.0.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import orjson

from forensics.bundle.artefact import Artefact
from forensics.ingest._shared.content import Lines
from forensics.ingest._shared.values import integer, positive, rank_number, text
from forensics.ingest.interface import Batch, Identity, Ingester, Item, Problem

_MARKS = (b'"header"', b'"metadata"', b'"inspector_output_format_version"')
_ROWS = 50_000
_MAX_PROBLEMS = 20
_MAX_COMMUNICATORS = 1 << 17
_MAX_SERIES = 1 << 20
# The names of ncclFuncToString in inspector.cc.
_KINDS = {
    "AllGather": "all_gather",
    "AllReduce": "all_reduce",
    "Broadcast": "broadcast",
    "Recv": "recv",
    "Reduce": "reduce",
    "ReduceScatter": "reduce_scatter",
    "SendRecv": "send_recv",
    "Send": "send",
    "All2All": "all_to_all",
    "AllGatherV": "all_gather_v",
}
_FACTS = {
    "inspector.pid": "pid",
    "inspector.format_version": "inspector_output_format_version",
    "inspector.git_rev": "git_rev",
}
_ON_THE_DEVICE = ("kernel_gpu", "kernel_cpu")


def sniff(head: bytes, path: str) -> int:
    """A JSON object with the header and the metadata of a line."""
    return 95 if head.lstrip()[:1] == b"{" and all(mark in head for mark in _MARKS) else 0


@dataclass(slots=True)
class _File:
    """What a file stated so far; `numbers` has first, last and count of each series of numbers."""

    operations: dict[str, list[Any]] = field(default_factory=lambda: defaultdict(list))
    communicators: dict[tuple[int | None, str], dict[str, Any]] = field(default_factory=dict)
    numbers: dict[tuple[str, str], tuple[int, int, int]] = field(default_factory=dict)
    facts: dict[str, str] = field(default_factory=dict)
    host: str | None = None
    dumped_first: int | None = None
    dumped_last: int | None = None
    refused: int = 0


def rows(artefact: Artefact) -> Iterator[Item]:
    """Operations, all of them done; the communicators they belong to; how much there is."""
    found, lines = _File(), Lines(artefact)
    for number, line in lines:
        if not line.strip():
            continue
        problem = _take(found, line, number)
        if problem is not None:
            found.refused += 1
            if found.refused <= _MAX_PROBLEMS:
                yield problem
        if len(found.operations["locator"]) >= _ROWS:
            yield Batch("operations", found.operations)
            found.operations = defaultdict(list)
    if found.host is not None:
        yield Identity(host=found.host)
    yield from _rest(found, lines.problem)


def _rest(found: _File, cut: Problem | None) -> Iterator[Item]:
    if found.operations["locator"]:
        yield Batch("operations", found.operations)
    if found.communicators:
        columns = {
            name: [row[name] for row in found.communicators.values()] for name in next(iter(found.communicators.values()))
        }
        yield Batch("communicator_states", columns)
    if found.numbers:
        yield from _coverage(found)
    if found.refused > _MAX_PROBLEMS:
        yield Problem(f"{found.refused} lines in all could not be read")
    if cut is not None:
        yield cut


def _take(found: _File, line: str, number: int) -> Problem | None:
    """Take one line, or say why it cannot be read."""
    try:
        entry = orjson.loads(line)
    except orjson.JSONDecodeError as error:
        return Problem(f"not valid JSON, cut perhaps: {error.msg}", f"line={number}")
    if not isinstance(entry, dict):
        return Problem("not a JSON object", f"line={number}")
    header, metadata = _object(entry.get("header")), _object(entry.get("metadata"))
    identity, form = text(header.get("id")), "coll" if "coll_perf" in entry else "p2p"
    operation = _object(entry.get(f"{form}_perf"))
    if identity is None or text(operation.get(form)) is None:
        return Problem("no operation of a communicator", f"line={number}")
    label = f"nccl:inspector-{identity.removeprefix('0x')[:64]}"
    _note(found, metadata)
    _communicator(found, label, identity, header, metadata, number)
    for name, value in _operation(operation, form).items():
        found.operations[name].append(value)
    found.operations["locator"].append(number)
    for name in ("communicator", "pg_name"):
        found.operations[name].append(label)
    _number(found, label, found.operations["kind"][-1], found.operations["op_id"][-1])
    return None


def _object(value: Any) -> Mapping[str, Any]:
    return value if isinstance(value, dict) else {}


def _note(found: _File, metadata: Mapping[str, Any]) -> None:
    """Facts of the process: those of the first line that has them."""
    found.host = found.host or text(metadata.get("hostname"))
    for name, key in _FACTS.items():
        value = text(metadata.get(key))
        if value:
            found.facts.setdefault(name, value)
    dumped = _nanoseconds(positive(metadata.get("dump_timestamp_us")))
    found.dumped_first = dumped if found.dumped_first is None else found.dumped_first
    found.dumped_last = found.dumped_last if dumped is None else dumped


def _communicator(
    found: _File, label: str, identity: str, header: Mapping[str, Any], metadata: Mapping[str, Any], number: int
) -> None:
    key = (integer(metadata.get("pid")), label)
    if key in found.communicators or len(found.communicators) >= _MAX_COMMUNICATORS:
        return
    name = text(header.get("comm_name"))
    found.communicators[key] = {
        "locator": number,
        "communicator": label,
        "comm_id": identity,
        "name": None if name == "unknown" else name,
        "group_rank": rank_number(header.get("rank")),
        "size": positive(header.get("n_ranks")),
        "nodes": positive(header.get("nnodes")),
    }


def _operation(operation: Mapping[str, Any], form: str) -> dict[str, Any]:
    """Columns of `operations`; times by the host's clock are there in the verbose form only."""
    stated = str(operation[form])
    source = text(operation.get(f"{form}_timing_source"))
    micros = integer(operation.get(f"{form}_exec_time_us"))
    times = _object(operation.get("event_trace_ts"))
    kernels = times.get("kernel_events")
    return {
        "backend": "nccl",
        "op_id": integer(operation.get(f"{form}_sn")),
        "kind": _KINDS.get(stated, stated[:64].lower()),
        "is_p2p": form == "p2p",
        "peer": rank_number(operation.get("p2p_peer")),
        "bytes": integer(operation.get(f"{form}_msg_size_bytes")),
        "duration_ns": _nanoseconds(micros) if source is None or source in _ON_THE_DEVICE else None,
        "entered_ns": _nanoseconds(positive(times.get(f"{form}_start_ts"))),
        "device_start_ns": _nanoseconds(min(_stamps(kernels, "kernel_start_ts"), default=None)),
        "device_end_ns": _nanoseconds(max(_stamps(kernels, "kernel_stop_ts"), default=None)),
        "state": "done",
    }


def _stamps(events: Any, name: str) -> Sequence[int]:
    """Times of the channels in microseconds, those that were taken."""
    listed = events if isinstance(events, list) else []
    return [stamp for event in listed if isinstance(event, dict) and (stamp := positive(event.get(name))) is not None]


def _nanoseconds(micros: int | None) -> int | None:
    return micros * 1000 if micros is not None and 0 <= micros < 1 << 53 else None


def _number(found: _File, label: str, kind: str, number: int | None) -> None:
    """Collectives are numbered by kind, sends and receives together."""
    key = (label, "p2p" if kind in ("send", "recv") else kind)
    if number is None or (key not in found.numbers and len(found.numbers) >= _MAX_SERIES):
        return
    first, last, count = found.numbers.get(key, (number, number, 0))
    found.numbers[key] = (min(first, number), max(last, number), count + 1)


def _coverage(found: _File) -> Iterator[Batch]:
    """A file without an operation says nothing of it: it may be running, small, or never written."""
    kept = sum(count for _, _, count in found.numbers.values())
    spanned = sum(last - first + 1 for first, last, _ in found.numbers.values())
    missing = max(0, spanned - kept)
    reason = f"{missing} of {spanned} numbered operations were not written: too small, or dropped" if missing else None
    columns: dict[str, list[Any]] = {
        "scope": ["rank"],
        "kind": ["nccl_inspector"],
        "status": ["partial" if missing else "ok"],
        "reason": [reason],
    }
    yield Batch("coverage", {**columns, "begin_ns": [found.dumped_first], "end_ns": [found.dumped_last]})
    facts = {**found.facts, "inspector.operations": f"written={kept} missing={missing}"}
    yield Batch("job_config", {"key": list(facts), "value": list(facts.values()), "confidence": ["read"] * len(facts)})


INGESTER = Ingester("nccl_inspector", "nccl_inspector", sniff, rows, most=95)
