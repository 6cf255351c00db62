"""Counts of NCCL RAS as positions: one communicator for each kind of collective, for RAS counts every kind by itself.

Ranks that launched an operation are taken to wait for those that have not. What is counted is what was launched: a bound, and
no number of another source but of NCCL Inspector, which writes down the same counters when an operation has ended: what one
member finished all have launched, whatever an older report says of them.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import NewType

from duckdb import DuckDBPyConnection

from forensics.case.database import rows_of
from forensics.model import Family
from forensics.rules.reductions.calls.positions import Communicator, CountedPositions, Operation, Position
from forensics.rules.reductions.interface import reduction
from forensics.rules.reductions.ras.report import Ras, RasGroup, RasMember

# Nobody comes out of these before all have launched them.
_FINISHED = """
SELECT ltrim(replace(lower(c.comm_id), '0x', ''), '0'), o.kind, max(o.op_id)
FROM operations o JOIN sources s USING (source_id)
JOIN (SELECT DISTINCT source_id, communicator, comm_id FROM communicator_states) c
    ON c.source_id = o.source_id AND c.communicator = o.pg_name
WHERE s.kind = 'nccl_inspector' AND o.kind IN ('all_reduce', 'all_gather', 'reduce_scatter') AND o.op_id IS NOT NULL
GROUP BY ALL
"""

FinishedCounts = NewType("FinishedCounts", Mapping[tuple[str, str], int])
"""The most that any member of a communicator finished of a kind, by the digits of its hash that are written, and the kind."""

_DIGITS = 14
"""NCCL Inspector writes no more digits of a hash."""

_SETTLED = frozenset({None, "running", "dead", "unresponsive"})


@reduction
def finished_counts(connection: DuckDBPyConnection) -> FinishedCounts:
    """Operations that NCCL Inspector saw end."""
    return FinishedCounts(
        {(label, kind): number for label, kind, number in rows_of(connection, "communicator_states", _FINISHED)}
    )


@reduction
def counted_positions(ras: Ras, finished: FinishedCounts) -> CountedPositions:
    """The counts of every communicator that can be compared, as long as some process has a rank."""
    return CountedPositions(tuple(_counted(ras, finished)))


def _counted(ras: Ras, finished: FinishedCounts) -> Iterator[Communicator]:
    for group in ras.groups if ras.ranks else ():
        if not is_settled(group) or any(is_mixed(group, member) for member in group.members):
            continue
        for kind in group.usual:
            yield _of_kind(ras, group, kind, finished.get((group.communicator.lstrip("0")[:_DIGITS], kind), 0))


def is_settled(group: RasGroup) -> bool:
    """Whether nobody creates, leaves or aborts the communicator: ranks that do differ for good reasons."""
    return all(member.status in _SETTLED for member in group.members)


def is_mixed(group: RasGroup, member: RasMember) -> bool:
    """Whether it launched more of one kind and less of another than most: another operation, not a late one."""
    signs = {member.counts[kind] > usual for kind, usual in group.usual.items() if member.counts.get(kind, usual) != usual}
    return len(signs) == 2


def label_of(group: RasGroup, kind: str) -> str:
    """The label of the counts of one kind."""
    return group.communicator if len(group.usual) == 1 else f"{group.communicator}/{kind}"


def _of_kind(ras: Ras, group: RasGroup, kind: str, finished: int) -> Communicator:
    """`finished` of the kind have ended on some member: nobody launched less."""
    named = {member.process: member for member in group.members if member.process and kind in member.counts}
    counts = {process: max(member.counts[kind], finished) for process, member in named.items()}
    unnamed = {f"{label_of(group, kind)}#{count}": max(count, finished) for folded, count in group.unnamed if folded == kind}
    least = min((*counts.values(), *unnamed.values()), default=0)
    found = {
        ras.ranks[process]: _position(ras.ranks[process], kind, counts[process], least, member.source)
        for process, member in named.items()
        if process in ras.ranks
    }
    others = {":".join(map(str, process)): count for process, count in counts.items() if process not in ras.ranks}
    return Communicator(
        label_of(group, kind), tuple(sorted(found)), "read", found, "nccl", size=group.size or 0, unit=kind,
        names=frozenset({f"nccl:{group.communicator}"}), nameless=unnamed | others, least=least,
    )  # fmt: skip


def _position(rank: int, kind: str, launched: int, least: int, source: str) -> Position:
    pending = launched if launched > least else None
    operation = Operation(kind, "", None, None, source) if pending else None
    return Position(rank, launched, 0, pending, operation, Family.RAS, source)
