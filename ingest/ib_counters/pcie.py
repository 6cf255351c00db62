"""The PCIe link of a NIC in the words of sysfs, as the readings that GPUs have: lanes, and the generation of their speed."""

from __future__ import annotations

import re

from forensics.ingest._shared.values import text

FILES = ("current_link_speed", "current_link_width", "max_link_speed", "max_link_width")
"""Names of the files of a device that tell of its link."""
_SPEED = re.compile(r"(\d{1,2}(?:\.\d)?) GT/s\b")
_GENERATIONS = {2.5: 1, 5.0: 2, 8.0: 3, 16.0: 4, 32.0: 5, 64.0: 6}
_MOST_LANES = 32


def link_values(facts: object) -> dict[str, int]:
    """Readings of `current_link_speed` and its like; what sysfs does not know (a virtual function: 0 lanes) is left out."""
    said = facts if isinstance(facts, dict) else {}
    found = {
        "pcie_gen": _generation(said.get("current_link_speed")),
        "pcie_gen_max": _generation(said.get("max_link_speed")),
        "pcie_width": _lanes(said.get("current_link_width")),
        "pcie_width_max": _lanes(said.get("max_link_width")),
    }
    return {name: value for name, value in found.items() if value}


def _generation(words: object) -> int | None:
    match = _SPEED.match(text(words) or "")
    return _GENERATIONS.get(float(match[1])) if match else None


def _lanes(words: object) -> int | None:
    lanes = text(words) or ""
    return int(lanes) if lanes.isdecimal() and len(lanes) < 4 and int(lanes) <= _MOST_LANES else None
