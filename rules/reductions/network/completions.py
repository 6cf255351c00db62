"""The rhythm in which the operations of sampled ranks complete: what the moment at which a job went wrong is read from.

A fault anywhere reaches every data-parallel group within a step, so one rank of each shows it (Mycroft section 4.3: "samples at
least one rank per DP group"; its cap of ten ranks is for watching, where each costs bandwidth all day). Only the newest
operations of these ranks are read: the cost is that of their number, not of the history.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import NewType

import numpy as np
import numpy.typing as npt
from duckdb import DuckDBPyConnection

from forensics.rules.reductions.interface import reduction
from forensics.rules.reductions.pipeline.axes import Axis
from forensics.rules.reductions.pipeline.layout import Layout
from forensics.rules.reductions.ranks.shim_logs import ChunkLogs, ShimLogs, last_beats

Ints = npt.NDArray[np.int64]

# Without data-parallel groups, ranks at equal distances.
_OTHERWISE = 16
# Newest operations of one communicator of one rank that are read.
_MOST_OPERATIONS = 4096
# Operations of a step; steps that must be seen to speak of a rhythm, and that are looked at.
_MOST_A_STEP, _LEAST_STEPS, _MOST_STEPS = 256, 3, 512
# A step of more operations must repeat itself so much better than one of fewer.
_MUCH_BETTER = 0.5
# Of the usual time between operations: what differs more from step to step has no rhythm.
_MOST_DISORDER, _NO_DISORDER = 0.25, 0.05


@dataclass(frozen=True, slots=True)
class Rhythm:
    """Completions of one communicator on one rank, step by step; ns on the clock of its host.

    `ends` are the moments at which steps of `operations` operations were complete, `intervals` the times from one to the next,
    `busy` how long the operations of each took in all, `bytes` what was sent in one (median). `moved_ns` is when a chunk of any
    communicator of the rank moved last, `until_ns` the last sign of life of its log.
    """

    rank: int
    host: str | None
    communicator: str
    operations: int
    ends: Ints
    intervals: Ints
    busy: Ints
    bytes: int
    moved_ns: int
    until_ns: int
    source: str


Rhythms = NewType("Rhythms", tuple[Rhythm, ...])
"""Completions of sampled ranks, where these recur."""

_COMPLETED = """
WITH operations AS (
    SELECT source_id, rank, communicator, sequence, min(start_ns) AS start_ns, max(end_ns) AS end_ns,
           CAST(least(sum(bytes) FILTER (direction = 'send'), 1::BIGINT << 61) AS BIGINT) AS bytes, min(locator) AS locator
    FROM flows WHERE list_contains($sources, source_id) AND start_ns IS NOT NULL AND communicator IS NOT NULL
    GROUP BY source_id, rank, communicator, sequence HAVING bool_and(end_ns IS NOT NULL)
    QUALIFY row_number() OVER (PARTITION BY source_id, communicator ORDER BY sequence DESC) <= $most
)
SELECT o.rank, communicator, list(start_ns ORDER BY end_ns, sequence), list(end_ns ORDER BY end_ns, sequence),
       list(coalesce(o.bytes, 0) ORDER BY end_ns, sequence), any_value(s.path) || '#entry=' || arg_max(locator, sequence)
FROM operations o JOIN sources s USING (source_id) GROUP BY o.source_id, o.rank, communicator ORDER BY o.rank, communicator
"""


@reduction
def rhythms(connection: DuckDBPyConnection, logs: ShimLogs, seen: ChunkLogs, layout: Layout) -> Rhythms:
    """Read the completions of one rank of each data-parallel group."""
    live = {rank for rank in seen if not logs[rank].ended}
    ranks = sampled(live, [layout.members[label] for label in layout.along(Axis.DATA)])
    if not ranks:
        return Rhythms(())
    asked = {"sources": sorted(logs[rank].source_id for rank in ranks), "most": _MOST_OPERATIONS}
    until = last_beats(logs.values())
    found = []
    for rank, communicator, *columns, source in connection.execute(_COMPLETED, asked).fetchall():
        times, log = np.array(columns, np.int64), logs[rank]
        if operations := step_of(np.diff(times[1])):
            moved = max(log.chunk_ns or 0, int(times[1, -1]))
            steps = _steps(times, operations)
            found.append(Rhythm(rank, log.host, communicator, operations, *steps, moved, until[rank], source))
    return Rhythms(tuple(found))


def sampled(seen: Collection[int], groups: Sequence[Sequence[int]]) -> tuple[int, ...]:
    """One rank with a log of each data-parallel group; ranks at equal distances where no group is known."""
    first = {next((rank for rank in members if rank in seen), None) for members in groups} - {None}
    ordered = sorted(seen)
    step = max(1, -(-len(ordered) // _OTHERWISE))
    return tuple(sorted(rank for rank in first if rank is not None)) or tuple(ordered[::step])


def step_of(gaps: Ints) -> int:
    """After how many operations the times between completions repeat themselves best; 0 where they do not, or are too few.

    Differences a step apart are small whatever the level: a job that became slower on the way has a rhythm all the same.
    """
    longest = min(_MOST_A_STEP, len(gaps) // _LEAST_STEPS)
    if longest < 1:
        return 0
    apart = np.array([np.abs(gaps[each:] - gaps[:-each]).mean() for each in range(1, longest + 1)])
    best = float(apart.min())
    usual = float(gaps.mean())
    if best > _MOST_DISORDER * usual:
        return 0
    # Twice the step repeats itself as well: the least that is about as good.
    return int(np.flatnonzero(apart <= max(best / _MUCH_BETTER, _NO_DISORDER * usual))[0]) + 1


def _steps(times: Ints, operations: int) -> tuple[Ints, Ints, Ints, int]:
    """Ends of steps counted from the newest back, intervals between them, time in operations, and bytes of a step."""
    places = np.arange(times.shape[1] - 1, -1, -operations)[: _MOST_STEPS + 1][::-1]
    ends = times[1][places]
    total = np.concatenate(([0], np.cumsum(times[1] - times[0])))
    sent = np.concatenate(([0], np.cumsum(times[2])))
    busy, each = np.diff(total[places + 1]), np.diff(sent[places + 1])
    return ends[1:], np.diff(ends), busy, int(np.median(each))
