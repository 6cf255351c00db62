"""How a job of Slurm ended by its accounts: tables of `sacct`, in columns, or with `|` (`-P`) or commas between them.

Upstream: src/sacct/print.c of SchedMD/slurm; a state that does not fit is cut and ends with `+`.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field

HEADER = re.compile(r"\s*\"?JobID(?:Raw)?\"?(?=[\s|,])(?=.*\bState\b)[\w|,\s\"%]{0,2000}")
_RULE = re.compile(r"-{2,}(?: +-{2,})*\s*")
_STEP = re.compile(r"(?P<job>\d{1,12}(?:[_+]\d{1,9})?)(?:\.(?P<step>\w{1,64}))?")
# What the scheduler did, as its log calls it.
_CANCELLED = {
    "CANCELLED": "on request",
    "TIMEOUT": "time limit",
    "DEADLINE": "time limit",
    "PREEMPTED": "preemption",
    "NODE_FAIL": "node failure",
    "BOOT_FAIL": "node failure",
}
_FAILED = "FAILED"
_ENDED = frozenset({_FAILED, "OUT_OF_ME", "OUT_OF_MEMORY"})
_OF_SLURM = frozenset({None, "batch", "extern", "interactive"})
_MOST = 10_000


@dataclass(frozen=True, slots=True)
class _Row:
    line: int
    text: str
    job: str
    step: str | None
    state: str
    code: str
    nodes: str


@dataclass(slots=True)
class Accounts:
    """Collects the rows of the tables of a file."""

    _names: list[str] = field(default_factory=list)
    _separator: str | None = None
    _spans: list[tuple[int, int]] = field(default_factory=list)
    _rows: list[_Row] = field(default_factory=list)

    def feed(self, number: int, line: str) -> None:
        """Take one line."""
        if HEADER.fullmatch(line):
            self._separator = next((mark for mark in "|," if mark in line), None)
            self._names = [name.strip(' "') for name in (line.split(self._separator) if self._separator else line.split())]
            self._spans = []
        elif self._names and self._separator is None and not self._spans and _RULE.fullmatch(line):
            self._spans = [match.span() for match in re.finditer("-+", line)]
        elif self._names and len(self._rows) < _MOST:
            self._add(number, line)

    def _add(self, number: int, line: str) -> None:
        cells = line.split(self._separator) if self._separator else [line[begin:end] for begin, end in self._spans]
        said = {name: cell.strip(' "') for name, cell in zip(self._names, cells, strict=False)}
        found = _STEP.fullmatch(said.get("JobID") or said.get("JobIDRaw") or "")
        if found and said.get("State"):
            rest = said.get("ExitCode", ""), said.get("NodeList", "")
            self._rows.append(_Row(number, line, found["job"], found["step"], _state(said["State"]), *rest))

    @property
    def nodes(self) -> str:
        """The list of nodes of the one job of the tables, as Slurm writes it; empty where there is none."""
        jobs = {row.job: row.nodes for row in self._rows if row.step is None}
        return next(iter(jobs.values())) if len(jobs) == 1 else ""

    def ends(self) -> Iterator[tuple[int, str, str, str]]:
        """Line, text, kind and subject of how the one job of the tables ended; of several nothing shows which is meant."""
        jobs = [row for row in self._rows if row.step is None]
        if len({row.job for row in self._rows}) != 1 or not jobs:
            return
        last = jobs[-1]
        steps = [row for row in self._rows if row.line > last.line and row.step not in _OF_SLURM]
        if last.state in _CANCELLED:
            yield last.line, last.text, "job_cancelled", f"JobId={last.job} {_CANCELLED[last.state]}"
        for row in [row for row in (*steps, last) if row.state in _ENDED][:1]:
            name = f"{row.job}.{row.step}" if row.step else row.job
            if row.state != _FAILED:
                yield row.line, row.text, "oom_kill", name
            yield row.line, row.text, "terminated", f"step {name} {row.state} exit code {row.code}"


def _state(cell: str) -> str:
    """One word, without by whom; as long as it was cut."""
    return cell.partition(" ")[0].rstrip("+")
