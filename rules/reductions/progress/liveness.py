"""Does the job still move? Progress between two dumps, silence against its own rhythm, stacks that stay where they are.

Dumps are not a snapshot: a healthy moving job looks like a hang in a single set of dumps. A job is called stalled only when its
silence is longer than twice a pause that it has already made at least twice (VenusTrace section 4.2: n = 2 times the expected
time), or when two captures of the same rank found it at the same place.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import NewType

from duckdb import DuckDBPyConnection

from forensics.case.database import rows_of
from forensics.rules.reductions.progress.rhythm import Rhythm
from forensics.rules.reductions.progress.stack_times import not_of_one_hang
from forensics.rules.reductions.ranks.roster import Roster
from forensics.rules.reductions.stacks.samples import Stacks
from forensics.rules.reductions.waits.graph import Wait
from forensics.rules.reductions.waits.point_to_point import overtaken

# Times the second longest pause on record (docs/decisions/0008-when-a-job-is-stuck.md).
SILENCE_FACTOR = 2.0
SilenceFactor = NewType("SilenceFactor", float)
"""How many of its own recurring pauses a silence must last to count as a stall."""
# A call that failed is recorded as done too (gloo), so that one finished call more than a member has issued proves nothing.
LEAST_LEAD = 2
# Saving, compiling, or a busy host holds up a sound job for as long as this without any rhythm.
LEAST_SILENCE_NS = 2_000_000_000


class Motion(StrEnum):
    """What the captures say of the whole job."""

    MOVING = "moving"
    STALLED = "stalled"
    TOO_EARLY = "too_early"
    UNSEEN = "unseen"


@dataclass(frozen=True, slots=True)
class Liveness:
    """The decision with its reason.

    `advanced` are ranks whose recorder moved between two dumps, `frozen` those whose recorder did not. `silence_ns` is the time
    between the job's newest operation and the capture, `pause_ns` the second longest pause between operations before that.
    `progress` is what another source shows of a job of which this alone cannot tell whether it moves.
    """

    motion: Motion
    reason: str
    advanced: tuple[int, ...] = ()
    frozen: tuple[int, ...] = ()
    silence_ns: int | None = None
    pause_ns: int | None = None
    source: str | None = None
    progress: str | None = None

    @property
    def shown(self) -> bool:
        """Whether something shows that it moves."""
        return self.motion is Motion.MOVING or self.progress is not None

    @property
    def may_move(self) -> bool:
        """Whether it moves, or it is too early to say: what is slow in a job that stands still is another question."""
        return self.motion in (Motion.MOVING, Motion.TOO_EARLY)


# A recorder that is asked for active entries alone shows no call that is done: such a dump is held against its like only.
_PROGRESS = """
WITH counted AS (
    SELECT rank, snapshot, max(record_id) AS newest, count(*) FILTER (state = 'done') AS done
    FROM operations WHERE rank IS NOT NULL GROUP BY rank, snapshot
), ends AS (
    SELECT rank, done > 0 AS whole, min(snapshot) AS first, max(snapshot) AS last
    FROM counted GROUP BY ALL HAVING min(snapshot) < max(snapshot)
)
SELECT e.rank, (a.newest, a.done) <> (b.newest, b.done)
FROM ends e JOIN counted a ON a.rank = e.rank AND a.snapshot = e.first
            JOIN counted b ON b.rank = e.rank AND b.snapshot = e.last
ORDER BY e.rank, e.whole
"""

_DUMPS = "SELECT source_id, captured_ns, path FROM sources"

_UNDATED = "SELECT rank FROM moments WHERE NOT agreed AND NOT is_child AND proof IS NULL ORDER BY rank"

# Nobody comes out of these before all members went in.
_ALL_TO_ALL_MEMBERS = (
    "('all_reduce', 'all_gather', 'all_gather_base', 'all_gather_single', 'all_gather_into_tensor', 'reduce_scatter', "
    "'reduce_scatter_base', 'reduce_scatter_single', 'reduce_scatter_tensor', 'all_to_all', 'all_to_all_single', 'barrier')"
)
# Sequence numbers of collectives that need everybody, and the counters of dumps that hold active entries only.
_MOMENTS = f"""
WITH calls AS (
    SELECT o.communicator, o.rank, o.sequence, o.state = 'done' AS done, s.status <> 'partial' AS whole,
           coalesce(o.is_p2p, false) AS is_p2p, NOT is_p2p AND ltrim(o.kind, '_') IN {_ALL_TO_ALL_MEMBERS} AS joint
    FROM latest_call o JOIN sources s USING (source_id)
    WHERE o.communicator IS NOT NULL AND o.sequence >= 0
), of_rank AS (
    SELECT communicator, rank, max(sequence) FILTER (NOT is_p2p) AS issued, max(sequence) FILTER (done AND joint) AS finished,
           bool_and(whole) AS whole, bool_and(joint) AS joint
    FROM calls GROUP BY communicator, rank
), joint AS (
    SELECT communicator FROM of_rank GROUP BY communicator HAVING bool_and(joint)
), reached AS (
    SELECT communicator, rank, issued, finished FROM of_rank WHERE whole
    UNION ALL
    SELECT m.communicator, v.rank, v.last_enqueued, v.last_completed
    FROM group_views v JOIN communicators c ON c.pg_name = v.pg_name AND c.backend <> 'gloo'
    JOIN members m ON m.communicator = c.communicator AND m.rank = v.rank JOIN joint ON joint.communicator = m.communicator
    WHERE v.last_enqueued >= 0
), furthest AS (
    SELECT communicator, rank, max(issued) AS issued, max(finished) AS finished FROM reached GROUP BY communicator, rank
)
SELECT communicator, max(finished), min(issued), arg_max(rank, finished ORDER BY rank), arg_min(rank, issued ORDER BY rank)
FROM furthest GROUP BY communicator HAVING max(finished) >= min(issued) + {LEAST_LEAD} ORDER BY communicator LIMIT 1
"""


def liveness(
    connection: DuckDBPyConnection,
    roster: Roster,
    stacks: Mapping[int, Stacks],
    rhythm: Rhythm,
    factor: float = SILENCE_FACTOR,
    before_ns: int = 0,
    waits: Sequence[Wait] = (),
) -> Liveness:
    """Decide whether the job moves, `waits` being those of its ranks; `UNSEEN` when one capture was made and nothing dates it.

    `factor` is how many of its own recurring pauses a silence must last to count as a stall, or of `before_ns`, which the calls
    that ranks are in took when they were made at the same place before.
    """
    progress = recorders_moved(connection)
    captured, newest, source = _newest(connection, rhythm)
    pause = max(rhythm.pauses.values(), default=None)
    silence = captured - newest if captured is not None and newest is not None else None
    advanced = tuple(rank for rank, moved in progress.items() if moved)
    frozen = tuple(rank for rank, moved in progress.items() if not moved)
    recorders = sum(facts.has_recorder for facts in roster.ranks.values())
    motion, reason = _recorded(advanced, frozen, recorders, silence, pause, factor, before_ns)
    if motion is Motion.UNSEEN:
        motion, reason = _moments(connection) or _of_messages(waits) or _sampled(roster, stacks)
    if motion is Motion.UNSEEN:
        motion, reason = _undated(connection, stacks) or _by_times(connection) or (motion, reason)
    elif motion is Motion.TOO_EARLY and pause is not None and pause < LEAST_SILENCE_NS and (passed := _passed(stacks)):
        motion, reason = Motion.MOVING, f"{reason}; {passed}"
    return Liveness(motion, reason, advanced, frozen, silence, pause, source)


def _newest(connection: DuckDBPyConnection, rhythm: Rhythm) -> tuple[int | None, int | None, str | None]:
    """When the newest artefact with calls was captured, the newest call, and the artefact that holds it."""
    newest = rhythm.newest_of_sources
    rows = rows_of(connection, "sources", _DUMPS) if newest else []
    dumps = [(newest[each], captured, path) for each, captured, path in rows if each in newest]
    if not dumps:
        return None, None, None
    at_ns = max(at_ns for at_ns, *_ in dumps)
    captured = max((captured for _, captured, _ in dumps if captured is not None), default=None)
    return captured, at_ns, min(path for when, _, path in dumps if when == at_ns)


def recorders_moved(connection: DuckDBPyConnection) -> dict[int, bool]:
    """Whether the recorder of each rank that was dumped at least twice advanced between its first and its last dump."""
    return dict(rows_of(connection, "operations", _PROGRESS))


def _recorded(
    advanced: tuple[int, ...],
    frozen: tuple[int, ...],
    recorders: int,
    silence: int | None,
    pause: int | None,
    factor: float,
    before: int,
) -> tuple[Motion, str]:
    if len(advanced) == recorders and not frozen and advanced:
        return Motion.MOVING, f"all {len(advanced)} recorders advanced between two dumps"
    if silence is not None and pause is None and silence < LEAST_SILENCE_NS:
        return Motion.TOO_EARLY, f"no new operation for {seconds(silence)}, and too few before it to know the usual gap"
    if silence is not None and pause is not None:
        text = f"no new operation for {seconds(silence)}; longest recurring gap {seconds(pause)}"
        if max(factor * pause, LEAST_SILENCE_NS) <= silence <= factor * before:
            return Motion.TOO_EARLY, f"{text}; the calls that ranks are in took {seconds(before)} at the same place before"
        if silence < max(factor * pause, LEAST_SILENCE_NS):
            return Motion.TOO_EARLY, text
        return Motion.STALLED, text
    if frozen and not advanced:
        return Motion.STALLED, f"none of {len(frozen)} recorders advanced between two dumps"
    if frozen:
        return Motion.STALLED, f"{len(frozen)} of {len(frozen) + len(advanced)} recorders did not advance between two dumps"
    return Motion.UNSEEN, "one undated dump a rank cannot show motion"


def _moments(connection: DuckDBPyConnection) -> tuple[Motion, str] | None:
    """Dumps that cannot be of one moment: a rank has finished calls that need a member whose dump does not have them yet."""
    for communicator, finished, issued, first, last in rows_of(connection, "operations", _MOMENTS):
        return Motion.TOO_EARLY, (
            f"rank {first} has finished call {finished} of {communicator}, which rank {last} had not issued when it was dumped "
            f"(its newest is {issued}): the job moved between the dumps"
        )
    return None


def _of_messages(waits: Sequence[Wait]) -> tuple[Motion, str] | None:
    """Dumps that cannot be of one moment either: messages between two ranks pass one after the other."""
    found = overtaken(waits)
    if found is None:
        return None
    behind = f"rank {found.rank} had queued behind its {found.behind.sequence} when it was dumped"
    message = f"a message of {found.behind.communicator} that {behind}"
    return Motion.TOO_EARLY, f"rank {found.finished_by} has finished {message}: the job moved between the dumps"


def _by_times(connection: DuckDBPyConnection) -> tuple[Motion, str] | None:
    reason = not_of_one_hang(connection)
    return (Motion.TOO_EARLY, reason) if reason else None


def _undated(connection: DuckDBPyConnection, stacks: Mapping[int, Stacks]) -> tuple[Motion, str] | None:
    """Stacks that differ although nothing dates them: ranks that enter or leave communication may be of a job that moves."""
    differ = [rank for (rank,) in rows_of(connection, "moments", _UNDATED) if rank in stacks and stacks[rank].communicated]
    if not differ:
        return None
    return Motion.TOO_EARLY, f"stacks of {len(differ)} ranks show different places, and when they were taken is unknown"


def _sampled(roster: Roster, stacks: Mapping[int, Stacks]) -> tuple[Motion, str]:
    """Judge from stacks alone: a rank that entered or left communication between samples shows that the job moves."""
    several = {rank: found for rank, found in stacks.items() if len(found.main) > 1}
    moved = [rank for rank, found in several.items() if found.moved]
    passing = [rank for rank in moved if several[rank].communicated]
    still = [rank for rank in several if rank not in moved and not (roster.rank(rank).switches or 0)]
    if passing and len(moved) == len(several):
        return Motion.MOVING, f"all {len(moved)} ranks were at different places in their stack samples"
    if passing:
        return Motion.TOO_EARLY, passing_text(len(passing))
    if any(several[rank].communicating or several[rank].in_store for rank in still):
        return Motion.STALLED, f"{len(still)} ranks stayed at the same place over all stack samples"
    if several:
        return Motion.UNSEEN, "repeated stacks do not show whether the job moves"
    taken = any(facts.has_stack or facts.has_recorder for facts in roster.ranks.values())
    return Motion.UNSEEN, "single capture" if taken else "neither stacks nor dumps"


def passing_text(count: int) -> str:
    """How many ranks stack samples found entering or leaving communication."""
    return f"{count} rank{'' if count == 1 else 's'} entered or left communication between stack samples"


def _passed(stacks: Mapping[int, Stacks]) -> str | None:
    """Most ranks were elsewhere when looked at again, some in communication: what the recorder dates as recent goes on.

    Looks lie seconds apart. When a rank stops, the others come to stand at what they share with it within their usual pause.
    """
    several = [found for found in stacks.values() if len(found.main) > 1]
    moved = [found for found in several if found.moved_on]
    if 2 * len(moved) <= len(several) or not any(found.communicated for found in moved):
        return None
    return f"{len(moved)} of {len(several)} ranks were elsewhere at the next capture"


def seconds(ns: int) -> str:
    """A time in words; one that clocks read a moment apart make negative is none."""
    return f"{max(ns, 0) / 1e9:.1f} s"
