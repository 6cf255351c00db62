"""Ranks of which a record of calls is left, and the launcher's log says that they died of themselves.

A log is often written on after the record was made, and may be of another run; whoever ends a job that hangs kills ranks that
wait. So it is believed of a rank that nobody looked at, that had not made a call in which others of its communicator are, and
in whose job nobody had given up before; not where others came out of a call that it had not made: the job moved on after the
record was made.
"""

from __future__ import annotations

from dataclasses import replace

from forensics.rules.reductions.calls.shim_calls import Calls
from forensics.rules.reductions.logs.log_evidence import Logged, ended
from forensics.rules.reductions.ranks.roster import Roster

_BEHIND = """
WITH reached AS (
    SELECT communicator, rank, max(sequence) AS last, max(sequence) FILTER (
        state = 'done' AND regexp_matches(kind, 'all_?reduce|all_?gather|reduce_?scatter|all_?to_?all|barrier')
    ) AS met
    FROM {calls} WHERE communicator IS NOT NULL AND sequence IS NOT NULL AND NOT coalesce(is_p2p, false) GROUP BY ALL
)
SELECT own.rank FROM reached own JOIN reached other USING (communicator) WHERE list_contains($ranks, own.rank)
GROUP BY own.rank HAVING bool_or(other.last > own.last) AND NOT coalesce(bool_or(other.met > own.last), false)
"""


def with_killed(calls: Calls, roster: Roster, heard: Logged) -> Roster:
    """The roster with these ranks as their launcher saw them end."""
    if heard.stalled or heard.cancels:
        return roster
    ends = {end.rank: end for end in heard.first_ends if end.by_itself and _is_unseen(roster, end.rank)}
    if not ends:
        return roster
    found = calls.connection.execute(_BEHIND.format(calls=calls.table), {"ranks": sorted(ends)}).fetchall()
    return replace(roster, ranks={**roster.ranks, **{rank: ended(roster.rank(rank), ends[rank], None) for (rank,) in found}})


def _is_unseen(roster: Roster, rank: int) -> bool:
    """Whether there is no more of a rank of the job than a record of its calls."""
    facts = roster.ranks.get(rank)
    return facts is not None and not (facts.state or facts.has_stack or facts.sampled)
