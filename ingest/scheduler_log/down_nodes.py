"""Nodes that Slurm lost, as `sinfo -R` and `scontrol show node` list them: when, and that nobody had set them aside.

A node check (LBNL's NHC) sets nodes aside for later jobs too: what it found counts of a record whose node is down.

Upstream: src/sinfo/opts.c (`-R`: `%20E %9u %19H %N`, which cuts reasons) and src/api/node_info.c of SchedMD/slurm.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from forensics.ingest._shared.node_lists import hosts
from forensics.ingest.scheduler_log.batch_hosts import hosts_of_job

HEADER = re.compile(r"REASON {2,40}USER {2,40}TIMESTAMP {2,40}NODELIST\s*")
LISTING = re.compile(r"NODELIST {2,80}NODES {1,8}PARTITION {2,40}STATE\b.*")
"""What `sinfo -N -l` prints above its rows."""
_LISTED = re.compile(r"(?P<node>[A-Za-z0-9][\w.-]{0,252}) {1,80}1 {1,20}\S{1,40} {1,40}down\S{0,3} .{0,200}\bNot responding\s*")
JOBS = re.compile(r"\s*JOBID\b.*\bNODELIST\b.*")
"""What `squeue` prints above its rows."""
SHOWN_JOB = re.compile(r"JobId=\d{1,12} JobName=")
"""What `scontrol show job` begins with."""
_OF_SHOWN_JOB = re.compile(r"\s+NodeList=(?P<nodes>[A-Za-z0-9]\S{0,2000})\s*")
STATES = re.compile(r"(?=.*\bNODELIST\b)(?=.*\bSTATE\b)(?!.*\bJOBID\b)[A-Z][A-Z()_:/ ]{8,200}\s*")
"""What `sinfo` prints above the states of nodes, in the columns that it was asked for."""
BEGIN = re.compile(r"NodeName=(?P<node>[A-Za-z0-9][\w.-]{0,252})\s")
WORDS = ("Not responding", "Node unexpectedly re", "NodeName=", "State=DOWN", "Reason=NHC: ")
_ROW = re.compile(
    r"(?:Not responding|Node unexpectedly re)\S{0,20} {1,40}\S{1,32} {1,40}\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d "
    r" {0,40}(?P<nodes>\S{1,1000})\s*"
)
_REASON = re.compile(
    r"\s+Reason=(?:Not responding|Node unexpectedly rebooted|(?P<check>NHC: [^\[\]]{1,200}?)) "
    r"\[[\w-]{1,32}@\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\]\s*"
)
_DOWN = re.compile(r"\s+State=DOWN\b")


class DownNodes:
    """Reads the lines; `feed` gives the nodes that one of them tells of."""

    def __init__(self) -> None:
        self._node: str | None = None
        self._is_down = False

    def feed(self, line: str) -> Iterator[str]:
        """Take one line of either form."""
        if begin := BEGIN.match(line):
            self._node, self._is_down = begin["node"], False
        elif row := _ROW.fullmatch(line):
            yield from hosts(row["nodes"])
        elif _DOWN.match(line):
            self._is_down = True
        elif self._node is not None and (reason := _REASON.fullmatch(line)) and (self._is_down or not reason["check"]):
            yield self._node


def listed(line: str) -> str | None:
    """The node of a row of `sinfo -N -l` that is down and does not answer."""
    found = _LISTED.fullmatch(line)
    return found["node"] if found else None


class StateTable:
    """Reads the tables of `sinfo`: nodes whose state is down, in whatever columns."""

    def __init__(self) -> None:
        self._names: list[str] = []

    def feed(self, line: str) -> Iterator[str]:
        """Take one line."""
        if STATES.fullmatch(line) and not LISTING.fullmatch(line):
            self._names = line.split()
            return
        # A reason, which may be of several words, stands last where it is asked for.
        cells = line.split(None, len(self._names) - 1) if self._names else []
        if len(cells) < len(self._names) or not self._names:
            self._names = []
            return
        said = dict(zip(self._names, cells, strict=True))
        if re.fullmatch(r"down[*$~#!%@^-]?", said["STATE"].strip(), re.IGNORECASE):
            yield from hosts(said["NODELIST"].strip())


class JobNodes:
    """Nodes of the jobs that `squeue`, `scontrol show job`, `qstat -f` or `bjobs -l` lists beside such a listing."""

    def __init__(self) -> None:
        self._names: list[str] = []
        self._jobs: set[tuple[str, ...]] = set()
        self._is_listed = False

    def feed(self, line: str) -> None:
        """Take one line."""
        words = line.split()
        if JOBS.fullmatch(line):
            self._names, self._is_listed = [word.partition("(")[0] for word in words], True
        elif self._names and len(words) == len(self._names) and words[0][:1].isdigit():
            nodes = words[self._names.index("NODELIST")]
            # In place of its nodes one that waits has the reason.
            self._jobs |= set() if nodes.startswith("(") else {tuple(hosts(nodes))}
        else:
            self._names = []
            if shown := _OF_SHOWN_JOB.fullmatch(line):
                self._jobs.add(tuple(hosts(shown["nodes"])))
            elif listed := hosts_of_job(line):
                self._jobs.add(listed)

    @property
    def of_one(self) -> tuple[str, ...]:
        """The nodes of the only job that is listed."""
        return next(iter(self._jobs)) if len(self._jobs) == 1 else ()

    def may_have(self, node: str) -> bool:
        """Whether a node is of such a job, or nothing shows which ones are."""
        return any(node in nodes for nodes in self._jobs) or not self._is_listed
