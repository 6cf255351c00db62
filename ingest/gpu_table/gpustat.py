"""Lines of gpustat: `[6] NVIDIA H100 80GB HBM3 | 36°C,   0 %,  88 / 700 W | 76112 / 81559 MB | user:python/4106(76100M)`.

Upstream: `GPUStat.print_to` of wookayin/gpustat: power and processes with `-cpP`, fans with `-F`, clocks with `--show-codec`.
"""

from __future__ import annotations

import re

COLUMNS = (
    *("index", "temperature.gpu", "utilization.gpu", "power.draw", "power.limit", "memory.used", "memory.total"),
)  # fmt: skip
"""As `--query-gpu` calls them."""
_ROW = re.compile(
    r"\[(?P<index>\d{1,3})\] [^|]{1,80}\| {0,4}(?P<heat>\d{1,3})\D{1,3}C, {1,4}(?:\d{1,3} %, {1,4})??(?P<load>\d{1,3}) %"
    r"(?:, {1,4}(?P<power>\d{1,4}) / {1,4}(?P<limit>\d{1,4}) W)? \| {0,6}(?P<used>\d{1,7}) / {0,6}(?P<total>\d{1,7}) MB"
    r"(?: \|.{0,800})?\s*"
)
_HEADING = re.compile(r"(?P<host>[A-Za-z][\w.-]{0,252}) {2,60}\w{3} \w{3} {1,2}\d{1,2} \d\d:\d\d:\d\d \d{4}(?: .{0,40})?\s*")


def gpustat(line: str) -> list[str]:
    """Cells of a row; none of another line."""
    found = _ROW.fullmatch(line)
    if found is None:
        return []
    cells = (found[name] or "" for name in ("index", "heat", "load", "power", "limit", "used", "total"))
    return list(cells)


def heading_host(line: str) -> str | None:
    """The host in the line above the rows."""
    found = _HEADING.fullmatch(line)
    return found["host"] if found else None
