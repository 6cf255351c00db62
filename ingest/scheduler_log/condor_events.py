"""Processes of jobs that HTCondor lost, by the log of events that it keeps for whoever submitted them.

One event is a line, `015 (88.000.002) 2026-04-02 22:41:19 Node 2 terminated.`, what belongs to it indented below, and `...`.
Upstream: src/condor_utils/condor_event.cpp of htcondor/htcondor, versions 8 to 24; dates were without a year before 8.8.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

EVENT = re.compile(
    r"(?P<code>0\d\d) \((?P<cluster>\d{1,9})\.(?P<process>\d{1,6})\.(?P<node>\d{1,6})\) "
    r"(?:\d{4}-\d\d-\d\d|\d\d/\d\d)[ T]\d\d:\d\d:\d\d\S{0,8} (?P<what>.*)"
)
_HOST = re.compile(r"executing on host: .{0,400}?\balias=([\w.-]{1,253})|executing on host: <([\d.]{7,15}):\d")
_HOW = re.compile(
    r"\s+(?:\(\d\) )?"
    r"(?:Abnormal termination \(signal (?P<signal>\d{1,2})\)|Normal termination \(return value \d{1,3}\))"
)
_RUNS, _ENDED, _SHADOW, _REMOVED, _HELD = ("001", "014", "023"), ("005", "015"), "007", "009", "012"
_LOST = {"022": "its connection was lost", "024": "its connection was lost"}
_ASKED = 15
_MOST = 100_000
_Key = tuple[str, str, str]


@dataclass(frozen=True, slots=True)
class _End:
    line: int
    text: str
    how: str


class CondorEvents:
    """Takes the lines of a log."""

    def __init__(self) -> None:
        self._hosts: dict[_Key, str] = {}
        self._ends: dict[_Key, _End] = {}
        self._removed: set[str] = set()
        self._open: tuple[str, _Key, int, str] | None = None

    def feed(self, number: int, line: str) -> None:
        """Take one line; what ran again later did not end before."""
        if event := EVENT.match(line):
            key = (event["cluster"], event["process"], event["node"])
            self._open = (event["code"], key, number, line) if len(self._hosts) < _MOST else None
            self._begin(event, key, number)
        elif self._open is not None and line[:1].isspace():
            self._detail(line, *self._open)

    def _begin(self, event: re.Match[str], key: _Key, number: int) -> None:
        if event["code"] in _RUNS:
            self._ends.pop(key, None)
            if host := _HOST.search(event["what"]):
                self._hosts[key] = host[1] or host[2]
        elif event["code"] in _LOST:
            self._ends[key] = _End(number, event[0], _LOST[event["code"]])
        elif event["code"] == _REMOVED:
            self._removed.add(event["cluster"])

    def _detail(self, line: str, code: str, key: _Key, number: int, text: str) -> None:
        """The first line below an event says how or why."""
        self._open = None
        if code in (_HELD, _SHADOW) and line.strip():
            self._ends[key] = _End(number, text, f"{'held' if code == _HELD else 'lost'}: {line.strip()[:200]}")
        elif code in _ENDED and (how := _HOW.match(line)):
            self._ends.pop(key, None)
            if how["signal"] and int(how["signal"]) != _ASKED:
                self._ends[key] = _End(number, text, f"signal {how['signal']}")

    def lost(self) -> Iterator[tuple[int, str, str, str]]:
        """Line, text, kind and subject of each process that did not end by itself, of clusters that nobody removed."""
        for (cluster, process, node), end in sorted(self._ends.items(), key=lambda each: each[1].line):
            if cluster not in self._removed:
                host = self._hosts.get((cluster, process, node))
                who = f"process {cluster}.{int(process)}" + (f", node {int(node)}" if int(node) else "")
                where = f" on {host}" if host else ""
                yield end.line, end.text, "process_lost", f"{who}, of HTCondor{where} ({end.how})"
