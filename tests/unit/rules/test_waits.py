"""The wait-for graph on hand-made positions."""

from __future__ import annotations

from forensics.rules.reductions.calls.positions import Communicator, Operation, Position
from forensics.rules.reductions.waits.collective_waits import recorded_waits
from forensics.rules.reductions.waits.graph import RootKind, WaitGraph, unrecorded_wait, wait_graph


def at(rank: int, entered: int, pending: bool = False) -> Position:
    operation = Operation("all_reduce", "[[4]]", 1000 + rank, None, f"rank{rank}#entry={entered}") if pending else None
    return Position(rank, entered, entered - pending, entered if pending else None, operation)


def group(label: str, members: tuple[int, ...], *positions: Position, confidence: str = "read") -> Communicator:
    return Communicator(label, members, confidence, {position.rank: position for position in positions})


def graph(*groups: Communicator, world: int = 4) -> WaitGraph:
    return wait_graph(recorded_waits(groups, range(world)))


def test_the_rank_that_is_behind_is_the_only_root() -> None:
    found = graph(group("w", (0, 1, 2, 3), at(0, 7, True), at(1, 7, True), at(2, 6), at(3, 7, True)))
    assert [(root.kind, root.ranks) for root in found.roots] == [(RootKind.FREE, (2,))]
    assert found.waits_for == {0: (2,), 1: (2,), 3: (2,)}


def test_a_victim_that_is_waited_for_is_no_root() -> None:
    """Rank 1 holds up rank 0 but waits itself, in another group, for rank 2."""
    found = graph(group("a", (0, 1), at(0, 5, True), at(1, 4)), group("b", (1, 2), at(1, 9, True), at(2, 8)))
    assert [(root.kind, root.ranks) for root in found.roots] == [(RootKind.FREE, (2,))]


def test_opposite_orders_form_a_cycle() -> None:
    found = graph(
        group("a", (0, 1), at(0, 5, True), at(1, 4)), group("b", (0, 1), at(0, 4), at(1, 5, True)), world=2
    )  # fmt: skip
    assert [(root.kind, root.ranks) for root in found.roots] == [(RootKind.CYCLE, (0, 1))]


def test_a_cycle_that_waits_for_somebody_else_is_no_root() -> None:
    found = graph(
        group("a", (0, 1, 2), at(0, 5, True), at(1, 4), at(2, 4)), group("b", (0, 1), at(0, 4), at(1, 5, True)), world=3
    )  # fmt: skip
    assert [(root.kind, root.ranks) for root in found.roots] == [(RootKind.FREE, (2,))]


def test_an_operation_everyone_entered_has_no_culprit() -> None:
    found = graph(group("w", (0, 1), at(0, 3, True), at(1, 3, True)), world=2)
    assert [(root.kind, root.ranks) for root in found.roots] == [(RootKind.ALL_JOINED, (0, 1))]


def test_a_member_without_a_dump_is_waited_for_only_when_no_known_member_is_missing() -> None:
    silent = graph(group("w", (0, 1, 2), at(0, 3, True), at(1, 3, True)), world=3)
    assert [root.ranks for root in silent.free_roots] == [(2,)]
    assert silent.waits[0].unheard == (2,)
    known = graph(group("w", (0, 1, 2), at(0, 3, True), at(1, 2)), world=3)
    assert [root.ranks for root in known.free_roots] == [(1,)]
    assert known.waits[0].unheard == ()


def test_members_inferred_from_the_waiting_ranks_leave_the_others_possible() -> None:
    """Opposite first use of two groups whose members nobody reported: only the assumption closes the circle."""
    found = graph(
        group("a", (0,), at(0, 1, True), confidence="assumed"), group("b", (1,), at(1, 1, True), confidence="assumed"), world=2
    )  # fmt: skip
    assert [(root.kind, root.ranks) for root in found.roots] == [(RootKind.CYCLE, (0, 1))]
    assert found.waits[0].assumed == (1,)


def test_waits_that_only_stacks_show_end_in_the_ranks_elsewhere() -> None:
    found = wait_graph([unrecorded_wait({0: None, 1: None}, [3, 2])])
    assert [root.ranks for root in found.free_roots] == [(2,), (3,)]


def test_a_thousand_ranks_waiting_for_one_make_a_small_graph() -> None:
    members = tuple(range(1000))
    found = graph(group("w", members, at(0, 6), *(at(rank, 7, True) for rank in members[1:])), world=1000)
    assert [root.ranks for root in found.roots] == [(0,)]
    assert len(found.waits) == 1
