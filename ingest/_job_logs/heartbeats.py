"""Tasks whose heartbeats the coordination service of JAX no longer got: `task:37 heartbeat timeout`, or a list of them.

Upstream: `CheckHeartbeatTimeout` of xla/tsl/distributed_runtime/coordination/coordination_service.cc; a task is a process of
the job. Task 0 runs the service: what it misses of itself tells of nobody else.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from forensics.ingest._job_logs.positions import LogPosition
from forensics.ingest._job_logs.reports import report

_UNHEALTHY = "stopped sending heartbeats):"
WORDS = (" heartbeat timeout", _UNHEALTHY)
_TASK = r"/job:jax_worker/replica:\d{1,5}/task:(\d{1,7})"
_LOST = re.compile(_TASK + r" heartbeat timeout")
_LISTED = re.compile(_TASK + r"(?=\\n|\s|$)")


class Heartbeats:
    """Collects the tasks over a file; `is_open` while a list may go on."""

    def __init__(self) -> None:
        self._line = 0
        self._lost: set[int] = set()
        self.is_open = False

    def feed(self, number: int, line: str) -> None:
        """Take one line."""
        if _UNHEALTHY in line:
            found, self.is_open = _LISTED.findall(line.partition(_UNHEALTHY)[2]), True
        elif self.is_open:
            found = _LISTED.findall(line)
            self.is_open = bool(found)
        else:
            found = _LOST.findall(line) if " heartbeat timeout" in line else []
        self._line = self._line or (number if found else 0)
        self._lost |= {int(task) for task in found}

    @property
    def positions(self) -> Iterator[LogPosition]:
        """The one task that was lost: of several, the first may have taken the others with it."""
        if len(self._lost) == 1 and 0 not in self._lost:
            yield from report("barrier", self._line, "the coordination service", (), self._lost, kind="heartbeat")
