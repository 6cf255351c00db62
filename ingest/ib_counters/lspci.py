"""PCIe links of NICs and GPUs as `lspci -vv` prints them, whole or filtered: what each link can do, and what it does.

Upstream: ls-caps.c of pciutils 3.5 to 3.13: `LnkCap: Port #0, Speed 32GT/s, Width x16` and `LnkSta: Speed 16GT/s (downgraded),
Width x8 (downgraded)`.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from typing import Any

_LONGEST, _MOST = 400, 4096
_DEVICE = re.compile(
    r"(?P<pci>(?:[\da-f]{4}:)?[\da-f]{2}:[\da-f]{2}\.[0-7]) (?P<kind>[A-Z3][\w /-]{2,60}?)(?: \[\w{4}\])?: \S.*"
)
_LINK = re.compile(
    r"\s{0,16}Lnk(?P<which>Cap|Sta):\s.{0,40}?Speed (?P<speed>\d{1,2}(?:\.\d)?) ?GT/s.{0,24}?, "
    r"Width x(?P<lanes>\d{1,2})\b.{0,300}"
)
_NICS = frozenset({"Infiniband controller", "Ethernet controller", "Network controller"})
_GPUS = frozenset({"3D controller", "VGA compatible controller", "Processing accelerators", "Display controller"})
# The board of a host has a graphics controller as well.
_OF_GPUS = ("NVIDIA", "AMD/ATI")


def is_lspci(head: str) -> bool:
    """Whether devices with their links stand among the first lines."""
    lines = [line[:_LONGEST] for line in head.splitlines()]
    return "Lnk" in head and any(map(_DEVICE.fullmatch, lines)) and any(map(_LINK.fullmatch, lines))


def read_lspci(lines: Iterable[tuple[int, str]]) -> Iterator[tuple[None, dict[str, Any]]]:
    """NICs and GPUs by their addresses, with their links in the words of sysfs."""
    devices: dict[str, Any] = {}
    facts: dict[str, str] | None = None
    for _, whole in lines:
        line = whole[:_LONGEST].rstrip()
        if device := _DEVICE.fullmatch(line):
            facts = None
            is_gpu = device["kind"] in _GPUS and any(maker in line for maker in _OF_GPUS)
            if (is_gpu or device["kind"] in _NICS) and len(devices) < _MOST:
                address = device["pci"] if device["pci"].count(":") == 2 else f"0000:{device['pci']}"
                name, kind = (f"GPU-{address}", "gpu") if is_gpu else (address, "nic")
                facts = devices.setdefault(name, {"kind": kind, "pci": address, "pcie": {}, "ports": {}})["pcie"]
        elif facts is not None and (link := _LINK.fullmatch(line)):
            when = "max" if link["which"] == "Cap" else "current"
            facts.setdefault(f"{when}_link_speed", f"{link['speed']} GT/s")
            facts.setdefault(f"{when}_link_width", link["lanes"])
    yield None, {"devices": devices}
