"""Who came to an operation and who did not, as a library that knows all members says: rows of `log_positions`."""

from __future__ import annotations

from collections.abc import Collection, Iterator

from forensics.ingest._job_logs.positions import LogPosition
from forensics.ingest._shared.values import rank_number

MOST_RANKS = 1 << 14
LONGEST_LIST = 1 << 17


def ranks_of(listed: str) -> frozenset[int]:
    """Ranks of a list as it is printed: `0, 1, 7`; the empty set for one that is longer than any job."""
    if len(listed) > LONGEST_LIST:
        return frozenset()
    found = (rank_number(word.strip()) for word in listed.split(","))
    ranks = frozenset(rank for rank in found if rank is not None)
    return ranks if len(ranks) <= MOST_RANKS else frozenset()


def report(
    origin: str,
    locator: int,
    name: str,
    present: Collection[int],
    missing: Collection[int],
    size: int | None = None,
    kind: str = "",
) -> Iterator[LogPosition]:
    """Rows of one operation: 1 for ranks that came and wait, 0 for those that did not; a row without rank where none is stated.

    `size` is the number of members, None when not stated.
    """
    for rank in sorted({*present, *missing}):
        came = rank not in missing
        yield _row(origin, locator, name, rank, came, size, kind)
    if not present:
        yield _row(origin, locator, name, None, True, size, kind)


def _row(origin: str, locator: int, name: str, rank: int | None, came: bool, size: int | None, kind: str) -> LogPosition:
    row = LogPosition(locator, origin, rank=rank, size=size, communicator=name, kind=kind or None)
    row.enqueued, row.completed, row.timed_out = int(came), 0, 1 if came else None
    return row
