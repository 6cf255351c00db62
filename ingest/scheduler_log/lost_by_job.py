"""Nodes that slurmctld lost while a job ran on them that it then ended by a signal: of its log alone, those of one job.

Upstream: src/slurmctld/node_scheduler.c and job_mgr.c of SchedMD/slurm (`sched: Allocate JobId=88 NodeList=gx-[3-10]`,
`_job_complete: JobId=88 WTERMSIG 9`).
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from forensics.ingest._shared.node_lists import hosts

WORDS = ("Allocate JobId=", " WTERMSIG ", "setting DOWN")
_ALLOCATED = re.compile(r"Allocate JobId=(?P<job>\S{1,40}) NodeList=(?P<nodes>\S{1,2000})")
_ENDED = re.compile(r"\bJobId=(?P<job>\S{1,40}) WTERMSIG \d")
_DOWN = re.compile(r"Nodes? (?P<nodes>\S{1,2000}) not responding, setting DOWN")
_MOST = 10_000


class LostByJob:
    """Takes the lines of a log."""

    def __init__(self) -> None:
        self._jobs: dict[str, frozenset[str]] = {}
        self._ended: set[str] = set()
        self._down: dict[str, tuple[int, str]] = {}

    def feed(self, number: int, line: str) -> None:
        """Take one line; a node that a later job is given is up again."""
        if (given := _ALLOCATED.search(line)) and len(self._jobs) < _MOST:
            self._jobs[given["job"]] = frozenset(hosts(given["nodes"]))
            self._down = {node: said for node, said in self._down.items() if node not in self._jobs[given["job"]]}
        elif ended := _ENDED.search(line):
            self._ended.add(ended["job"])
        elif down := _DOWN.search(line):
            self._down |= dict.fromkeys(hosts(down["nodes"]), (number, line))

    def lost(self) -> Iterator[tuple[int, str, str, str]]:
        """Line, text, kind and subject of each node of a job that was ended so."""
        for node, (number, line) in self._down.items():
            if any(node in self._jobs.get(job, ()) for job in self._ended):
                yield number, line, "node_dead", node
