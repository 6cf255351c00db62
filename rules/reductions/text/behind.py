"""Ranks that logs alone show to be behind, and what they are charged with."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, replace

from forensics.model import Belief, Cause, Component, Evidence, Family, Granularity, Members, StageName, StageRef
from forensics.rules.reductions.calls.positions import Communicator, Position
from forensics.rules.reductions.logs.idle_ranks import IdleRank
from forensics.rules.reductions.logs.positions import LogPosition, as_communicator
from forensics.rules.reductions.logs.starts import Unstarted
from forensics.rules.reductions.text.evidence_text import ranks_text
from forensics.rules.reductions.waits.graph import Wait

_ELSEWHERE = "it may itself wait where no watchdog sees it: in a store, or in a call of a group on the host"


@dataclass(frozen=True, slots=True)
class Behind:
    """Ranks behind in one wait, and what they are charged with."""

    ranks: tuple[int, ...]
    cause: Cause
    stage: StageRef
    members: Members
    sure: bool
    group: Communicator
    statements: tuple[Evidence, ...]
    granularity: Granularity = Granularity.RANK
    state: str = "not_started"
    belief: Belief = Belief.BEHIND_AND_BUSY


def never_started(item: Unstarted) -> Behind:
    """Ranks that hold up the init of a communicator."""
    verb = "did not complete" if item.began else "did not begin"
    said = f"{ranks_text(item.ranks)} {verb} the init of communicator {item.group.label}"
    peers = f"{ranks_text(item.peers)} {'completed' if item.began else 'began'} it"
    heard = {rank: Position(rank, 0, 0, None, None, Family.LOG, row.source) for rank, row in item.group.positions.items()}
    return Behind(
        ranks=item.ranks,
        cause=Cause.INIT_STALL,
        stage=StageRef(name=StageName.INIT, component=Component.HOST, communicator=item.group.label),
        members=Members.EACH if item.certain or len(item.ranks) == 1 else Members.ONE_OF,
        sure=item.certain,
        group=replace(as_communicator(item.group), positions=heard),
        statements=(Evidence(f"{said}; {peers}", item.group.positions[item.peers[0]].source),),
        granularity=Granularity.of_ranks(item.ranks),
    )


def stuck_together(group: Communicator, wait: Wait, outside: Collection[int]) -> Behind:
    """Members of a group that all entered what none of them completed, and for one of whom each rank `outside` waits."""
    ranks = tuple(sorted(wait.waiting))
    kinds = {operation.kind for operation in wait.waiting.values() if operation is not None}
    said = f"all members of {group.label} enqueued work {wait.sequence}: {ranks_text(ranks)} gave up on it, nobody completed it"
    behind = f"{ranks_text(outside)} wait for one of them, in other groups"
    alike = "nothing tells its members apart: the network, a device and a library below the call all leave this"
    return Behind(
        ranks=ranks,
        cause=Cause.UNKNOWN,
        stage=StageRef(
            component=Component.COMMUNICATION,
            operation=kinds.pop() if len(kinds) == 1 else None,
            communicator=group.label,
            sequence=wait.sequence,
        ),
        members=Members.ONE_OF,
        sure=False,
        group=group,
        statements=(
            Evidence(said, group.positions[ranks[0]].source),
            Evidence(behind),
            Evidence(alike, supports=False),
        ),
        granularity=Granularity.GROUP,
        state="late_end",
        belief=Belief.GROUP_SYMPTOM,
    )


def idle_behind(item: IdleRank) -> Behind:
    """The rank that waits for no message while all others do."""
    own, others = item.positions[item.rank], [rank for rank in item.positions if rank != item.rank]
    said = f"rank {item.rank} has completed all {own.enqueued} works that it enqueued in {item.label}, and gave up on none"
    first = item.positions[others[0]]
    gave_up = f"{ranks_text(others)} gave up on messages of it, rank {others[0]} on work {first.timed_out} ({first.kind})"
    heard = {rank: _heard(rank, row) for rank, row in item.positions.items()}
    return Behind(
        ranks=(item.rank,),
        cause=Cause.HOST_STALL,
        stage=StageRef(component=Component.HOST, communicator=item.label),
        members=Members.EACH,
        sure=False,
        group=Communicator(item.label, tuple(heard), "inferred", heard, "nccl", size=len(heard), unit="work"),
        statements=(Evidence(said, own.source), Evidence(gave_up, first.source), Evidence(_ELSEWHERE, supports=False)),
    )


def _heard(rank: int, row: LogPosition) -> Position:
    return Position(rank, row.enqueued or 0, row.completed or 0, row.timed_out, None, Family.LOG, row.source)
