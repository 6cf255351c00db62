"""What `coredumpctl info` says of a process with a number within its host that ended by a fault of its own.

Upstream: src/coredump/coredumpctl.c of systemd, 229 to 257.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

_FIELD = re.compile(r"\s{0,24}(?P<name>PID|Signal|Hostname|Command Line|Timestamp): (?P<value>.{1,2000})")
_NUMBER = re.compile(r"(\d{1,9}) \(")
_WHEN = re.compile(r"(\d{4}-\d\d-\d\d) (\d\d:\d\d:\d\d)")
_LOCAL = re.compile(r" --?local[_-]rank[ =](\d{1,5})(?= |$)")
# SIGILL, SIGBUS, SIGFPE, SIGSEGV: nobody sends them.
_FAULTS = frozenset({"4", "7", "8", "11"})
_LEAST_FIELDS = 3


def is_info(lines: Iterable[str]) -> bool:
    """Whether lines are such a record."""
    found = {said["name"] for line in lines if (said := _FIELD.fullmatch(line.rstrip()))}
    return {"PID", "Signal"} <= found and len(found) >= _LEAST_FIELDS


class CoreInfo:
    """Takes the lines of such records."""

    def __init__(self) -> None:
        self._said: dict[str, str] = {}

    def feed(self, line: str) -> tuple[str, str] | None:
        """Process with its number, and host, once a record has told all of them."""
        said = _FIELD.fullmatch(line.rstrip())
        if said is None:
            return None
        if said["name"] == "PID":
            self._said = {}
        self._said[said["name"]] = said["value"].strip()
        return self._process() if said["name"] == "Hostname" else None

    def _process(self) -> tuple[str, str] | None:
        pid, fault = (_NUMBER.match(self._said.get(name, "")) for name in ("PID", "Signal"))
        local = _LOCAL.search(self._said.get("Command Line", ""))
        if pid is None or local is None or fault is None or fault[1] not in _FAULTS:
            return None
        when = _WHEN.search(self._said.get("Timestamp", ""))
        since = f" since={when[1]}T{when[2]}" if when else ""
        return f"pid={pid[1]} local_rank={local[1]} signal={fault[1]}{since}", self._said["Hostname"]
