"""Rates that a test between hosts reached, pair by pair: the host that is slow with all others, which are alike.

`cn21 <-> cn24: 171.2 GB/s` is what scripts around nccl-tests and ib_write_bw print, each in its own way: two names of hosts,
a rate and its unit in a line.
"""

from __future__ import annotations

import re
from statistics import median

from forensics.ingest._job_logs.event_owners import LAUNCHER
from forensics.ingest._job_logs.event_rows import Events
from forensics.ingest._job_logs.line_origin import Origin

KIND = "pairs_slow"
_HOST = rb"(?=[\w.-]{0,60}\d)[A-Za-z][\w.-]{1,60}+"
_ROW = re.compile(
    rb"^[ \t|*-]{0,8}+(?P<one>" + _HOST + rb")[ \t]{0,8}(?:<-{1,4}>|<={1,4}>|-{1,4}>|,|\||/|and|vs\.?|with|to|[ \t])[ \t]{0,8}"
    rb"(?P<other>" + _HOST + rb")[ \t]{0,8}[:|,=]?[ \t]{0,24}(?:busbw|bw|bandwidth|avg)?[ \t:=]{0,4}"
    rb"(?P<rate>\d{1,6}(?:\.\d{1,4})?) ?(?P<unit>[GM]B/s|[GM]bps|[GM]b/s|[GM]bit/s|[GM]Bps)",
    re.MULTILINE,
)
_MARKS = (b"B/s", b"b/s", b"bps", b"Bps", b"bit/s")
_MOST, _LEAST_HOSTS = 4_096, 4
_SLOW, _ALIKE = 0.75, 0.85
_ORIGIN = Origin(None, LAUNCHER, "", 0)


class PairTables:
    """Looks at blocks of whole lines."""

    def __init__(self) -> None:
        self._rates: dict[frozenset[str], float] = {}
        self._lines: dict[frozenset[str], tuple[int, str]] = {}
        self._units: set[str] = set()

    def survey(self, number: int, block: bytes) -> None:
        """Take whole lines, the first of which has this number."""
        if len(self._rates) >= _MOST or not any(mark in block for mark in _MARKS):
            return
        for row in _ROW.finditer(block):
            pair = frozenset((row["one"].decode(), row["other"].decode()))
            if len(pair) == 2 and len(self._rates) < _MOST:
                self._rates[pair] = min(float(row["rate"]), self._rates.get(pair, float("inf")))
                self._lines[pair] = number + block.count(b"\n", 0, row.start("one")), row[0].decode("utf-8", "replace")
                self._units.add(row["unit"].decode())

    def add_to(self, events: Events) -> None:
        """The one host all of whose pairs are slow, where each other pair is about as fast as the others."""
        hosts = sorted({host for pair in self._rates for host in pair})
        if len(self._units) != 1 or len(hosts) < _LEAST_HOSTS:
            return
        for host in hosts:
            own = [rate for pair, rate in self._rates.items() if host in pair]
            others = [rate for pair, rate in self._rates.items() if host not in pair]
            if _is_slow(own, others, len(hosts)):
                line, text = min(self._lines[pair] for pair in self._rates if host in pair)
                subject = f"{host} slow={max(own):g} usual={median(others):g} unit={min(self._units)}"
                events.add(line, KIND, subject, text.strip(), None, _ORIGIN)


def _is_slow(own: list[float], others: list[float], hosts: int) -> bool:
    """With at least three others, or all of them, each pair below what the slowest other pair reaches."""
    is_tested = len(own) >= min(3, hosts - 1) and len(others) >= 3
    return is_tested and max(own) <= _SLOW * min(others) and min(others) >= _ALIKE * median(others)
