"""What Ray Train says of a call that not all its workers have made: which ranks it waits for, or have come, and since when.

Upstream: `BROADCAST_PERIODIC_WARNING` of python/ray/train/v2/_internal/execution/checkpoint/sync_actor.py (Ray 2.43 and newer:
`ray.train.report`; since 2.53 also the calls of `ray.train.collective`) and `BroadcastCollectiveTimeoutError` of
exceptions.py beside it. The warning is one message of several lines, repeated every minute: each says the whole list anew. At
first (until 2.46) it listed those that had come, with the seconds that each had waited.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from forensics.ingest._job_logs.patterns import mentions
from forensics.ingest._job_logs.positions import LogPosition
from forensics.ingest._job_logs.reports import LONGEST_LIST, MOST_RANKS, ranks_of, report

_BEGINS = " has not been called by all "
_FAILED = "The following ranks have not called it: ["
_CAME = "Here are the ranks that have reported"
WORDS = (_BEGINS, _CAME, "The workers have been waiting for ", "to join the `", "The broadcast operation timed out", _FAILED)
_CALL = re.compile(r"`(?P<call>[\w.]{1,80})` has not been called by all (?P<size>\d{1,7}) workers in the group")
_SINCE = re.compile(r"The workers have been waiting for (?P<seconds>\d{1,9})(?:\.\d{1,3})? s for the following ranks")
_LATE = re.compile(rf"to join the `[\w.]{{1,80}}` call: \[(?P<ranks>[\d, ]{{0,{LONGEST_LIST}}}\d)\]")
_NEVER = re.compile(rf"{re.escape(_FAILED)}(?P<ranks>[\d, ]{{0,{LONGEST_LIST}}}\d)\]")
_WAITED = re.compile(r"\{(?P<came>\d{1,7}: \d{1,9}(?:\.\d{1,20})?(?:, \d{1,7}: \d{1,9}(?:\.\d{1,20})?){0,65536})\}")
_LIST_LINES = 8
_LEAST_SECONDS = 600
"""The rank that saves a checkpoint uploads it before it makes the call, which takes minutes."""


class RayCollectives:
    """Collects them over a file; what was said last counts."""

    def __init__(self) -> None:
        self._call: tuple[str, int] | None = None
        self._seconds = 0
        self._late: tuple[int, frozenset[int]] | None = None
        self._begin: int | None = None

    @property
    def is_open(self) -> bool:
        """Whether the list of those that have come goes on, which no word of its own is in."""
        return self._begin is not None

    def feed(self, number: int, line: str) -> None:
        """Take one line."""
        if self._begin is not None:
            self._list(number, line)
        if not mentions(line, WORDS):
            return
        if _CAME in line:
            self._begin = number
        if said := _CALL.search(line):
            self._call, self._seconds = (said["call"], int(said["size"])), 0
        if since := _SINCE.search(line):
            self._seconds = int(since["seconds"])
        if late := _LATE.search(line):
            self._late = (number, ranks_of(late["ranks"])) if self._seconds >= _LEAST_SECONDS else None
        if never := _NEVER.search(line):
            self._late = number, ranks_of(never["ranks"])

    def _list(self, number: int, line: str) -> None:
        if self._call is not None and (said := _WAITED.search(line)):
            waited = {
                int(rank): float(seconds) for rank, _, seconds in (one.partition(": ") for one in said["came"].split(", "))
            }
            late = frozenset(range(min(self._call[1], MOST_RANKS))) - waited.keys()
            self._late = (number, late) if max(waited.values()) >= _LEAST_SECONDS else None
            self._begin = None
        elif self._begin is not None and number - self._begin > _LIST_LINES:
            self._begin = None

    @property
    def positions(self) -> Iterator[LogPosition]:
        """Rows of the call, where most of the workers came and the others are named."""
        if self._late is None or self._call is None:
            return
        (line, missing), (call, size) = self._late, self._call
        if missing and 2 * len(missing) < size <= MOST_RANKS and max(missing) < size:
            present = set(range(size)) - missing
            yield from report("barrier", line, call, present, missing, size, kind="barrier")
