"""What the coordination service of JAX says of a barrier that timed out: who did not come, and how many did.

Upstream: `CheckBarrierTimeout` of xla/tsl/distributed_runtime/coordination/coordination_service.cc. A task is a process of the
job. Since 2024 the message counts who came; before, processes state their number (`num_processes=16, process_id=0`). A list of
20 names (`kPendingTaskLogLimit`; 3 in later versions) is cut without a mark. In TensorFlow jobs of several kinds count anew.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator
from dataclasses import dataclass, field

from forensics.ingest._job_logs import heartbeats
from forensics.ingest._job_logs.event_owners import LAUNCHER
from forensics.ingest._job_logs.event_rows import Events
from forensics.ingest._job_logs.heartbeats import Heartbeats
from forensics.ingest._job_logs.line_origin import Origin
from forensics.ingest._job_logs.patterns import mentions
from forensics.ingest._job_logs.positions import LogPosition
from forensics.ingest._job_logs.reports import MOST_RANKS, report

_BEGINS = ("Barrier timed out. ", "tasks that reached the barrier")
_SIZED = ("num_processes=", "JAX process: ")
WORDS = (*_BEGINS, *_SIZED, *heartbeats.WORDS)
_CAME = re.compile(r"# of tasks that reached the barrier: (?P<came>\d{1,7})/(?P<size>\d{1,7})")
_LATE = re.compile(r"[Tt]imed out task names:(?=\s*$|\\n)")
_TASK = re.compile(r"/job:(?P<job>[\w-]{1,64})/replica:\d{1,5}/task:(?P<task>\d{1,7})(?=\\n|\s|$)")
# JAX's own arguments, and what examples of flax print.
_SIZE = re.compile(
    r"\bnum_processes=(?P<size>\d{1,7}), process_id=(?P<own>\d{1,7})\b|JAX process: (?P<index>\d{1,7}) / (?P<count>\d{1,7})\b"
)
# At the end of a process; the first one there is the odd one as likely as the last.
_SHUTDOWN = re.compile(r"Barrier timed out\. (?:Barrier_id|Id): Shutdown::")
_NAME = re.compile(r"Barrier timed out\. (?:Barrier_id|Id): (\S{1,80}?)\.?(?: |$)")
_OF_KINDS = frozenset({"chief", "master", "ps", "evaluator"})
_LONGEST = 64
_MOST_NAMED = 18


@dataclass(slots=True)
class _Report:
    """One report: `counted` are those that came and all, `is_whole` says that something else stands below the names."""

    line: int
    barrier: str = ""
    is_shutdown: bool = False
    counted: tuple[int, int] | None = None
    late: set[int] = field(default_factory=set)
    jobs: set[str] = field(default_factory=set)
    front: str | None = None
    is_listing: bool = False
    is_whole: bool = False

    def feed(self, line: str) -> None:
        """Take one line; names stand on lines of their own, and lines of somebody else may stand between them."""
        self.is_shutdown = self.is_shutdown or _SHUTDOWN.search(line) is not None
        if not self.barrier and (name := _NAME.search(line)):
            self.barrier = name[1]
        if came := _CAME.search(line):
            self.counted = int(came["came"]), int(came["size"])
        heading = _LATE.search(line)
        names = line[heading.end() :] if heading else line
        self.is_listing = self.is_listing or heading is not None
        found = list(_TASK.finditer(names)) if self.is_listing else []
        if found and (not self.is_whole or names[: found[0].start()] == self.front):
            self.front = names[: found[0].start()] if self.front is None else self.front
            self.late |= {int(task["task"]) for task in found}
            self.jobs |= {task["job"] for task in found}
            self.is_whole = self.is_whole or bool(names[found[-1].end() :].replace("\\n", "").strip())
        elif self.is_listing and not heading:
            self.is_whole = bool(self.late)

    def size(self, stated: Collection[int]) -> int | None:
        """How many tasks there are; 0 where the names are not those of all that are late, None where nothing tells it."""
        if self.counted is not None:
            came, size = self.counted
            return size if len(self.late) == size - came else 0
        if not self.is_whole or len(self.late) > _MOST_NAMED or len(stated) > 1:
            return 0
        return next(iter(stated), None)


class TimedOutBarriers:
    """Reads the first such report of a file: others follow from it."""

    def __init__(self) -> None:
        self._report: _Report | None = None
        self._sizes: set[int] = set()
        self._is_open = False
        self._heartbeats = Heartbeats()

    @property
    def is_open(self) -> bool:
        """Whether a list of names may go on."""
        return self._is_open or self._heartbeats.is_open

    def feed(self, number: int, line: str) -> None:
        """Take one line."""
        self._heartbeats.feed(number, line)
        if mentions(line, _SIZED) and (said := _SIZE.search(line)):
            self._begin(int(said["own"] or said["index"]), int(said["size"] or said["count"]))
        begins = mentions(line, _BEGINS)
        if self._report is None and begins:
            self._report, self._is_open = _Report(number), True
        if self._report is not None and self._is_open:
            self._is_open = number - self._report.line < _LONGEST and not (begins and self._report.late)
            if self._is_open:
                self._report.feed(line)

    def _begin(self, own: int, size: int) -> None:
        """A process that says how many there are has just begun: what was reported above was of an earlier attempt."""
        if own < size <= MOST_RANKS:
            self._sizes = {size} if self._report is not None else self._sizes | {size}
            self._report, self._is_open = None, False

    def add_to(self, events: Events) -> None:
        """Who did not come, where the report accuses nobody: all names together are too many, or of how many is not known."""
        said = self._report
        if said is None or not said.late or not said.barrier or said.is_shutdown or len(said.jobs) > 1 or any(self.positions):
            return
        tasks = ",".join(map(str, sorted(said.late)[:_MOST_NAMED]))
        text = f"Barrier timed out. Id: {said.barrier}"
        origin = Origin(None, LAUNCHER, "", 0)
        events.add(said.line, "not_joined", f"tasks={tasks} barrier={said.barrier}", text, None, origin)

    @property
    def positions(self) -> Iterator[LogPosition]:
        """Rows of the barrier, where all tasks that did not come are named, and most came; or of a task that was lost."""
        said = self._report
        if said is None:
            yield from self._heartbeats.positions
        if said is None or not said.late or len(said.jobs) > 1 or said.jobs & _OF_KINDS:
            return
        size = said.size(self._sizes)
        is_minority = size is not None and 2 * len(said.late) < size
        if size is None:
            present = set[int]()
        elif max(said.late) < size <= MOST_RANKS:
            present = set(range(size)) - said.late
        else:
            return
        if is_minority or (len(said.late) == 1 and not said.is_shutdown):
            yield from report("barrier", said.line, "coordination_service", present, said.late, size, kind="barrier")
