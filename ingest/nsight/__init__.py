"""Nsight Systems exports (`nsys export --type sqlite`): ranges of every process, NCCL kernels, ranges that never ended.

Established on the documented schema 3.x (docs/formats/nsight.md). Tables and columns are made lazily by the exporter, so that
any of them may be missing.
"""

from __future__ import annotations

import re
import sqlite3
import tempfile
from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from forensics.bundle.artefact import Artefact
from forensics.bundle.streams import chunks
from forensics.ingest._shared.collective_kernels import kind_of_call
from forensics.ingest._shared.stage_names import problem, stage_names, stage_of
from forensics.ingest._shared.trace_steps import Mark, Marks, batches
from forensics.ingest.interface import Batch, Identity, Ingester, Item, Problem
from forensics.ingest.nsight.device import busy, device_work, is_collective, operations
from forensics.ingest.nsight.tables import Export

_MAGIC = b"SQLite format 3\x00"
_RANGES = (59, 60, 70, 71)
_MOST_OPEN = 1000
_RANK = re.compile(r"\brank\s*[=:]\s*(\d{1,7})\b", re.IGNORECASE)
_VARIABLE = re.compile(r"^(?:RANK|SLURM_PROCID|OMPI_COMM_WORLD_RANK)=(\d{1,7})$")


def sniff(head: bytes, path: str) -> int:
    """A SQLite database whose first page names a table of an export, or that is called like one."""
    if not head.startswith(_MAGIC):
        return 0
    return 90 if any(name in head for name in (b"StringIds", b"NVTX_EVENTS", b"META_DATA_", b"TARGET_INFO", b"CUPTI_")) else 20


def rows(artefact: Artefact) -> Iterator[Item]:
    """Steps, stages and collectives of every process of the export."""
    with tempfile.NamedTemporaryFile(prefix="forensics-", suffix=".sqlite") as copy:
        try:
            with artefact.open() as stream:
                for chunk in chunks(stream):
                    copy.write(chunk)
            copy.flush()
            with closing(sqlite3.connect(f"file:{copy.name}?mode=ro&immutable=1", uri=True)) as database:
                database.execute("PRAGMA trusted_schema = OFF")
                yield from _export(Export.of(database, copy.tell()), artefact)
        except (sqlite3.Error, OSError, ValueError, TypeError, OverflowError) as error:
            # Damaged pages give values of any kind, and even messages that are no text.
            stated = "it has more rows than a file of its size can hold" if str(error) == "interrupted" else error
            yield Problem(f"cannot be read any further: {stated}", fatal=True)


def _export(export: Export, artefact: Artefact) -> Iterator[Item]:
    has_ranges = export.table("NVTX_EVENTS") is not None
    if not has_ranges and export.table("CUPTI_ACTIVITY_KIND_KERNEL") is None:
        yield Problem("neither NVTX ranges nor kernels in this export", fatal=True)
        return
    if not has_ranges:
        yield Problem("no NVTX ranges in this export: steps and stages are unknown")
    if stated := problem():
        yield Problem(stated)
    epoch = next((int(row[0] or 0) for row in export.rows("TARGET_INFO_SESSION_START_TIME", "utcEpochNs")), 0)
    host = next((str(row[1]) for row in export.rows("TARGET_INFO_SYSTEM_ENV", "name", "value") if row[0] == "Hostname"), None)
    yield Identity(host=host)
    for row in export.rows("DIAGNOSTIC_EVENT", "text", "severity"):
        if row[0] and any(word in str(row[0]).lower() for word in ("lost", "dropped", "overflow", "incomplete")):
            yield Problem(f"the profiler says: {str(row[0])[:200]}")
    strings = dict(export.rows("StringIds", "id", "value"))
    processes = _processes(export, strings, epoch)
    _add_work(export, strings, processes, epoch)
    ranks, guess = _ranks(export, processes, artefact)
    if guess:
        yield Problem(guess)
    for pid, rank in ranks.items():
        yield from _ranked(processes[pid], rank)


@dataclass(slots=True)
class _Process:
    """What is known of one process: ranges, calls of NCCL, ranges without an end, and what it says of its rank."""

    marks: Marks = field(default_factory=Marks)
    calls: list[Mark] = field(default_factory=list)
    opened: list[tuple[str, int]] = field(default_factory=list)
    operations: dict[str, list[Any]] = field(default_factory=dict)
    said: int | None = None

    @property
    def is_marked(self) -> bool:
        """Whether ranges tell what it did."""
        return bool(self.marks.annotations or self.opened)


def _processes(export: Export, strings: dict[Any, Any], epoch: int) -> dict[int, _Process]:
    """Ranges by process id; those that never ended apart."""
    found: dict[int, _Process] = {}
    kinds = f"eventType IN {_RANGES}"
    for begin, end, text, number, thread in export.rows(
        "NVTX_EVENTS", "start", "end", "text", "textId", "globalTid", where=kinds
    ):
        name = text if isinstance(text, str) else strings.get(number)
        if not isinstance(name, str) or not isinstance(begin, int) or not isinstance(thread, int):
            continue
        process = found.setdefault((thread >> 24) & 0xFFFFFF, _Process())
        if end is None:
            process.opened.append((name, epoch + begin))
        elif isinstance(end, int) and end >= begin and name.startswith("nccl") and kind_of_call(name):
            process.calls.append(Mark(epoch + begin, epoch + end, name, str(thread & 0xFFFFFF)))
        elif isinstance(end, int) and end >= begin and (stage_names().is_step(name) or stage_of(name)):
            process.marks.annotations.append(Mark(epoch + begin, epoch + end, name, str(thread & 0xFFFFFF)))
        said = _RANK.search(name)
        process.said = int(said[1]) if said and process.said is None else process.said
    return found


def _ranks(export: Export, processes: dict[int, _Process], artefact: Artefact) -> tuple[dict[int, int], str | None]:
    """Rank by process id, and what was guessed: from ranges, the environment of the one process, the path, or the order."""
    marked = [pid for pid, process in sorted(processes.items()) if process.is_marked]
    busy = marked or [pid for pid, process in sorted(processes.items()) if process.operations]
    said = {pid: rank for pid in busy if (rank := processes[pid].said) is not None}
    if len(said) == len(busy) and len(set(said.values())) == len(said):
        return said, None
    if len(busy) == 1:
        stated = [match for row in export.rows("META_DATA_CAPTURE", "value") if (match := _VARIABLE.match(str(row[0])))]
        rank = int(stated[0][1]) if stated else artefact.rank
        if rank is not None:
            return {busy[0]: rank}, None
    first = (artefact.rank or 0) if len(busy) == 1 else 0
    guessed = {pid: first + place for place, pid in enumerate(busy)}
    return guessed, "no rank is known: processes are numbered in the order of their ids, which is a guess" if busy else None


def _add_work(export: Export, strings: dict[Any, Any], processes: dict[int, _Process], epoch: int) -> None:
    """What the devices did for each process: collectives apart from the rest."""
    work = device_work(export)
    collective = is_collective(work, strings)
    for pid in np.unique(work.process).tolist():
        process = processes.setdefault(pid, _Process())
        own = work.process == pid
        process.marks.work = busy(work.of(own & ~collective), epoch)
        if (own & collective).any():
            process.operations = operations(work.of(own & collective), process.calls, strings, epoch)


def _ranked(process: _Process, rank: int) -> Iterator[Item]:
    """Rows of one process, with its rank."""
    if process.marks.annotations:
        for item in batches(process.marks):
            if isinstance(item, Problem):
                yield Problem(f"rank {rank}: {item.message}")
                continue
            count = len(next(iter(item.columns.values())))
            yield Batch(item.table, {**item.columns, "rank": [rank] * count})
    if process.operations:
        columns = {**process.operations, "rank": [rank] * len(process.operations["kind"])}
        yield Batch("operations", columns)
    if opened := process.opened[-_MOST_OPEN:]:
        columns = {"name": [name for name, _ in opened], "begin_ns": [begin for _, begin in opened]}
        columns |= {"category": ["open range"] * len(opened), "rank": [rank] * len(opened)}
        yield Batch("spans", columns)


INGESTER = Ingester("nsight", "nsight", sniff, rows, most=90)
