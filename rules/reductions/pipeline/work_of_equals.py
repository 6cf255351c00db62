"""Whether a rank stands out of those that reduce or gather the same with it, where members of other groups need as much."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping

from duckdb import DuckDBPyConnection

from forensics.case.database import rows_of
from forensics.rules.reductions.calls.semantics import is_meeting
from forensics.rules.reductions.ranks.processor_time import MostUsed, ProcessorTimes
from forensics.rules.reductions.text.evidence_text import ranks_text

ALIKE = 1.15
"""Times the least that a member of a group used: 1.09 at most in sound jobs of four ranks."""

MeetingGroups = tuple[frozenset[int], ...]
"""Ranks of each communicator of a part of the job in which all that is recorded, messages aside, needs every member."""

_CALLED = """
SELECT communicator, rank, list(DISTINCT kind) FROM operations
WHERE communicator IS NOT NULL AND NOT coalesce(is_p2p, false) AND kind IS NOT NULL GROUP BY ALL ORDER BY ALL
"""


def meeting_groups(connection: DuckDBPyConnection) -> MeetingGroups:
    """Those with two ranks or more, without the one of all; members are who called something in it."""
    kinds, ranks = defaultdict[str, set[str]](set), defaultdict[str, set[int]](set)
    for label, rank, called in rows_of(connection, "operations", _CALLED):
        kinds[label].update(called)
        ranks[label].add(rank)
    every = set().union(*ranks.values())
    return tuple({frozenset(ranks[each]) for each in ranks if 1 < len(ranks[each]) < len(every) and is_meeting(kinds[each])})


def apart_from_equals(found: MostUsed, times: ProcessorTimes, groups: MeetingGroups, least_ratio: float) -> str | None:
    """What shows that its work is unusual; None where nothing does.

    Stages of a pipeline do unlike work, and so may the members of a group that joins several. Those who share one with the rank
    must all have needed less; and in every group without it, of which there must be one, members need as much as each other.
    """
    used = dict(zip(times.ranks, times.used_s.sum(axis=1).tolist(), strict=True))
    own = [group for group in groups if found.rank in group]
    equals = frozenset().union(*own) - {found.rank}
    controls = [group for group in groups if group.isdisjoint(equals | {found.rank}) and group <= used.keys()]
    if not equals or not equals <= used.keys() or not controls:
        return None
    most = max(used[rank] for rank in equals)
    widest = max(_spread(group, used) for group in controls)
    if found.used_s < least_ratio * most or widest > ALIKE:
        return None
    return (
        f"{ranks_text(tuple(sorted(equals)))}, in one group with it, used {most:.1f} s at most; "
        f"members of other groups differ by {widest - 1:.0%} at most"
    )


def _spread(group: frozenset[int], used: Mapping[int, float]) -> float:
    """Times the least that its members used, of the most."""
    values = sorted(used[rank] for rank in group)
    return values[-1] / max(values[0], 0.01)
