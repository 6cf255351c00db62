"""Tasks whose heartbeats the coordination service of JAX, or the scheduler of MindSpore, no longer got.

`task:37 heartbeat timeout` or a list of them; `The node: 3 is timed out`, and what msrun makes of it.
Upstream: `CheckHeartbeatTimeout` of xla/tsl/distributed_runtime/coordination/coordination_service.cc, where a task is a process
of the job, and task 0 runs the service: what it misses of itself tells of nobody else. `UpdateTopoState` of
mindspore/ccsrc/distributed/cluster/topology/meta_server_node.cc, where a node is a worker, and the scheduler none of them.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from forensics.ingest._job_logs.positions import LogPosition
from forensics.ingest._job_logs.reports import report

_UNHEALTHY = "stopped sending heartbeats):"
_EXITED = (" is timed out. It may exit", "Time out nodes are [")
WORDS = (" heartbeat timeout", _UNHEALTHY, *_EXITED)
_TASK = r"/job:jax_worker/replica:[\dO]{1,5}/task:(\d{1,7})"
_LOST = re.compile(_TASK + r" heartbeat timeout")
_WORKER = re.compile(r"The node: (\d{1,7}) is timed out\. It may exit with exception|Time out nodes are \[([^\]]{1,4000})\]")
_NUMBER = re.compile(r"'(\d{1,7})'")
_LISTED = re.compile(_TASK + r"(?=\\n|\s|$)")


class Heartbeats:
    """Collects the tasks over a file; `is_open` while a list may go on."""

    def __init__(self) -> None:
        self._line = 0
        self._lost: set[int] = set()
        self._workers: set[int] = set()
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
        workers = _workers(line)
        self._line = self._line or (number if found or workers else 0)
        self._lost |= {int(task) for task in found}
        self._workers |= workers

    @property
    def positions(self) -> Iterator[LogPosition]:
        """The one task that was lost: of several, the first may have taken the others with it."""
        if len(self._lost) == 1 and 0 not in self._lost:
            yield from report("barrier", self._line, "the coordination service", (), self._lost, kind="heartbeat")
        elif len(self._workers) == 1 and not self._lost:
            yield from report("barrier", self._line, "the scheduler", (), self._workers, kind="heartbeat")


def _workers(line: str) -> set[int]:
    """Workers of MindSpore that a line says are lost."""
    said = _WORKER.search(line) if " is timed out" in line or "Time out nodes" in line else None
    return {int(worker) for worker in ((said[1],) if said[1] else _NUMBER.findall(said[2]))} if said else set()
