"""What hosts that compute themselves did of each step, by traces: all but the time in which they waited in calls.

A rank waits where a call of a process group is open and no operator runs on the thread of its steps: what was sent may be
under way while the rank computes. Work is what is left of the step, on the clock of its own rank.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from duckdb import DuckDBPyConnection

from forensics.rules.reductions.frontier.accounting import Floats
from forensics.rules.reductions.steps.records import Ints

_NEWEST = """
WITH newest AS (
    SELECT rank, arg_max(source_id, (end_ns, source_id)) AS source_id FROM spans
    WHERE category = 'computation' AND rank IS NOT NULL GROUP BY rank
)
"""
_SPANS = f"""
{_NEWEST}
SELECT s.rank, if(s.category = 'collective', if(regexp_matches(s.name, 'send|recv'), 'message', 'call'), s.name),
       list(s.begin_ns ORDER BY s.begin_ns), list(s.end_ns ORDER BY s.begin_ns)
FROM spans s JOIN newest USING (rank, source_id) WHERE s.category IN ('computation', 'collective') AND s.end_ns IS NOT NULL
GROUP BY ALL ORDER BY ALL
"""
_STEPS = f"""
{_NEWEST}
SELECT t.rank, f.path, list(t.step ORDER BY t.step), list(t.begin_ns ORDER BY t.step), list(t.wall_ns ORDER BY t.step)
FROM steps t JOIN newest USING (rank, source_id) JOIN sources f USING (source_id)
WHERE t.step IS NOT NULL AND t.begin_ns IS NOT NULL AND t.wall_ns IS NOT NULL GROUP BY t.rank, f.path ORDER BY t.rank
"""
_OPERATORS = f"""
{_NEWEST}
SELECT n.rank, max(try_cast(j.value AS BIGINT)) FROM job_config j JOIN newest n USING (source_id)
WHERE j.key = 'trace.operators' GROUP BY n.rank
"""


@dataclass(frozen=True, slots=True, eq=False)
class HostPasses:
    """Steps of one rank and what it did in each, in ns, and how many `messages` and `operators` its trace has.

    `forward` are operators that are of no gradient. `work` is all that it did not wait, loading of data as well.
    """

    steps: Ints
    wall: Floats
    forward: Floats
    backward: Floats
    work: Floats
    messages: int
    operators: int
    path: str


def host_passes(connection: DuckDBPyConnection) -> Mapping[int, HostPasses]:
    """Ranks that exchange messages, whose traces have operators of the host and no device."""
    spans: dict[int, dict[str, _Cover]] = defaultdict(dict)
    counts: dict[int, int] = {}
    for rank, name, begins, ends in connection.execute(_SPANS).fetchall():
        spans[rank][name] = _Cover.of([(begins, ends)])
        if name == "message":
            counts[rank] = len(begins)
    ran = dict(connection.execute(_OPERATORS).fetchall())
    return {
        rank: _passes(
            spans[rank], (np.array(steps), np.array(begins), np.array(walls)), (counts[rank], ran.get(rank) or 0), path
        )
        for rank, path, steps, begins, walls in connection.execute(_STEPS).fetchall()
        if rank in counts
    }


@dataclass(frozen=True, slots=True, eq=False)
class _Cover:
    """Time that intervals cover together: begins and ends without overlap, in order."""

    begins: Ints
    ends: Ints

    @staticmethod
    def of(parts: Iterable[tuple[Sequence[int] | Ints, Sequence[int] | Ints]]) -> _Cover:
        every = [np.array(pair, np.int64) for pair in parts]
        joined = np.concatenate([*every, np.empty((2, 0), np.int64)], axis=1)
        begins, ends = joined[:, np.argsort(joined[0], kind="stable")]
        reached = np.maximum.accumulate(ends) if len(ends) else ends
        is_first = np.concatenate(([True], begins[1:] > reached[:-1]))[: len(begins)]
        is_last = np.concatenate((is_first[1:], [True]))[: len(begins)]
        return _Cover(begins[is_first], reached[is_last])

    def __or__(self, other: _Cover) -> _Cover:
        return _Cover.of([(self.begins, self.ends), (other.begins, other.ends)])

    def within(self, begins: Ints, ends: Ints) -> Floats:
        """ns that are covered between each begin and end."""
        return self._until(ends) - self._until(begins)

    def _until(self, moments: Ints) -> Floats:
        total = np.concatenate(([0], np.cumsum(self.ends - self.begins)))
        place = np.searchsorted(self.begins, moments, side="right")
        if not len(self.begins):
            return np.zeros(len(moments))
        over = np.maximum(self.ends[place - 1] - moments, 0)
        return np.where(place > 0, total[place] - over, 0).astype(np.float64)


def _passes(spans: Mapping[str, _Cover], marks: tuple[Ints, Ints, Ints], many: tuple[int, int], path: str) -> HostPasses:
    """`marks` are the numbers, begins and lengths of steps, `many` the numbers of messages and operators."""
    steps, begins, walls = marks
    nothing = _Cover.of([])
    waits = spans.get("message", nothing) | spans.get("call", nothing)
    gradients = spans.get("gradients", nothing)
    computed = spans.get("operators", nothing) | gradients
    times = begins, begins + walls
    backward, both = gradients.within(*times), computed.within(*times)
    idle = (waits | computed).within(*times) - both
    return HostPasses(steps, walls.astype(np.float64), both - backward, backward, walls - idle, *many, path)
