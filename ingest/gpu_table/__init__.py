"""`nvidia-smi --query-gpu=index,pci.bus_id --format=csv`: which number the GPUs of a host have (docs/formats/gpu-table.md)."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from forensics.bundle.artefact import Artefact
from forensics.ingest._shared.content import Lines
from forensics.ingest.interface import Batch, Ingester, Item, Problem

MAX_GPUS = 1024
_ADDRESS = re.compile(r"([\da-f]{4,8}):([\da-f]{2}):([\da-f]{2})\.(\d)", re.IGNORECASE)
_CUT = re.compile(r"\s*(?:\d{1,4}|[\da-f]{4,8}:[\da-f:.]*) ?(?:,|$)", re.IGNORECASE)
_COMMAND = "nvidia-smi"
_BUS, _INDEX = "pci.bus_id", "index"


def sniff(head: bytes, path: str) -> int:
    """A table and nothing else but the command that made it; a log with such a table is a log."""
    lines = [line for line in head.decode("utf-8", "replace").splitlines() if line.strip()] if b"\0" not in head else []
    columns = next((named for line in lines[:3] if (named := _columns(line))), ())
    found = [_gpu(_cells(line), columns) is not None for line in lines]
    if found and not found[-1] and _CUT.match(lines[-1]):
        del lines[-1], found[-1]
    others = [line for line, is_row in zip(lines, found, strict=True) if not is_row and not _columns(line)]
    return 85 if any(found) and all(_COMMAND in line for line in others) else 0


def rows(artefact: Artefact) -> Iterator[Item]:
    """One device a row; of a GPU that is listed again the first row counts."""
    lines = Lines(artefact)
    columns: Sequence[str] = ()
    found: dict[int, str] = {}
    for number, line in lines:
        columns = _columns(line) or columns
        gpu = _gpu(_cells(line), columns)
        if gpu is not None and len(found) == MAX_GPUS:
            yield Problem(f"more than {MAX_GPUS} GPUs; the rest was left out", f"line={number}")
            break
        if gpu is not None:
            found.setdefault(*gpu)
    if lines.problem is not None:
        yield lines.problem
    if not found:
        yield Problem("names no GPU", "line=1", fatal=True)
        return
    names = [f"GPU-{index}" for index in found]
    yield Batch("devices", {"device": names, "kind": ["gpu"] * len(found), "pci": list(found.values())})


def _cells(line: str) -> list[str]:
    return [cell.strip() for cell in line[:1024].split(",")]


def _columns(line: str) -> list[str]:
    cells = _cells(line)
    return cells if _BUS in cells and _INDEX in cells else []


def _gpu(cells: Sequence[str], columns: Sequence[str]) -> tuple[int, str] | None:
    """Number and address of a row; without names the first cells are these, in either order."""
    named = dict(zip(columns or (_INDEX, _BUS), cells, strict=False))
    index, bus = named.get(_INDEX, ""), named.get(_BUS, "")
    if not columns and not index.isdecimal():
        index, bus = bus, index
    address = _ADDRESS.fullmatch(bus)
    if address is None or not index.isdecimal() or len(index) > 4:
        return None
    return int(index), f"{int(address[1], 16):04x}:{address[2]}:{address[3]}.{address[4]}".lower()


INGESTER = Ingester("gpu_table", "gpu_table", sniff, rows)
