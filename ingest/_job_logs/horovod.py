"""Horovod's stall inspector: which ranks did not submit a tensor that others wait in.

Upstream: horovod/common/stall_inspector.cc (`Missing ranks:` and one line a rank; before 0.19 `Stalled ranks:`), and
`CheckForStalledTensors` of horovod/common/operations.cc before 0.16: `tensor [missing ranks: 1]`, at first
`[ready ranks: 0, 2]`.
Ranks are those of the job. The coordinator repeats the whole list once a minute as long as it is stalled.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field

from forensics.ingest._job_logs.positions import LogPosition
from forensics.ingest._job_logs.reports import ranks_of, report
from forensics.ingest._job_logs.timed_dumps import Resumed

_BEGIN = "One or more tensors were submitted to be"
_LISTED = re.compile(r"\[(?P<what>missing|ready) ranks: ?(?P<ranks>\d[\d, ]{0,4000})\]")
_BY_RANK = re.compile(r"(?:Missing|Stalled) ranks:")
_RANK = re.compile(r"(?<![^\s:>\]])(?P<rank>\d{1,7})!?: \[(?P<tensors>[^\[\]]{0,4000})\]?")
WORDS = (_BEGIN, "[missing ranks:", "[ready ranks:", "Missing ranks:", "Stalled ranks:")
_LONGEST_NAME = 256
_MOST_TENSORS = 1024
_MOST_OPERATIONS = 16
_KINDS = ("allreduce", "allgather", "broadcast", "alltoall", "reducescatter", "barrier")


@dataclass(slots=True)
class _Warning:
    """One list of the inspector: of each tensor the line that names it, and its missing or its ready ranks."""

    missing: dict[str, set[int]] = field(default_factory=dict)
    ready: dict[str, frozenset[int]] = field(default_factory=dict)
    lines: dict[str, int] = field(default_factory=dict)

    def absent(self, world: frozenset[int]) -> dict[str, frozenset[int]]:
        """Missing ranks of each tensor, where any are known; `world` are all ranks that are spoken of."""
        found = {tensor: frozenset(ranks) for tensor, ranks in self.missing.items()}
        found.update((tensor, world - ranks) for tensor, ranks in self.ready.items())
        return {tensor: ranks for tensor, ranks in found.items() if ranks}


class HorovodStalls:
    """Collects the first and the last list of the inspector."""

    def __init__(self) -> None:
        self._first: _Warning | None = None
        self._last: _Warning | None = None
        self._highest = -1
        self._begins: list[int] = []
        self.is_listing = False

    def feed(self, number: int, line: str) -> None:
        """Take one line."""
        if _BEGIN in line:
            self._last = None
            self._begins = [*self._begins[:1], number]
            self.is_listing = False
        for listed in _LISTED.finditer(line) if " ranks:" in line else ():
            name = line[max(0, listed.start() - _LONGEST_NAME) : listed.start()].split()
            self._add(number, name[-1] if name else "", listed["what"], ranks_of(listed["ranks"]))
        by_rank = _BY_RANK.search(line) if " ranks:" in line else None
        if by_rank or self.is_listing:
            self.is_listing = self._listing(number, line, by_rank.end() if by_rank else 0) or by_rank is not None

    def _listing(self, number: int, line: str, start: int) -> bool:
        """Take a line of the list by rank; False for one that is none."""
        found = False
        for entry in _RANK.finditer(line, start):
            found = True
            for tensor in entry["tensors"].removesuffix(" ...").split(", "):
                self._add(number, tensor, "missing", ranks_of(entry["rank"]))
        return found

    def _add(self, number: int, name: str, what: str, ranks: frozenset[int]) -> None:
        tensor = name.strip().rpartition("ops:")[2][-_LONGEST_NAME:]
        if not tensor or not ranks:
            return
        self._last = self._last or _Warning()
        self._first = self._first or self._last
        warning = self._last
        if len(warning.lines) >= _MOST_TENSORS and tensor not in warning.lines:
            return
        warning.lines.setdefault(tensor, number)
        if what == "ready":
            warning.ready[tensor] = ranks
        else:
            warning.missing.setdefault(tensor, set()).update(ranks)
        self._highest = max(self._highest, *ranks)

    def has_passed(self, resumed: Resumed) -> bool:
        """Whether steps went on below the last list and, where it was repeated, above it: that stall is over.

        What a job that hung had not written yet may be printed below the last list when it ends, but until then the inspector
        writes one each minute. `resumed` gives the first line of steps below some lines.
        """
        if not self._begins or resumed(self._begins[-1:], ()) is None:
            return False
        between = resumed(self._begins[:1], ())
        return len(self._begins) == 1 or (between is not None and between < self._begins[-1])

    @property
    def positions(self) -> Iterator[LogPosition]:
        """The operations of the last list, one for all tensors that lack the same ranks.

        None where the ranks of the first list have all come since: what stalled went on.
        """
        if self._last is None or self._first is None:
            return
        world = frozenset(range(self._highest + 1))
        absent, before = self._last.absent(world), self._first.absent(world)
        if not _union(absent) & _union(before):
            return
        operations: dict[frozenset[int], str] = {}
        for tensor, ranks in absent.items():
            operations.setdefault(ranks, tensor)
        for ranks, tensor in list(operations.items())[:_MOST_OPERATIONS]:
            present = self._last.ready.get(tensor, world - ranks)
            kind = next((kind for kind in _KINDS if kind in tensor.lower().replace("_", "")), "")
            yield from report("horovod", self._last.lines[tensor], tensor, present, ranks, kind=kind)


def _union(absent: dict[str, frozenset[int]]) -> frozenset[int]:
    return frozenset[int]().union(*absent.values())
