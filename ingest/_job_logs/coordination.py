"""What the coordination service of JAX says of a barrier that timed out: how many tasks came, and the names of the others.

Upstream: `CheckBarrierTimeout` of xla/tsl/distributed_runtime/coordination/coordination_service.cc. A task is a process of the
job; a long list is cut, and then it tells nobody.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from forensics.ingest._job_logs.positions import LogPosition
from forensics.ingest._job_logs.reports import MOST_RANKS, report

WORDS = ("tasks that reached the barrier",)
_CAME = re.compile(r"# of tasks that reached the barrier: (?P<came>\d{1,7})/(?P<size>\d{1,7})")
_LATE = "timed out task names:"
_TASK = re.compile(r"/job:[\w-]{1,64}/replica:\d{1,5}/task:(\d{1,7})\b")
_LONGEST = 64


class TimedOutBarriers:
    """Reads the first such report of a file: others follow from it."""

    def __init__(self) -> None:
        self._said: tuple[int, int, int] | None = None
        self._late: set[int] = set()
        self._is_listing = False
        self.is_open = False

    def feed(self, number: int, line: str) -> None:
        """Take one line."""
        came = _CAME.search(line) if WORDS[0] in line else None
        if came:
            self.is_open = self._said is None
            self._said = self._said or (number, int(came["came"]), int(came["size"]))
        if not self.is_open or self._said is None:
            return
        _, heading, names = line.rpartition(_LATE)
        self._is_listing = self._is_listing or bool(heading)
        if self._is_listing:
            found = {int(task) for task in _TASK.findall(names)}
            self._late |= found
            self.is_open = bool(found or heading)
        self.is_open = self.is_open and number - self._said[0] < _LONGEST

    @property
    def positions(self) -> Iterator[LogPosition]:
        """Rows of the barrier, where all tasks that did not come are named."""
        if self._said is None:
            return
        number, came, size = self._said
        if 0 < len(self._late) == size - came and max(self._late) < size <= MOST_RANKS:
            present = set(range(size)) - self._late
            yield from report("barrier", number, "coordination_service", present, self._late, size, kind="barrier")
