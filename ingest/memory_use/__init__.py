"""Memory of a host as `free` prints it (docs/formats/memory-use.md)."""

from __future__ import annotations

import re
from collections.abc import Iterator
from itertools import pairwise
from typing import Any

from forensics.bundle.artefact import Artefact
from forensics.ingest._shared.content import Lines
from forensics.ingest.interface import Batch, Ingester, Item, Problem

MAX_SAMPLES = 10_000
_HEADER = re.compile(r"\s+total +used +free( +[a-z/]+)* +available\s*")
_ROW = re.compile(r"(?P<what>Mem|Swap):(?P<values>(?: +\d[\d.,]*[BKMGTPE]?i?)+)\s*")
_VALUE = re.compile(r"([\d.,]+)([BKMGTPE]?)")
_UNITS = {"B": 1, "": 1 << 10} | {unit: 1 << 10 * power for power, unit in enumerate("KMGTPE", start=1)}


def sniff(head: bytes, path: str) -> int:
    """The header of `free`, with its first row below."""
    lines = head.decode("utf-8", "replace").splitlines() if b"Mem:" in head and b"\0" not in head else []
    return 85 if any(_HEADER.fullmatch(line) and below.startswith("Mem:") for line, below in pairwise(lines)) else 0


def rows(artefact: Artefact) -> Iterator[Item]:
    """Counters in bytes: what there is and what is available, of memory and of swap; each table is a sample."""
    columns: dict[str, list[Any]] = {"counter": [], "value": [], "sample": []}
    sample = -1
    lines = Lines(artefact)
    for number, line in lines:
        found = _ROW.fullmatch(line)
        if found is None:
            continue
        sample += found["what"] == "Mem"
        if sample >= MAX_SAMPLES:
            yield Problem(f"more than {MAX_SAMPLES} samples; the rest was left out", f"line={number}")
            break
        for name, value in _named(found["what"], found["values"].split()):
            columns["counter"].append(name)
            columns["value"].append(value)
            columns["sample"].append((artefact.sample or 0) + max(sample, 0))
    if lines.problem is not None:
        yield lines.problem
    count = len(columns["value"])
    if count:
        yield Batch("counters", {**columns, "device": ["memory"] * count, "time_ns": [artefact.captured_ns] * count})


def _named(what: str, values: list[str]) -> Iterator[tuple[str, int]]:
    """The first column is the whole; the last one of memory is what new work can have, the third of swap what is free."""
    kind = "memory" if what == "Mem" else "swap"
    left = values[-1] if what == "Mem" else values[2] if len(values) > 2 else None
    for name, value in ((f"{kind}_bytes", values[0]), (f"{kind}_available_bytes", left)):
        if value is not None and (number := _bytes(value)) is not None:
            yield name, number


def _bytes(text: str) -> int | None:
    """Bytes of `23Gi`, `515M` or, without a unit, of KiB: `free -m` prints none either, and only shares are right then."""
    match = _VALUE.match(text)
    try:
        return round(float(match[1].replace(",", ".")) * _UNITS[match[2]]) if match else None
    except ValueError:
        return None


INGESTER = Ingester("memory_use", "memory_use", sniff, rows, most=85)
