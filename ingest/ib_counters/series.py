"""A series of reads by `forensics nic-sample`: the devices, then the counters that changed, one JSON object a line.

Two reads of it are compared, as two reads by the collector are: the last one, and the one two seconds before. What was carried
before that says nothing of whether the job moves at the end.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import orjson

from forensics.bundle.artefact import Artefact
from forensics.ingest._shared.content import Lines
from forensics.ingest._shared.values import integer
from forensics.ingest.interface import Problem

SCHEMA = "forensics.ib-series/1"
APART_NS = 2_000_000_000
_MOST_SHOWN = 20
_MOST_PORTS = 1024
_LONGEST_NAME = 64

Values = Mapping[tuple[str, str], int]
"""By port (`mlx5_0/1`) and counter."""


@dataclass(frozen=True, slots=True)
class Series:
    """The devices as the collector writes them, without counters, and two reads to compare: time (ns) and values."""

    document: dict[str, Any]
    reads: tuple[tuple[int, Values], ...]
    problems: tuple[Problem, ...]


def read_series(artefact: Artefact) -> Series:
    """What a file tells, as far as it goes; a line that is no read is passed over by its number."""
    lines = Lines(artefact)
    document: dict[str, Any] = {}
    values: dict[tuple[str, str], int] = {}
    kept: deque[tuple[int, Values]] = deque()
    bad: list[int] = []
    for number, line in lines:
        found = _parsed(line)
        time_ns = integer(found.get("time_ns")) if found else None
        if found is None or time_ns is None:
            bad.append(number)
            continue
        if "devices" in found:
            document = document or found
            continue
        values = values | dict(_values(found))
        kept.append((time_ns, values))
        while len(kept) > 2 and kept[1][0] <= time_ns - APART_NS:
            kept.popleft()
    problems = [Problem("a line that is no read of counters", f"line={number}") for number in bad[:_MOST_SHOWN]]
    if lines.problem is not None:
        problems.append(lines.problem)
    reads = (kept[0], kept[-1]) if len(kept) > 1 else tuple(kept)
    return Series(document, reads, tuple(problems))


def _parsed(line: str) -> dict[str, Any] | None:
    try:
        found = orjson.loads(line)
    except orjson.JSONDecodeError:
        return None
    return found if isinstance(found, dict) else None


def _values(read: Mapping[str, Any]) -> Iterator[tuple[tuple[str, str], int]]:
    ports = read.get("ports")
    for port, counters in list(ports.items())[:_MOST_PORTS] if isinstance(ports, dict) else ():
        for counter, value in counters.items() if isinstance(counters, dict) else ():
            number = integer(value)
            if number is not None:
                yield (port[:_LONGEST_NAME], counter[:_LONGEST_NAME]), number
