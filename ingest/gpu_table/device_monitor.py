"""Lines of `nvidia-smi dmon`: names of columns, their units below, and a row for each GPU and look, set off by spaces.

Upstream: `nvidia-smi dmon -h`; `-o D` and `-o T` put a date and a time in front, `-s m` adds the memory in use.
"""

from __future__ import annotations

import re

_NAMES = {
    "gpu": "index",
    "pwr": "power.draw",
    "gtemp": "temperature.gpu",
    "mtemp": "temperature.memory",
    "sm": "utilization.gpu",
    "mem": "utilization.memory",
    "fb": "memory.used",
    "mclk": "clocks.current.memory",
    "pclk": "clocks.current.sm",
}
_HEADER = re.compile(r"# {0,8}(?:Date {1,16})?(?:Time {1,16})?gpu {1,16}\w{1,12} .{0,400}")
_UNITS = re.compile(r"# {0,8}(?:YYYYMMDD {1,16})?(?:HH:MM:SS {1,16})?Idx .{0,400}")
_ROW = re.compile(r" {0,8}(?:\d{8} {1,16})?(?:\d\d:\d\d:\d\d {1,16})?\d{1,4}(?: {1,16}(?:\d{1,7}(?:\.\d{1,3})?|-)){2,40} {0,8}")


def is_units(line: str) -> bool:
    """Whether a line names the units of the columns."""
    return _UNITS.fullmatch(line) is not None


def is_heading(line: str) -> bool:
    """Whether a line names the columns or their units: both look like commands of root."""
    return line.startswith("# ") and (_HEADER.fullmatch(line) is not None or is_units(line))


def monitored(line: str) -> list[str]:
    """Cells of a header, by the names that `--query-gpu` gives them, or of a row; none of another line."""
    if _HEADER.fullmatch(line):
        return [_NAMES.get(name, name) for name in line.removeprefix("#").split()]
    return line.split() if _ROW.fullmatch(line) else []
