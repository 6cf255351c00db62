"""Desync reports of torch's NCCL watchdog (TORCH_NCCL_DESYNC_DEBUG): what every rank of a group did last.

Upstream: torch/csrc/distributed/c10d/TraceUtils.h (`retrieveDesyncReport`), torch 1.11 to 2.13. The numbers count collectives
from one, the ranks count within the group that timed out: they are those of the job in the default group only.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from forensics.ingest._job_logs.patterns import mentions
from forensics.ingest._job_logs.positions import LogPosition
from forensics.ingest._job_logs.reports import ranks_of
from forensics.ingest._shared.values import rank_number

_LIST = r"[\d, ]{1,4000}"
_SAID = re.compile(
    r"\[(?P<reporter>\d{1,7})\] Timeout at collective: (?P<kind>\w{1,64}), #(?P<at>\d{1,18})"
    rf"|\[(?P<joined>{_LIST})\] joined but didn't finish collective #(?P<unfinished>\d{{1,18}})"
    rf"|\[(?P<left>{_LIST})\] finished collective #(?P<finished>\d{{1,18}})"
    rf"|ranks \[(?P<never>{_LIST})\] are the lagging ranks"
    r"|#(?P<number>\d{1,18}) (?:started|finished) ranks:"
    rf"|\[(?P<ranks>{_LIST})\] (?P<state>started|finished) (?P<operation>[A-Z_]\w{{0,63}})"
)
WORDS = (
    "Timeout at collective:",
    "finish collective #",
    "finished collective #",
    "lagging ranks",
    " started ranks:",
    " finished ranks:",
    "] started ",
    "] finished ",
)


class DesyncReports:
    """Collects the furthest place of each rank, over all reports of a file."""

    def __init__(self) -> None:
        self._found: dict[int, LogPosition] = {}
        self._number: int | None = None

    def feed(self, number: int, line: str) -> None:
        """Take one line, or a whole report that lost its line ends."""
        for said in _SAID.finditer(line) if mentions(line, WORDS) else ():
            if said["number"]:
                self._number = int(said["number"])
            elif said["never"]:
                self._place(number, ranks_of(said["never"]), 0, 0)
            elif said["joined"]:
                self._place(number, ranks_of(said["joined"]), int(said["unfinished"]), int(said["unfinished"]) - 1)
            elif said["left"]:
                self._place(number, ranks_of(said["left"]), int(said["finished"]), int(said["finished"]))
            elif said["reporter"]:
                at, reporter = int(said["at"]), rank_number(said["reporter"])
                self._place(number, {reporter} if reporter is not None else (), at, at - 1, said["kind"])
            elif self._number is not None:
                done = self._number if said["state"] == "finished" else self._number - 1
                self._place(number, ranks_of(said["ranks"]), self._number, done, said["operation"])

    def _place(self, line: int, ranks: frozenset[int] | set[int] | tuple[()], entered: int, done: int, kind: str = "") -> None:
        for rank in ranks:
            row = self._found.setdefault(rank, LogPosition(line, "desync", rank=rank, group_rank=rank, communicator="desync"))
            if (entered, done) >= (row.enqueued or 0, row.completed or 0):
                row.locator, row.enqueued, row.completed = line, entered, done
                row.timed_out = entered if entered > done else None
                row.kind = kind.lower().lstrip("_") or row.kind

    @property
    def positions(self) -> Iterator[LogPosition]:
        """One row for each rank; the whole group stands in a report, unless some never joined."""
        for _, row in sorted(self._found.items()):
            row.size = max(self._found) + 1
            yield row
