"""Files below /sys/class/infiniband as `grep "" FILES` prints them: the path, a colon, and what the file holds.

One text may have several reads: a file that comes again begins the next one. A line of `date` above shows its time.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from typing import Any

from forensics.ingest._shared.dump_times import time_in
from forensics.ingest.ib_counters.pcie import FILES

_FILE = re.compile(
    r"\S{0,200}\binfiniband/(?P<device>[\w.-]{1,64})/(?:device|ports/(?P<port>\d{1,3})(?:/(?P<folder>(?:hw_)?counters))?)"
    r"/(?P<name>\w{1,64}):(?P<value>.{0,200})"
)
_LONGEST = 512
_FACTS = ("state", "phys_state", "rate", "link_layer")
_NUMBER = re.compile(r"\d{1,19}\s*")


def is_sysfs(head: str) -> bool:
    """Whether most lines, the last of which may be cut, are such files."""
    lines = [line for line in head.splitlines() if line.strip()]
    found = sum(len(line) <= _LONGEST and _FILE.fullmatch(line) is not None for line in lines)
    return found > 1 and 2 * found > len(lines)


def read_files(lines: Iterable[tuple[int, str]]) -> Iterator[dict[str, Any]]:
    """Each read in the form of the collector's document: `devices` with their ports, and `time_ns` where a date is above."""
    devices: dict[str, dict[str, Any]] = {}
    seen = set[tuple[str | None, ...]]()
    time_ns: int | None = None
    for _, line in lines:
        match = _FILE.fullmatch(line) if len(line) <= _LONGEST else None
        if match is None:
            later = time_in(line[:_LONGEST])
            if later is not None and devices:
                yield {"devices": devices, "time_ns": time_ns}
                devices, seen = {}, set()
            time_ns = later or time_ns
            continue
        file = match["device"], match["port"], match["folder"], match["name"]
        if file in seen:
            yield {"devices": devices, "time_ns": time_ns}
            devices, seen, time_ns = {}, set(), None
        seen.add(file)
        _keep(devices.setdefault(match["device"], {"ports": {}, "pcie": {}}), match)
    if devices:
        yield {"devices": devices, "time_ns": time_ns}


def _keep(device: dict[str, Any], match: re.Match[str]) -> None:
    name, value = match["name"], match["value"].strip()
    if match["port"] is None:
        device["pcie"] |= {name: value} if name in FILES else {}
        return
    port = device["ports"].setdefault(match["port"], {})
    if match["folder"] is None:
        port |= {name: value} if name in _FACTS else {}
    elif _NUMBER.fullmatch(value):
        port.setdefault(match["folder"], {})[name] = int(value)
