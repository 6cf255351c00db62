"""The real world of the loop: this host, its processes, its clock, and collections made in this process."""

from __future__ import annotations

import os
import select
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path

from forensics.collect.discovery import Discovery, discover, own_tree
from forensics.collect.interrupts import Interrupts
from forensics.collect.processes import ProcFs
from forensics.collect.scan import Process, scan
from forensics.collect.session import Options, collect
from forensics.collect.spawned import guess_ranks
from forensics.collect.summary import explain_no_ranks
from forensics.errors import ForensicsError
from forensics.watch.loop import Event, Job
from forensics.watch.readings import Means, read_ranks
from forensics.watch.rhythm import Reading
from forensics.watch.trigger import Alarm

_SAID = 3
"""Lines of what was searched: what and where, which processes could not be read, which blocked."""

Collect = Callable[[Options], bool]
"""Makes a bundle; whether it was interrupted."""


@dataclass(slots=True)
class Host:
    """This host. `folder` takes the bundles; `options` are those of each collection, their output left open.

    The watch ends with the process `beside`, where one is named.
    """

    folder: Path
    options: Options
    interrupts: Interrupts
    means: Means = field(default_factory=Means)
    beside: int | None = None
    collect_bundle: Collect = lambda options: collect(options).interrupted
    found: Mapping[int, Process] = field(default_factory=dict)
    searched: str = ""

    def sleep(self, seconds: float) -> str | None:
        """Wait, not longer than until a signal asks to end."""
        if not self.interrupts.requested:
            select.select([self.interrupts.wake], [], [], seconds)
        if self.interrupts.requested:
            return "interrupted"
        if self.beside is not None and not self.means.procfs.is_alive(self.beside):
            return f"process {self.beside} ended"
        return None

    def now_s(self) -> float:
        """Monotonic time."""
        return time.monotonic()

    def find(self) -> Job | None:
        """The ranks of the job with most of them, or of the one that was asked for."""
        found = self._discover()
        self.found = {one.rank: one.process for one in found.ranks}
        if not found.ranks:
            return None
        processes = {rank: (one.pid, one.stat.start_ticks) for rank, one in self.found.items()}
        return Job(processes, found.job.name if found.job else None)

    def why_none(self) -> str:
        """What was searched, and which processes could not be looked into: a container may lack a capability."""
        return self.searched

    def living(self, job: Job) -> frozenset[int]:
        """By process id and start: the id may have been given to another process."""
        return frozenset(rank for rank, (pid, start) in job.processes.items() if self._lives(pid, start))

    def read(self, ranks: tuple[int, ...]) -> list[Reading]:
        """Look at ranks of the job found last."""
        return read_ranks({rank: self.found[rank] for rank in ranks}, self.means)

    def collect(self, job: Job, found: Alarm) -> tuple[Event, bool]:
        """A bundle of the whole job on this host; what kept it from being written is stated, and the loop goes on."""
        output = self.folder / f"forensics-{os.uname().nodename}-{time.strftime('%Y%m%dT%H%M%SZ', time.gmtime())}.tar"
        try:
            is_over = self.collect_bundle(replace(self.options, output=output, job=self.options.job or job.name))
        except ForensicsError as error:
            return {"event": "no_bundle", "reason": error.message}, self.interrupts.requested
        return {"event": "bundle", "path": str(output), "alarm": found.kind}, is_over

    def _discover(self) -> Discovery:
        began = time.clock_gettime_ns(time.CLOCK_BOOTTIME) * os.sysconf("SC_CLK_TCK") // 1_000_000_000
        procfs, stopped = self.means.procfs, lambda: self.interrupts.requested
        seen = scan(procfs, stopped=stopped)
        found = discover(seen, own_tree(seen, os.getpid(), began), self.options.job)
        if not found.ranks and not found.jobs_seen and self.options.job is None:
            seen = scan(procfs, maps_of_python=True, stopped=stopped)
            found = guess_ranks(procfs, seen, own_tree(seen, os.getpid(), began))
        self.searched = "; ".join(explain_no_ranks(seen, found, self.options.job).splitlines()[:_SAID])
        return found

    def _lives(self, pid: int, start: int) -> bool:
        procfs: ProcFs = self.means.procfs
        try:
            stat = procfs.stat(pid)
        except (OSError, ValueError, IndexError):
            return False
        return stat.start_ticks == start and stat.state not in "ZX"
