"""The table that `rocm-smi` prints without options: state of the GPUs of a host at one moment (docs/formats/rocm-smi.md)."""

from __future__ import annotations

import re
from collections.abc import Iterator

from forensics.bundle.artefact import Artefact
from forensics.ingest._shared.content import Lines
from forensics.ingest.interface import Batch, Ingester, Item, Problem

MAX_GPUS = 1024
_MAX_LINE = 1024
_TITLE = re.compile(r"^=+ ROCm System Management Interface =+\s*$", re.MULTILINE)
_HEADER = re.compile(r"^(?:GPU|Device) .*\bVRAM% +GPU%", re.MULTILINE)
_ROW = re.compile(
    r"(?P<gpu>\d{1,4}) .*?(?P<temperature>\d{1,3}(?:\.\d)?) ?°?[cC] +(?P<power>\d{1,4}(?:\.\d)?)W .*?"
    r"(?P<clock>\d{1,5})[Mm][Hh]z +(?P<memory_clock>\d{1,5})[Mm][Hh]z .*?(?P<limit>\d{1,4}(?:\.\d)?)W +"
    r"(?P<held>\d{1,3})% +(?P<use>\d{1,3})%\s*"
)
_SCALES = {
    "temperature_c": ("temperature", 1),
    "power_mw": ("power", 1_000),
    "power_limit_mw": ("limit", 1_000),
    "clock_sm_mhz": ("clock", 1),
    "clock_memory_mhz": ("memory_clock", 1),
    "memory_used_percent": ("held", 1),
    "utilization_percent": ("use", 1),
}


def sniff(head: bytes, path: str) -> int:
    """The title of the tool and the heading of its table."""
    text = head.decode("utf-8", "replace") if b"\0" not in head and head[:1] != b"{" else ""
    return 85 if _TITLE.search(text) and _HEADER.search(text) else 0


def rows(artefact: Artefact) -> Iterator[Item]:
    """One device a row, with its readings; what is not available is left out with the whole row."""
    lines = Lines(artefact)
    found: dict[str, re.Match[str]] = {}
    for _, line in lines:
        row = _ROW.fullmatch(line[:_MAX_LINE])
        if row and len(found) < MAX_GPUS:
            found.setdefault(f"GPU-{int(row['gpu'])}", row)
    if lines.problem is not None:
        yield lines.problem
    if not found:
        yield Problem("names no GPU", "line=1", fatal=True)
        return
    yield Batch("devices", {"device": list(found), "kind": ["gpu"] * len(found)})
    for device, row in found.items():
        yield _readings(artefact, device, row)


def _readings(artefact: Artefact, device: str, row: re.Match[str]) -> Batch:
    values = [round(float(row[name]) * scale) for name, scale in _SCALES.values()]
    count = len(values)
    same = {"device": device, "sample": artefact.sample or 0, "time_ns": artefact.captured_ns}
    return Batch(
        "counters", {**{name: [value] * count for name, value in same.items()}, "counter": list(_SCALES), "value": values}
    )


INGESTER = Ingester("rocm_smi", "gpu_table", sniff, rows)
