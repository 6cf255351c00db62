"""What `amd-smi` prints for people: `amd-smi metric` with its errors, and the table of `amd-smi monitor`.

Upstream: amdsmi_cli of ROCm/amdsmi, 6.0 to 7.0. Columns of the table depend on its options, each value has its unit behind it.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable, Mapping

MAX_GPUS, MAX_LINE = 1024, 1024
_GPU = re.compile(r"GPU: (\d{1,4})\s*")
_UNCORRECTED = re.compile(r"\s+TOTAL_UNCORRECTABLE_COUNT: (\d{1,12})\s*")
_METRIC = re.compile(r"(?m)^GPU: \d{1,4}\s*$\n(?:.*\n){0,200}?\s+TOTAL_UNCORRECTABLE_COUNT: ")
_TABLE = re.compile(r"GPU {1,8}(?:XCP {1,8})?(?:[A-Z][A-Z_0-9%]{0,15} {1,12}){2,20}[A-Z][A-Z_0-9%]{0,15}\s*")
_CELL = re.compile(
    r"N/A|\d{1,8}(?:\.\d{1,4})?/ ?\d{1,8}(?:\.\d{1,4})?(?: [A-Z]B)?"
    r"|\d{1,8}(?:\.\d{1,4})?(?: (?:W|\u00b0C|[MG]Hz|%|[MG]?B(?:/s)?))?"
)
_VALUE = re.compile(r"\d{1,8}(?:\.\d{1,4})?")
_SCALES = {
    "POWER": ("power_mw", 1_000),
    "PWR_CAP": ("power_limit_mw", 1_000),
    "GPU_T": ("temperature_c", 1),
    "GFX_CLK": ("clock_sm_mhz", 1),
    "GFX%": ("utilization_percent", 1),
}


def is_amd_smi(text: str) -> bool:
    """Whether it is one of the two."""
    return _METRIC.search(text) is not None or any(map(_TABLE.fullmatch, text.splitlines()[:50]))


def read_amd_smi(lines: Iterable[tuple[int, str]]) -> Mapping[int, Mapping[str, int]]:
    """Counters of each GPU by its number; what is not available is left out."""
    found: dict[int, dict[str, int]] = defaultdict(dict)
    gpu: int | None = None
    names: list[str] = []
    for _, whole in lines:
        line = whole[:MAX_LINE].rstrip()
        if _TABLE.fullmatch(line):
            names = line.split()
        elif names and line.strip():
            cells = [cell[0] for cell in _CELL.finditer(line)]
            names = names if len(cells) == len(names) and cells[0].isdecimal() else []
            found[int(cells[0])].update(_of_row(names, cells)) if names and len(found) < MAX_GPUS else None
        elif said := _GPU.fullmatch(line):
            gpu = int(said[1])
        elif gpu is not None and len(found) < MAX_GPUS and (errors := _UNCORRECTED.fullmatch(line)):
            found[gpu]["ecc_volatile_uncorrected"] = int(errors[1])
    return {gpu: values for gpu, values in sorted(found.items()) if values}


def _of_row(names: list[str], cells: list[str]) -> Mapping[str, int]:
    values = {name: _VALUE.match(cell) for name, cell in zip(names, cells, strict=True) if name in _SCALES}
    return {_SCALES[name][0]: round(float(value[0]) * _SCALES[name][1]) for name, value in values.items() if value}
