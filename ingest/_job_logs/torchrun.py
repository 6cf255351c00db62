"""torchrun's table of failed ranks, whole, flattened into one line, or a row of it without its header.

Upstream: `ChildFailedError.format_msg` of torch/distributed/elastic/multiprocessing/errors, torch 1.9 to 2.13. What stands
under `Root Cause` is the failure that one node saw first; the launcher ended the others by SIGTERM after that.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import NamedTuple

from forensics.ingest._job_logs.patterns import EXCEPTION_TYPE, mentions
from forensics.ingest._shared.values import rank_number

WORDS = ("Root Cause (first", "(local_rank: ", "exitcode")
EXPRESSIONS = {"_00:": r"_\d\d:\d\d:\d\d"}
_WORDS = ("Root Cause (first", "time ", "rank ", "exitcode ", "rank:", "exitcode:")
_SAID = re.compile(
    r"(?P<first>Root Cause \(first observed failure\):)"
    r"|\btime {0,40}: ?(?P<time>\d{4}-\d\d-\d\d_\d\d:\d\d:\d\d)"
    r"|(?<![\w-])rank {0,40}: ?(?P<rank>\d{1,7}) \(local_rank: (?P<local>\d{1,5})\)"
    r"|\bexitcode {0,40}: ?(?P<code>-?\d{1,5})(?: {0,40}\(pid: (?P<pid>\d{1,9})\)| {0,40}$)"
)
_RAISED = re.compile(r" {1,8}" + EXCEPTION_TYPE)
_LONGEST_ENTRY = 512


class Failed(NamedTuple):
    """What a line of the table tells of a rank: how it ended, or the exception in its traceback."""

    kind: str
    rank: int
    local_rank: int
    subject: str


class FailureTable:
    """Reads tables of failed ranks, entry by entry."""

    def __init__(self) -> None:
        self._mark = ""
        self._time = ""
        self._rank: int | None = None
        self._local = 0
        self._raised_by: int | None = None
        self._lines = 0

    @property
    def is_open(self) -> bool:
        """Whether an entry may go on with a traceback."""
        return self._raised_by is not None

    def feed(self, line: str) -> Iterator[Failed]:
        """What this line completes."""
        for said in _SAID.finditer(line) if mentions(line, _WORDS) else ():
            if said["first"]:
                self._mark = " first"
            elif said["time"]:
                self._time = f" time={said['time']}"
            elif said["rank"]:
                self._rank, self._local = rank_number(said["rank"]), int(said["local"])
            elif self._rank is not None:
                pid = f" pid={said['pid']}" if said["pid"] else ""
                how = f"exitcode={said['code']}{pid}{self._mark}{self._time}"
                yield Failed("process_exit", self._rank, self._local, how)
                self._raised_by, self._lines = self._rank, 0
                self._mark, self._time, self._rank = "", "", None
        if self._raised_by is not None:
            yield from self._raised(line)

    def _raised(self, line: str) -> Iterator[Failed]:
        """The exception that an entry's error file holds: its type begins an indented line behind the frames."""
        self._lines += 1
        raised = _RAISED.match(line)
        if raised and self._raised_by is not None:
            yield Failed("exception", self._raised_by, self._local, raised["type"])
        if raised or self._lines > _LONGEST_ENTRY or line.startswith(("====", "----")):
            self._raised_by = None
