"""How busy the cores of a host are, and how fast they run: load, clocks and pressure stall information, from /proc.

Formats: `/proc/loadavg` (proc_loadavg(5)), `/proc/pressure` (Documentation/accounting/psi.rst, Linux 4.20), `cpu MHz` of
`/proc/cpuinfo` (x86 only). What a kernel does not have is null.
"""

from __future__ import annotations

import re
from pathlib import Path
from statistics import median
from typing import Any

from forensics.collect.processes import ProcFs

_MHZ = re.compile(r"^cpu MHz\s*:\s*([\d.]+)", re.MULTILINE)
_CORE = re.compile(r"^processor\s*:", re.MULTILINE)
_LOAD = re.compile(r"([\d.]+) ([\d.]+) ([\d.]+) (\d+)/(\d+)")
_PRESSURE = re.compile(r"^(some|full) avg10=([\d.]+) avg60=([\d.]+) avg300=([\d.]+) total=(\d+)", re.MULTILINE)


def host_load(procfs: ProcFs) -> dict[str, Any]:
    """The value of `cpu` in node.json: `cores`, `load` over 1, 5 and 15 minutes, `running` tasks, `mhz`, `pressure`.

    `mhz` has the lowest, middle and highest clock; `pressure` for cpu, memory and io the share of the time (per cent, over 10
    and 60 s) in which some task, and all of them, waited, and microseconds in all.
    """
    about = _text(procfs.root / "cpuinfo")
    clocks = [float(found) for found in _MHZ.findall(about)]
    load = _LOAD.match(_text(procfs.root / "loadavg"))
    pressure = {name: _stalls(_text(procfs.root / "pressure" / name)) for name in ("cpu", "memory", "io")}
    return {
        "cores": len(_CORE.findall(about)) or None,
        "load": [float(load[number]) for number in (1, 2, 3)] if load else None,
        "running": int(load[4]) if load else None,
        "mhz": {"min": min(clocks), "median": median(clocks), "max": max(clocks)} if clocks else None,
        "pressure": pressure if any(pressure.values()) else None,
    }


def _stalls(text: str) -> dict[str, dict[str, float]] | None:
    found = {
        who: {"avg10": float(ten), "avg60": float(sixty), "total_us": int(total)}
        for who, ten, sixty, _, total in _PRESSURE.findall(text)
    }
    return found or None


def _text(path: Path) -> str:
    try:
        return path.read_text("utf-8", "replace")
    except OSError:
        return ""
