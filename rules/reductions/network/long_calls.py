"""Collectives that took far longer than usual although all members were there, and the one rank that all of these share.

A member that comes last is in a call only for as long as it takes, on its own clock: so what all members were in for long was
held up inside (Mycroft section 7.1, delay in NCCL's proxy). One such call accuses nobody. Several of different groups that have
one rank in common, while all other calls take what they usually do, are of that rank: its network, or what drives it.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from duckdb import DuckDBPyConnection

from forensics.case.database import rows_of
from forensics.model import Cause, Component, Evidence, Finding
from forensics.rules.reductions.arrivals.arrivals import JOINT
from forensics.rules.reductions.calls.group_times import has_durations, joined_group_times
from forensics.rules.reductions.interface import reduction

# Times what is usual for calls of the communicator of this kind and size, of which there must be so many, and ns more.
_FACTOR, _LEAST_USUAL, _LEAST_NS = 3.0, 8, 100_000_000
# Of all calls alike: what is long more often is another length.
_MOST_PART = 0.25
# Calls, and groups, that must share a rank.
_LEAST_CALLS, _LEAST_GROUPS = 3, 2

_OF_RECORDERS = "family = 'recorder' AND backend <> 'gloo' AND rank IS NOT NULL AND communicator IS NOT NULL"
_LONG = f"""
WITH timed AS (
    SELECT o.rank, o.communicator, o.kind, o.sequence, o.source_id, o.locator,
           coalesce(o.input_sizes, o.output_sizes, CAST(o.count AS VARCHAR), '') AS sizes,
           CASE WHEN o.group_call IS NULL THEN o.duration_ns ELSE g.took_ns END AS took
    FROM (
        SELECT * FROM ordered_call WHERE {_OF_RECORDERS} AND state = 'done' AND sequence IS NOT NULL AND NOT closes
        AND NOT coalesce(is_p2p, false) AND ltrim(kind, '_') IN {JOINT}
    ) o {joined_group_times("o", _OF_RECORDERS)}
), size AS (
    SELECT communicator, count(*) AS members, list(rank ORDER BY rank) AS ranks FROM members GROUP BY communicator
), calls AS (
    SELECT t.communicator, t.kind, t.sizes, any_value(z.ranks) AS ranks, min(t.took) AS took,
           arg_min(t.source_id, t.rank) AS source_id, arg_min(t.locator, t.rank) AS locator
    FROM timed t JOIN size z USING (communicator) WHERE t.took IS NOT NULL
    GROUP BY t.communicator, t.kind, t.sizes, t.sequence
    HAVING count(DISTINCT t.rank) = any_value(z.members) AND any_value(z.members) > 1
), usual AS (
    SELECT communicator, kind, sizes, median(took) AS usual, count(*) AS calls FROM calls GROUP BY ALL
), long AS (
    SELECT * FROM calls JOIN usual USING (communicator, kind, sizes)
    WHERE took >= {_FACTOR} * usual AND took - usual >= {_LEAST_NS} AND calls >= {_LEAST_USUAL}
    QUALIFY count(*) OVER (PARTITION BY communicator, kind, sizes) <= {_MOST_PART} * calls
)
SELECT l.communicator, l.ranks, l.took, l.usual, c.path || '#entry=' || l.locator
FROM long l JOIN sources c ON c.source_id = l.source_id ORDER BY ALL
"""


@dataclass(frozen=True, slots=True)
class LongCall:
    """One collective of `ranks` that took `took_ns` once all were there, `usual_ns` others of its communicator."""

    communicator: str
    ranks: tuple[int, ...]
    took_ns: float
    usual_ns: float
    source: str


@dataclass(frozen=True, slots=True)
class LongCalls:
    """Collectives that took far longer than usual; `rank` is the one that all of them share, where they tell it."""

    found: tuple[LongCall, ...] = ()
    rank: int | None = None

    @property
    def lost_ns(self) -> float:
        """What they took beyond the usual, in all."""
        return sum(each.took_ns - each.usual_ns for each in self.found)


@reduction
def long_calls(connection: DuckDBPyConnection) -> LongCalls:
    """Read the collectives whose members are all recorded, with the time of each on its own clock."""
    rows = rows_of(connection, "operations", _LONG) if has_durations(connection) else []
    found = tuple(LongCall(name, tuple(ranks), float(took), float(usual), path) for name, ranks, took, usual, path in rows)
    return LongCalls(found, _shared(found))


def _shared(found: tuple[LongCall, ...]) -> int | None:
    """The only rank that is in all of several calls of several groups."""
    groups = {each.ranks for each in found}
    if len(found) < _LEAST_CALLS or len(groups) < _LEAST_GROUPS:
        return None
    shared = set[int].intersection(*map(set, groups))
    return shared.pop() if len(shared) == 1 else None


def held_inside(finding: Finding, long: LongCalls) -> Finding:
    """A rank late on its device, which was held up inside calls: whether it computed for longer is not known then."""
    if finding.cause is not Cause.COMPUTE_SLOW or finding.ranks != (long.rank,):
        return finding
    evidence = Evidence(f"{statement(long)}: its device may have waited in calls", long.found[0].source)
    stage = replace(finding.stage, component=Component.UNKNOWN)
    return replace(finding, cause=Cause.UNKNOWN, stage=stage, evidence=(*finding.evidence, evidence))


def statement(long: LongCalls) -> str:
    """How long the calls took, and that one rank has part in all of them."""
    worst = max(long.found, key=lambda call: call.took_ns)
    return (
        f"{len(long.found)} collectives of {len({each.ranks for each in long.found})} groups took up to "
        f"{worst.took_ns / 1e6:.0f} ms once all were there, {worst.usual_ns / 1e6:.0f} ms usually; rank {long.rank} is in all "
        "of them, and no other collective took so long"
    )
