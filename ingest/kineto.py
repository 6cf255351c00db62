"""Kineto traces of torch.profiler or made on demand: JSON of any layout, whole or cut (docs/formats/kineto.md).

Established on torch 2.13 and on traces of 2021 to 2026; the writer is pytorch/kineto libkineto/src/output_json.cpp.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterator
from typing import Any

from forensics.bundle.artefact import Artefact
from forensics.ingest._config import config_batches
from forensics.ingest._stage_names import problem
from forensics.ingest._trace_events import Tally, events
from forensics.ingest._trace_head import TraceHead, trace_head
from forensics.ingest._trace_steps import Mark, Marks, batches
from forensics.ingest._values import integer, text
from forensics.ingest.interface import Batch, Identity, Ingester, Item, Problem

NEEDLES = (b'user_annotation"', b'"Collective name"', b'"autograd::engine::evaluate_function')
_CPU, _GPU = "user_annotation", "gpu_user_annotation"
_COLLECTIVE = re.compile(r"^(gloo|nccl|ucc|mpi):(\w+)")


def sniff(head: bytes, path: str) -> int:
    """An object with the keys that kineto writes first, or a list of trace events with its categories."""
    start = head.lstrip(b"\xef\xbb\xbf \t\r\n")
    if not start.startswith(b"{"):
        return 0
    if b'"schemaVersion"' in start and any(
        key in start for key in (b'"deviceProperties"', b'"traceEvents"', b'"distributedInfo"', b'"record_shapes"')
    ):
        return 90
    return 60 if b'"traceEvents"' in start and (b'"ph"' in start or len(start) < 200) else 0


def rows(artefact: Artefact) -> Iterator[Item]:
    """Steps, stages and collectives, and what of the file could not be used."""
    tally = Tally()
    found = _Found()
    with artefact.open() as stream:
        for event in events(stream, NEEDLES, tally):
            found.add(event)
    head = trace_head(tally.head, tally.tail)
    yield Identity(head.rank, head.host)
    yield from _complaints(artefact, tally, head)
    yield from config_batches({"world_size": head.world_size})
    if len(head.groups) > 1:  # the default group alone says no more than the size of the world
        views: dict[str, list[Any]] = {
            "pg_name": [g[0] for g in head.groups],
            "description": [g[1] for g in head.groups],
            "members": [g[2] for g in head.groups],
        }
        yield Batch("group_views", views)
    if head.rank is None and artefact.rank is None:
        return
    yield from batches(found.marks(head.base_ns))
    yield from found.calls(head)


def _complaints(artefact: Artefact, tally: Tally, head: TraceHead) -> Iterator[Problem]:
    if told := problem():
        yield Problem(told)
    if tally.problem:
        yield Problem(f"{tally.problem}; what came before was used", f"byte={tally.read}")
    elif not tally.has_end:
        yield Problem("the trace is cut; what came before was used", f"byte={tally.read}")
    if tally.broken:
        yield Problem(f"{tally.broken} events are no valid JSON and were left out", f"byte={tally.first_broken}")
    if head.rank is None and artefact.rank is None:
        yield Problem("no rank is known: neither its content nor its path says one; its steps are not used")
    elif head.rank is None and artefact.rank_method == "guessed":
        yield Problem(f"rank {artefact.rank} is a guess from a number in its name")


class _Found:
    """Events of one file by what they are good for; times in microseconds as they were read."""

    def __init__(self) -> None:
        self._hosts: list[tuple[float, float, str, str, int | None]] = []
        self._devices: list[tuple[float, int]] = []
        self._gradients: list[tuple[float, float]] = []
        self._kernels: list[dict[str, Any]] = []
        self._calls: list[dict[str, Any]] = []

    def add(self, event: dict[str, Any]) -> None:
        """Keep a complete event; anything of another shape is no event of these kinds."""
        ts, dur, name = _number(event.get("ts")), _number(event.get("dur")), event.get("name")
        if event.get("ph") != "X" or ts is None or dur is None or dur < 0 or not isinstance(name, str):
            return
        args = event.get("args")
        link = integer(args.get("External id", args.get("external id"))) if isinstance(args, dict) else None
        category = event.get("cat")
        if category == _CPU:
            self._hosts.append((ts, dur, name, f"{event.get('pid')}/{event.get('tid')}", link))
        elif category == _GPU and link is not None:
            self._devices.append((dur, link))
        elif isinstance(args, dict) and "Collective name" in args:
            (self._kernels if category == "kernel" else self._calls).append({**args, "ts": ts, "dur": dur})
        elif name.startswith("autograd::engine"):
            self._gradients.append((ts, dur))

    def marks(self, base: int) -> Marks:
        """Intervals in nanoseconds of the realtime clock."""
        marks = Marks(device={link: round(dur * 1000) for dur, link in self._devices})
        for ts, dur, name, thread, link in self._hosts:
            begin = base + round(ts * 1000)
            target = marks.collectives if _COLLECTIVE.match(name) else marks.annotations
            target.append(Mark(begin, begin + round(dur * 1000), name, thread, link))
        for ts, dur in self._gradients:
            begin = base + round(ts * 1000)
            marks.gradients.append(Mark(begin, begin + round(dur * 1000)))
        return marks

    def calls(self, head: TraceHead) -> Iterator[Batch]:
        """Collectives: those with arguments as operations, those that only have a name (gloo) as spans."""
        told = self._kernels or self._calls
        if told:
            yield Batch("operations", _operations(told, head, is_device=bool(self._kernels)))
            return
        named = [host for host in self._hosts if _COLLECTIVE.match(host[2])]
        if named:
            begins = [head.base_ns + round(ts * 1000) for ts, *_ in named]
            ends = [begin + round(each[1] * 1000) for begin, each in zip(begins, named, strict=True)]
            columns: dict[str, list[Any]] = {"name": [each[2] for each in named], "category": ["collective"] * len(named)}
            yield Batch("spans", {**columns, "track": [each[3] for each in named], "begin_ns": begins, "end_ns": ends})


def _operations(found: list[dict[str, Any]], head: TraceHead, is_device: bool) -> dict[str, list[Any]]:
    columns: dict[str, list[Any]] = defaultdict(list)
    for place, call in enumerate(sorted(found, key=lambda call: float(call["ts"]))):
        begin = head.base_ns + round(call["ts"] * 1000)
        length = round(call["dur"] * 1000)
        columns["locator"].append(place)
        columns["kind"].append(_kind(text(call.get("Collective name")) or "unknown"))
        columns["pg_name"].append(text(call.get("Process Group Name")))
        columns["backend"].append(head.backend or "nccl")
        columns["sequence"].append(integer(call.get("Seq")))
        columns["count"].append(integer(call.get("In msg nelems")))
        columns["dtype"].append(text(call.get("dtype")))
        columns["is_p2p"].append(call.get("Collective name") in ("send", "recv"))
        columns["device_start_ns" if is_device else "entered_ns"].append(begin)
        columns["device_end_ns" if is_device else "returned_ns"].append(begin + length)
        columns["duration_ns"].append(length if is_device else None)
        columns["state"].append("done")
    return dict(columns)


def _kind(name: str) -> str:
    known = {
        "allreduce": "all_reduce",
        "allgather": "all_gather",
        "_allgather_base": "all_gather_base",
        "alltoall": "all_to_all",
    }
    return known.get(name, name)


def _number(value: Any) -> float | None:
    return float(value) if isinstance(value, (int, float)) and not isinstance(value, bool) and abs(value) < 1e17 else None


INGESTER = Ingester("kineto", "kineto", sniff, rows)
