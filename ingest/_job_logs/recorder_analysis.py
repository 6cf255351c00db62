"""What torch's own analyzer of Flight Recorder dumps printed into a log (`torchfrtrace`): missing ranks of a collective.

Upstream: tools/flight_recorder/components/types.py (`EntryState.log`) of pytorch/pytorch. Its ranks are those of the job.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

from forensics.ingest._job_logs.positions import LogPosition
from forensics.ingest._job_logs.reports import ranks_of, report

_SAID = re.compile(
    r"Not all ranks joining collective,? ?(?:sequence number:? ?(?P<number>\d{1,18}))?"
    r"|group info: ?(?P<group>[^\s,]{1,128})"
    r"|collective: ?(?P<collective>[\w:]{1,128})"
    r"|missing ranks: ?[\[{(](?P<missing>[\d, ]{1,4000})"
    r"|expected ranks: ?[\[{(](?P<expected>[\d, ]{1,4000})"
    r"|world size: ?(?P<size>\d{1,7})"
)
WORDS = ("Not all ranks joining", "group info:", "collective:", "missing ranks:", "expected ranks:", "world size:")
_MOST = 64


@dataclass(slots=True)
class _Entry:
    line: int
    number: str
    group: str = ""
    collective: str = ""
    missing: frozenset[int] = frozenset()
    expected: frozenset[int] = frozenset()
    size: int | None = None


class RecorderAnalysis:
    """Collects the collectives that not all ranks joined."""

    def __init__(self) -> None:
        self._entries: list[_Entry] = []

    def feed(self, number: int, line: str) -> None:
        """Take one line, or a whole entry that lost its line ends."""
        if not (self._entries or "Not all ranks joining" in line) or not any(word in line for word in WORDS):
            return
        for said in _SAID.finditer(line):
            if said[0].startswith("Not all"):
                if len(self._entries) >= _MOST:
                    return
                self._entries.append(_Entry(number, said["number"] or ""))
            elif self._entries:
                self._fill(self._entries[-1], said)

    def _fill(self, entry: _Entry, said: re.Match[str]) -> None:
        entry.group = entry.group or said["group"] or ""
        entry.collective = entry.collective or said["collective"] or ""
        entry.missing = entry.missing or ranks_of(said["missing"] or "")
        entry.expected = entry.expected or ranks_of(said["expected"] or "")
        entry.size = entry.size or (int(said["size"]) if said["size"] else None)

    @property
    def positions(self) -> Iterator[LogPosition]:
        """Rows of each entry that says who is missing; the others of the group came where it says who they are."""
        for entry in self._entries:
            if entry.missing:
                name = f"{entry.group or 'group'}#{entry.number}"
                kind = entry.collective.rpartition(":")[2].lower().lstrip("_")
                yield from report("analysis", entry.line, name, entry.expected - entry.missing, entry.missing, entry.size, kind)
