"""collectors.jsonl: every run of a collector on one node, with its status (docs/formats/collection.md)."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from typing import Any

import orjson

from forensics.bundle.artefact import Artefact
from forensics.bundle.layout import Status
from forensics.ingest._shared.content import Lines
from forensics.ingest._shared.values import integer, rank_number, text
from forensics.ingest.interface import Batch, Ingester, Item, Problem

STATUSES = frozenset(Status)
_MAX_PROBLEMS = 20
_MARKS = (b'"id"', b'"status"', b'"begin_ns"', b'"end_ns"', b'"argv"')


def sniff(head: bytes, path: str) -> int:
    """Lines of JSON objects with the keys of a run."""
    first = head.partition(b"\n")[0]
    return 90 if first[:1] == b"{" and sum(mark in first for mark in _MARKS) >= 4 else 0


def rows(artefact: Artefact) -> Iterator[Item]:
    """One row of coverage for each run."""
    columns: dict[str, list[Any]] = defaultdict(list)
    lines, refused = Lines(artefact), 0
    for number, line in lines:
        if not line.strip():
            continue
        run = _run(line)
        if run is None:
            refused += 1
            if refused <= _MAX_PROBLEMS:
                yield Problem("not a run of a collector: no JSON object with id and a known status", f"line={number}")
            continue
        for name, value in run.items():
            columns[name].append(value)
    if columns:
        yield Batch("coverage", columns)
    if refused > _MAX_PROBLEMS:
        yield Problem(f"{refused} lines in all are not runs of a collector")
    if lines.problem is not None:
        yield lines.problem


def _run(line: str) -> dict[str, Any] | None:
    """The row of one line, empty for a run that says nothing of coverage, None when it cannot be understood."""
    if line[0] != "{" and not line.lstrip().startswith("{"):
        return None
    try:
        run = orjson.loads(line)
    except orjson.JSONDecodeError:
        return None
    if not isinstance(run, dict) or not isinstance(run.get("id"), str) or run.get("status") not in STATUSES:
        return None
    if run.get("counts") is False:
        return {}
    rank = rank_number(run.get("rank"))
    times = {key: integer(run.get(key)) for key in ("begin_ns", "end_ns")}
    scope = "host" if rank is None else "rank"
    return {
        "scope": scope,
        "rank": rank,
        "kind": run["id"],
        "status": run["status"],
        "reason": text(run.get("reason")),
        **times,
    }


INGESTER = Ingester("collector_runs", "collection", sniff, rows, most=90)
