"""What Ray Train says of a call that not all its workers have made: which ranks it waits for, and since when.

Upstream: `BROADCAST_PERIODIC_WARNING` of python/ray/train/v2/_internal/execution/checkpoint/sync_actor.py (Ray 2.43 and newer:
`ray.train.report`; since 2.53 also the calls of `ray.train.collective`) and `BroadcastCollectiveTimeoutError` of
exceptions.py beside it. The warning is one message of several lines, repeated every minute: each says the whole list anew.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from forensics.ingest._job_logs.patterns import mentions
from forensics.ingest._job_logs.positions import LogPosition
from forensics.ingest._job_logs.reports import LONGEST_LIST, MOST_RANKS, ranks_of, report

_BEGINS = " has not been called by all "
_FAILED = "The following ranks have not called it: ["
WORDS = (_BEGINS, "The workers have been waiting for ", "to join the `", "The broadcast operation timed out", _FAILED)
_CALL = re.compile(r"`(?P<call>[\w.]{1,80})` has not been called by all (?P<size>\d{1,7}) workers in the group")
_SINCE = re.compile(r"The workers have been waiting for (?P<seconds>\d{1,9})(?:\.\d{1,3})? s for the following ranks")
_LATE = re.compile(rf"to join the `[\w.]{{1,80}}` call: \[(?P<ranks>[\d, ]{{0,{LONGEST_LIST}}}\d)\]")
_NEVER = re.compile(rf"{re.escape(_FAILED)}(?P<ranks>[\d, ]{{0,{LONGEST_LIST}}}\d)\]")
_LEAST_SECONDS = 600
"""The rank that saves a checkpoint uploads it before it makes the call, which takes minutes."""


class RayCollectives:
    """Collects them over a file; what was said last counts."""

    def __init__(self) -> None:
        self._call: tuple[str, int] | None = None
        self._seconds = 0
        self._late: tuple[int, frozenset[int]] | None = None

    def feed(self, number: int, line: str) -> None:
        """Take one line."""
        if not mentions(line, WORDS):
            return
        if said := _CALL.search(line):
            self._call, self._seconds = (said["call"], int(said["size"])), 0
        if since := _SINCE.search(line):
            self._seconds = int(since["seconds"])
        if late := _LATE.search(line):
            self._late = (number, ranks_of(late["ranks"])) if self._seconds >= _LEAST_SECONDS else None
        if never := _NEVER.search(line):
            self._late = number, ranks_of(never["ranks"])

    @property
    def positions(self) -> Iterator[LogPosition]:
        """Rows of the call, where most of the workers came and the others are named."""
        if self._late is None or self._call is None:
            return
        (line, missing), (call, size) = self._late, self._call
        if missing and 2 * len(missing) < size <= MOST_RANKS and max(missing) < size:
            present = set(range(size)) - missing
            yield from report("barrier", line, call, present, missing, size, kind="barrier")
