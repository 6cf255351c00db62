"""What of a case goes into a small trace: which ranks, which span of time, and by how much each host's clock is moved."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass

from duckdb import DuckDBPyConnection

from forensics.case.clock_offsets import clock_offsets
from forensics.model import Verdict
from forensics.report import times

MOST_RANKS = 32
"""Ranks of a trace when nobody says which: suspects, whom they hold up, then others."""

_LAST = """
SELECT greatest(
    (SELECT max(greatest(enqueued_ns, coalesce(device_end_ns, 0))) FROM operations), (SELECT max(end_ns) FROM coverage),
    (SELECT max(captured_ns) FROM sources), (SELECT max(coalesce(end_ns, begin_ns + wall_ns, begin_ns)) FROM steps),
    (SELECT max(begin_ns) FROM spans)
)
"""
_KNOWN = """
SELECT DISTINCT rank FROM (
    SELECT rank FROM operations UNION SELECT rank FROM steps UNION SELECT rank FROM stage_spans UNION SELECT rank FROM spans
    UNION SELECT rank FROM ranks
) WHERE rank >= 0 ORDER BY rank
"""


@dataclass(frozen=True, slots=True)
class Window:
    """Span of time on CLOCK_REALTIME of the reference host, in ns; `since_ns` is where the stall begins, None unknown."""

    begin_ns: int
    end_ns: int
    since_ns: int | None


@dataclass(frozen=True, slots=True)
class Alignment:
    """For each host with a known offset: its clock minus the reference's, and the error bound (ns)."""

    reference: str | None = None
    offsets: Mapping[str, tuple[int, int]] | None = None

    def of(self, host: str | None) -> int:
        """What is taken off the times of a host."""
        return (self.offsets or {}).get(host or "", (0, 0))[0]

    def of_clock(self, clock: str) -> int:
        """The same of a clock that is named by its host, `realtime of gpu-017`."""
        return next((self.of(word) for word in clock.split() if word in (self.offsets or {})), 0)

    def said(self, host: str | None) -> str:
        """How far the times of a host can be trusted beside those of others."""
        if host is not None and host == self.reference:
            return "the reference clock"
        if host is None or host not in (self.offsets or {}):
            return "not aligned: no offset of its clock is known"
        return f"aligned to {self.reference} +-{times.duration((self.offsets or {})[host][1])}"


def alignment(connection: DuckDBPyConnection) -> Alignment:
    """Offsets between hosts, as the case has them."""
    rows = clock_offsets(connection)
    known = {row.host: (row.offset_ns, row.bound_ns or 0) for row in rows}
    return Alignment(rows[0].reference, known) if rows else Alignment()


def window(connection: DuckDBPyConnection, verdict: Verdict, clocks: Alignment, before_ns: int, after_ns: int) -> Window | None:
    """From `before_ns` before the stall to `after_ns` behind it; the end of the evidence where its begin is not known."""
    ((last,),) = connection.execute(_LAST).fetchall()
    stall = verdict.since if verdict.since and times.is_realtime(verdict.since) else None
    since = stall.time_ns - clocks.of_clock(stall.clock) if stall else None
    if last is None and since is None:
        return None
    anchor = since if since is not None else int(last)
    end = anchor + after_ns if last is None else max(min(int(last), anchor + after_ns), anchor)
    return Window(anchor - before_ns, end, since)


def ranks_shown(connection: DuckDBPyConnection, verdict: Verdict, asked: Collection[int] | None) -> tuple[int, ...]:
    """The ranks that were asked for, else suspects, ranks that wait for them, whom others wait for, and then any."""
    known = [rank for (rank,) in connection.execute(_KNOWN).fetchall()]
    if asked is not None:
        return tuple(rank for rank in known if rank in asked)
    there = set(known)
    order = dict.fromkeys(rank for rank in _by_interest(verdict, known) if rank in there)
    return tuple(sorted(list(order)[:MOST_RANKS]))


def _by_interest(verdict: Verdict, known: list[int]) -> Iterator[int]:
    accused = {rank for suspect in verdict.suspects for rank in suspect.ranks}
    yield from (rank for suspect in verdict.suspects for rank in suspect.ranks[: MOST_RANKS // 2])
    direct = [row for row in verdict.victims if accused & set(row.waits_for)]
    yield from (rank for row in direct for rank in row.ranks[: MOST_RANKS // 2])
    yield from (rank for row in verdict.victims for rank in (*row.waits_for[:4], *row.ranks[:4]))
    yield from known
