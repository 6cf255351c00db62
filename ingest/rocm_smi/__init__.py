"""What `rocm-smi` prints without options, and `amd-smi`: the GPUs of a host at one moment (docs/formats/rocm-smi.md)."""

from __future__ import annotations

import re
from collections.abc import Iterator

from forensics.bundle.artefact import Artefact
from forensics.ingest._shared.content import Lines
from forensics.ingest.interface import Batch, Ingester, Item, Problem
from forensics.ingest.rocm_smi.amd_smi import is_amd_smi, read_amd_smi

MAX_GPUS = 1024
_MAX_LINE = 1024
_HEAD = 65_536
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
    """The title of the tool and the heading of its table, or a form of amd-smi."""
    text = head.decode("utf-8", "replace") if b"\0" not in head and head[:1] != b"{" else ""
    return 85 if (_TITLE.search(text) and _HEADER.search(text)) or is_amd_smi(text) else 0


def rows(artefact: Artefact) -> Iterator[Item]:
    """One device a row, with its readings; what is not available is left out with the whole row."""
    if is_amd_smi(artefact.begin(_HEAD).decode("utf-8", "replace")):
        yield from _amd_smi(artefact)
        return
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


def _amd_smi(artefact: Artefact) -> Iterator[Item]:
    lines = Lines(artefact)
    found = read_amd_smi(lines)
    if lines.problem is not None:
        yield lines.problem
    if found:
        yield Batch("devices", {"device": [f"GPU-{gpu}" for gpu in found], "kind": ["gpu"] * len(found)})
    for gpu, values in found.items():
        yield _counters(artefact, f"GPU-{gpu}", [*values], [*values.values()])


def _readings(artefact: Artefact, device: str, row: re.Match[str]) -> Batch:
    return _counters(artefact, device, [*_SCALES], [round(float(row[name]) * scale) for name, scale in _SCALES.values()])


def _counters(artefact: Artefact, device: str, names: list[str], values: list[int]) -> Batch:
    same = {"device": device, "sample": artefact.sample or 0, "time_ns": artefact.captured_ns}
    return Batch(
        "counters", {**{name: [value] * len(values) for name, value in same.items()}, "counter": names, "value": values}
    )


INGESTER = Ingester("rocm_smi", "gpu_table", sniff, rows, most=85)
