"""`nvidia-smi --query-gpu` as CSV, `nvidia-smi dmon` and gpustat: readings of GPUs (docs/formats/gpu-table.md)."""

from __future__ import annotations

import re
from collections import defaultdict, deque
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from typing import Any

from forensics.bundle.artefact import Artefact
from forensics.ingest._shared.content import Lines
from forensics.ingest._shared.pci import pci_address
from forensics.ingest._shared.rows import add_row
from forensics.ingest.gpu_table.device_monitor import is_units, monitored
from forensics.ingest.gpu_table.gpustat import COLUMNS, gpustat, heading_host
from forensics.ingest.gpu_table.readings import count_known, name_of, readings, reasons
from forensics.ingest.gpu_table.unnamed import named_by_units
from forensics.ingest.interface import Batch, Identity, Ingester, Item, Problem

MAX_GPUS = 1024
MOST_LOOKS = 256
"""Newest looks at a GPU that are kept, of a table that is printed again and again."""
_LEAST_READINGS = 2
_CUT = re.compile(r"\s*(?:\d{1,4}|[\da-f]{4,8}:[\da-f:.]*) ?(?:,|$)|[\d .:-]{1,256}$|#[\w ]{0,256}$", re.IGNORECASE)
_COMMANDS = ("nvidia-smi", "gpustat")
_BUS, _INDEX = "pci.bus_id", "index"


def sniff(head: bytes, path: str) -> int:
    """A table and nothing else but the command that made it; a log with such a table is a log."""
    text = head.decode("utf-8", "replace") if b"\0" not in head and head[:1] != b"{" else ""
    lines = [line for line in text.splitlines() if line.strip() and not is_units(line)]
    columns = next(filter(None, (_columns(_cells(line)) for line in lines[:3])), [])
    columns = columns or next(filter(None, map(_implied, lines[:3])), [])
    if lines and not _is_row(lines[-1], columns) and _CUT.match(lines[-1]):
        del lines[-1]
    is_table = all(_is_row(line, columns) or _is_beside(line) or _columns(_cells(line)) for line in lines)
    return 85 if is_table and any(_is_row(line, columns) for line in lines) else 0


def _is_beside(line: str) -> bool:
    """Whether a line is the command that made the table, or its heading."""
    return any(command in line for command in _COMMANDS) or heading_host(line) is not None


def _implied(line: str) -> list[str]:
    """Columns of a row that is told by its form, or by the units of its cells."""
    return list(COLUMNS) if gpustat(line) else named_by_units(_cells(line))


def _is_row(line: str, columns: Sequence[str]) -> bool:
    return _gpu(_cells(line), columns) is not None


def rows(artefact: Artefact) -> Iterator[Item]:
    """One device a row; of a GPU that is listed again the first address and the newest readings count."""
    lines = Lines(artefact)
    columns: Sequence[str] = ()
    found: dict[int, str | None] = {}
    looks: dict[int, deque[tuple[int, Mapping[str, str]]]] = defaultdict(partial(deque, maxlen=MOST_LOOKS))
    for number, line in lines:
        cells = _cells(line)
        columns = _columns(cells) or columns or _implied(line)
        if (host := heading_host(line)) is not None:
            yield Identity(host=host)
        gpu = _gpu(cells, columns)
        if gpu is not None and gpu[0] not in found and len(found) == MAX_GPUS:
            yield Problem(f"more than {MAX_GPUS} GPUs; the rest was left out", f"line={number}")
            break
        if gpu is not None:
            found.setdefault(*gpu)
            looks[gpu[0]].append((number, dict(zip(columns, cells, strict=False))))
    if lines.problem is not None:
        yield lines.problem
    if not found:
        yield Problem("names no GPU", "line=1", fatal=True)
        return
    names = [f"GPU-{index}" for index in found]
    yield Batch("devices", {"device": names, "kind": ["gpu"] * len(found), "pci": list(found.values())})
    for index, rows_of_gpu in looks.items():
        yield from _readings(artefact, f"GPU-{index}", list(rows_of_gpu))


def _readings(artefact: Artefact, device: str, looks: Sequence[tuple[int, Mapping[str, str]]]) -> Iterator[Batch]:
    """Counters of each look, and the reasons for low clocks in the last one; local times tell no moment."""
    columns: dict[str, list[Any]] = defaultdict(list)
    for sample, (_, row) in enumerate(looks, artefact.sample or 0):
        for counter, value in readings(row).items():
            add_row(columns, {"device": device, "counter": counter, "sample": sample, "value": value})
    if columns:
        times = [artefact.captured_ns if len(looks) == 1 else None] * len(columns["value"])
        yield Batch("counters", {**columns, "time_ns": times})
    line, last = looks[-1]
    if said := list(reasons(last)):
        same = {"locator": line, "device": device, "kind": "throttle", "time_ns": artefact.captured_ns}
        yield Batch("device_events", {**{name: [cell] * len(said) for name, cell in same.items()}, "text": said})


def _cells(line: str) -> list[str]:
    return monitored(line[:1024]) or gpustat(line[:1024]) or [cell.strip() for cell in line[:1024].split(",")]


def _columns(cells: Sequence[str]) -> list[str]:
    if _INDEX not in cells:
        return []
    names = [name_of(cell) for cell in cells]
    is_table = _BUS in names or count_known(names) >= _LEAST_READINGS
    return names if is_table else []


def _gpu(cells: Sequence[str], columns: Sequence[str]) -> tuple[int, str | None] | None:
    """Number of a row, and its address where there is one; without names the first cells are these, in either order."""
    named = dict(zip(columns or (_INDEX, _BUS), cells, strict=False))
    index, bus = named.get(_INDEX, ""), named.get(_BUS, "")
    if not columns and not index.isdecimal():
        index, bus = bus, index
    address = pci_address(bus)
    is_row = len(cells) == len(columns) and _BUS not in columns if address is None else True
    if not is_row or not index.isdecimal() or len(index) > 4:
        return None
    return int(index), address


INGESTER = Ingester("gpu_table", "gpu_table", sniff, rows, most=85)
