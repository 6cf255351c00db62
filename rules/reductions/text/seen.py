"""Of which ranks each kind of evidence is there: what was not looked at everywhere, or only once, rules nothing out.

A rule fires where it sees its fault; it may say that the fault is not there only where it would have seen it. Absence is stated
by all ranks of the job, not by those that happened to leave something.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass

from forensics.case.database import rows_of
from forensics.rules.reductions.calls.positions import Communicators
from forensics.rules.reductions.calls.shim_calls import Calls
from forensics.rules.reductions.interface import reduction
from forensics.rules.reductions.logs.events import LogEvents
from forensics.rules.reductions.ranks.roster import RankFacts, Roster
from forensics.rules.reductions.stacks.samples import StacksByRank

_LOGS = "SELECT DISTINCT rank FROM sources WHERE kind = 'training_log' AND status IN ('ok', 'partial') AND rank IS NOT NULL"
# Samplers that write no lock of the interpreter leave it open.
_LOCKS = """
SELECT rank FROM stacks WHERE NOT coalesce(is_child, false) AND owns_gil IS NOT NULL AND rank IS NOT NULL
GROUP BY rank HAVING count(DISTINCT sample) > 1
"""


@dataclass(frozen=True, slots=True)
class Seen:
    """Ranks by what is known of them; `is_whole` says that the size of the job is known.

    `stacks` left a stack of the main thread and `sampled` several; `locks` are those whose samples tell who held the
    interpreter lock. `recorded` are ranks whose record is whole, `logged` those with a log, `timed` those of which several
    samples tell the use of a CPU. `grouped` says that of every communicator in use all members' positions are known to the end,
    `finished` that the record tells of every call whether it has: shim logs do so between hosts only.
    """

    ranks: frozenset[int]
    is_whole: bool
    stacks: frozenset[int]
    sampled: frozenset[int]
    locks: frozenset[int]
    recorded: frozenset[int]
    logged: frozenset[int]
    timed: frozenset[int]
    grouped: bool
    finished: bool

    def all_in(self, found: Collection[int]) -> bool:
        """Whether these are all ranks of a job whose size is known."""
        return self.is_whole and bool(self.ranks) and self.ranks <= frozenset(found)

    @property
    def calls_of_all(self) -> bool:
        """Whether the calls of every rank are known, in every communicator that it uses."""
        return bool(self.ranks) and self.grouped and self.ranks <= self.recorded

    @property
    def ends_of_all(self) -> bool:
        """Whether it is also known of each call whether it has ended."""
        return self.calls_of_all and self.finished


def _is_whole(known: RankFacts) -> bool:
    """Whether all calls of a rank are in its record."""
    return known.has_recorder and not (known.recorder_damaged or known.calls_unrecorded)


@reduction
def seen(calls: Calls, roster: Roster, stacks: StacksByRank, groups: Communicators, events: LogEvents) -> Seen:
    """Count by rank."""
    connection = calls.connection
    facts = roster.ranks
    used = [group for group in groups if group.positions]
    logs = {rank for (rank,) in connection.execute(_LOGS).fetchall()}
    return Seen(
        ranks=frozenset(facts),
        is_whole=roster.world_size is not None,
        stacks=frozenset(rank for rank, found in stacks.items() if found.latest),
        sampled=frozenset(rank for rank, found in stacks.items() if len(found.main) > 1),
        locks=frozenset(rank for (rank,) in rows_of(connection, "stacks", _LOCKS)),
        recorded=frozenset(rank for rank, known in facts.items() if _is_whole(known)),
        logged=frozenset(logs | events.by_rank.keys()),
        timed=frozenset(rank for rank, known in facts.items() if known.cpu_share is not None),
        grouped=bool(used) and all(set(group.members) <= group.positions.keys() - group.cut for group in used),
        finished=not calls.from_shim,
    )
