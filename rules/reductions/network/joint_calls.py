"""SQL for collectives whose members are all recorded: the time of the member that came last is that of the transfer.

Who comes last is in a call only for as long as it takes, on its own clock (Mycroft section 7.1).
"""

from __future__ import annotations

from dataclasses import dataclass

from duckdb import DuckDBPyConnection

from forensics.rules.reductions.arrivals.arrivals import JOINT
from forensics.rules.reductions.calls.group_times import has_durations, joined_group_times
from forensics.rules.reductions.interface import reduction

_OF_RECORDERS = "family = 'recorder' AND backend <> 'gloo' AND rank IS NOT NULL AND communicator IS NOT NULL"
JOINT_CALLS = f"""
timed AS (
    SELECT o.rank, o.communicator, o.kind, o.sequence, o.source_id, o.locator, o.enqueued_ns,
           coalesce(o.input_sizes, o.output_sizes, CAST(o.count AS VARCHAR), '') AS sizes,
           CASE WHEN o.group_call IS NULL THEN o.duration_ns ELSE g.took_ns END AS took
    FROM (
        SELECT * FROM ordered_call WHERE {_OF_RECORDERS} AND state = 'done' AND sequence IS NOT NULL AND NOT closes
        AND NOT coalesce(is_p2p, false) AND ltrim(kind, '_') IN {JOINT}
    ) o {joined_group_times("o", _OF_RECORDERS)}
), size AS (
    SELECT communicator, count(*) AS members, list(rank ORDER BY rank) AS ranks FROM members GROUP BY communicator
), calls AS (
    SELECT t.communicator, t.kind, t.sizes, t.sequence, any_value(z.ranks) AS ranks, min(t.took) AS took,
           arg_min(t.enqueued_ns, t.rank) AS enqueued_ns, arg_min(t.source_id, t.rank) AS source_id,
           arg_min(t.locator, t.rank) AS locator
    FROM timed t JOIN size z USING (communicator) WHERE t.took IS NOT NULL
    GROUP BY t.communicator, t.kind, t.sizes, t.sequence
    HAVING count(DISTINCT t.rank) = any_value(z.members) AND any_value(z.members) > 1
)
"""
"""Two parts of a WITH clause and `calls`: communicator, kind, sizes, sequence, ranks, `took` (ns, of the member that came
last), and of the first rank `enqueued_ns`, `source_id` and `locator`."""


@dataclass(frozen=True, slots=True)
class TimedCalls:
    """Whether any call has a time inside; false where none has."""

    is_known: bool = False

    def __bool__(self) -> bool:
        return self.is_known


@reduction
def timed_calls(connection: DuckDBPyConnection) -> TimedCalls:
    """Ask the calls of all sources."""
    return TimedCalls(has_durations(connection))
