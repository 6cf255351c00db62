"""Speed and link of interfaces as `ethtool ens1f0` prints them, whole or filtered.

Upstream: dump_link_settings in ethtool.c of ethtool 6.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from typing import Any

_LONGEST, _HEAD = 160, 60
_BEGIN = re.compile(r"\s{0,8}Settings for (?P<interface>[A-Za-z][\w.@-]{0,31}):\s*")
_SPEED = re.compile(r"\s{0,16}Speed: (?P<mbits>\d{1,7})Mb/s\s*")
_LINK = re.compile(r"\s{0,16}Link detected: (?P<link>yes|no)\b.{0,80}")
_OTHERS = re.compile(r"\s{0,16}(?:Duplex|Port|Auto-negotiation|Lanes): .{0,80}")


def is_settings(head: str) -> bool:
    """Whether settings of an interface begin it, or it is nothing but lines of them with a speed."""
    lines = [line[:_LONGEST] for line in head.splitlines() if line.strip()][:_HEAD]
    known = (_SPEED, _LINK, _OTHERS)
    if any(_BEGIN.fullmatch(line) for line in lines[:3]):
        return any(_SPEED.fullmatch(line) for line in lines)
    fitting = all(any(form.fullmatch(line) for form in known) for line in lines)
    return fitting and any(_SPEED.fullmatch(line) for line in lines)


def read_settings(lines: Iterable[tuple[int, str]]) -> Iterator[tuple[None, dict[str, Any]]]:
    """Interfaces as NICs with one port; a filter may have dropped the name of the only one."""
    devices: dict[str, Any] = {}
    port: dict[str, Any] | None = None
    for _, line in lines:
        if len(line) > _LONGEST:
            continue
        if begin := _BEGIN.fullmatch(line):
            port = devices.setdefault(begin["interface"], {"ports": {"1": {"link_layer": "Ethernet"}}})["ports"]["1"]
        elif speed := _SPEED.fullmatch(line):
            if port is None:
                port = devices.setdefault("interface", {"ports": {"1": {"link_layer": "Ethernet"}}})["ports"]["1"]
            port["rate"] = f"{int(speed['mbits']) / 1000:.3f} Gb/sec"
        elif port is not None and (link := _LINK.fullmatch(line)):
            port["state"] = "Active" if link["link"] == "yes" else "Down"
    yield None, {"devices": devices}
