"""What `nvidia-smi --query-gpu` prints of a GPU beside its number: readings, and why its clocks are held down.

Upstream: `nvidia-smi --help-query-gpu`.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence

from forensics.ingest._shared.clock_reasons import by_mask

_NUMBER = re.compile(r"(-?\d{1,12}(?:\.\d{1,6})?)(?: ?(?:%|C|W|MHz|MiB))?$")
_UNIT = re.compile(r" ?\[[^\]]{1,16}\]$")
# Counter, factor to its unit; the first name that a table has counts.
_COUNTERS: Mapping[str, tuple[str, float]] = {
    "utilization.gpu": ("utilization_percent", 1),
    "utilization.memory": ("memory_utilization_percent", 1),
    "memory.total": ("memory_bytes", 1 << 20),
    "memory.used": ("memory_used_bytes", 1 << 20),
    "temperature.gpu": ("temperature_c", 1),
    "temperature.memory": ("memory_temperature_c", 1),
    "power.draw": ("power_mw", 1000),
    "power.draw.instant": ("power_mw", 1000),
    "enforced.power.limit": ("power_limit_mw", 1000),
    "power.limit": ("power_limit_mw", 1000),
    "clocks.sm": ("clock_sm_mhz", 1),
    "clocks.current.sm": ("clock_sm_mhz", 1),
    "clocks.max.sm": ("clock_sm_max_mhz", 1),
    "clocks.mem": ("clock_memory_mhz", 1),
    "clocks.current.memory": ("clock_memory_mhz", 1),
    "clocks.max.memory": ("clock_memory_max_mhz", 1),
    "pcie.link.gen.current": ("pcie_gen", 1),
    "pcie.link.gen.gpucurrent": ("pcie_gen", 1),
    "pcie.link.gen.max": ("pcie_gen_max", 1),
    "pcie.link.width.current": ("pcie_width", 1),
    "pcie.link.width.max": ("pcie_width_max", 1),
}
_REASONS = re.compile(r"clocks_(?:throttle|event)_reasons\.(\w{1,40})$")
_ACTIVE = "active"
_MASK = re.compile(r"0x([0-9a-fA-F]{1,16})$")


def name_of(cell: str) -> str:
    """The name of a column without its unit: `power.draw [W]`."""
    return _UNIT.sub("", cell)


def count_known(columns: Sequence[str]) -> int:
    """How many of the columns are readings or reasons."""
    return sum(name in _COUNTERS or _REASONS.match(name) is not None for name in columns)


def readings(row: Mapping[str, str]) -> dict[str, int]:
    """Counters of a row, in their units: mW, bytes, MHz; what is not available is left out."""
    found: dict[str, int] = {}
    for name, cell in row.items():
        counter, number = _COUNTERS.get(name), _NUMBER.match(cell)
        if counter and number:
            found.setdefault(counter[0], round(float(number[1]) * counter[1]))
    return found


def reasons(row: Mapping[str, str]) -> Iterator[str]:
    """Why the clocks are held down, by name."""
    for name, cell in row.items():
        said = _REASONS.match(name)
        if said and said[1] != _ACTIVE and cell == "Active":
            yield said[1]
        elif said and said[1] == _ACTIVE and (mask := _MASK.match(cell)):
            yield from by_mask(int(mask[1], 16))
