"""Positions of several sources in one relation, on hand-made positions."""

from __future__ import annotations

from dataclasses import replace

import pytest

from forensics.model import Family
from forensics.rules.reductions.calls.positions import Communicator, Operation, Position
from forensics.rules.reductions.waits.collective_waits import recorded_waits
from forensics.rules.reductions.waits.combined_positions import Positions, combined
from forensics.rules.reductions.waits.graph import Wait, WaitGraph
from forensics.rules.reductions.waits.sinks import wait_graph

NAMES = frozenset({"pg:0", "pg:0:default_pg"})


def at(
    rank: int, entered: int, pending: bool = False, family: Family = Family.RECORDER, time_ns: int | None = None
) -> Position:
    source = f"{family}{rank}#1"
    operation = Operation("all_reduce", "", None, None, source) if pending else None
    return Position(rank, entered, entered - pending, entered if pending else None, operation, family, source, time_ns)


def logged(rank: int, entered: int, pending: bool = False, time_ns: int | None = None) -> Position:
    return at(rank, entered, pending, Family.LOG, time_ns)


def recorder(*positions: Position, members: int = 4) -> Communicator:
    found = {position.rank: position for position in positions}
    return Communicator("0:default_pg", tuple(range(members)), "read", found, "nccl", names=NAMES)


def watchdog(*positions: Position, name: str = "0:default_pg") -> Communicator:
    found = {position.rank: position for position in positions}
    return Communicator(name, tuple(found), "read", found, "nccl", size=4, unit="work", names=frozenset({f"pg:{name}"}))


def graph_of(found: Positions) -> WaitGraph:
    return wait_graph(recorded_waits(found.recorded, range(4)), recorded_waits(found.reported, ()))


def test_ranks_without_a_dump_take_their_place_from_their_log() -> None:
    found = combined([recorder(at(0, 7, True), at(1, 7, True))], [watchdog(logged(2, 6), logged(3, 7, True))])
    (group,) = found.recorded
    assert not found.reported and not found.contradictions
    assert {rank: place.family for rank, place in group.positions.items()} == {
        0: Family.RECORDER, 1: Family.RECORDER, 2: Family.LOG, 3: Family.LOG,
    }  # fmt: skip
    graph = graph_of(found)
    assert [root.ranks for root in graph.reported_roots] == [(2,)], "its place is told by its log alone"
    assert graph.roots == ()
    assert graph.waits[0].families[0] is Family.RECORDER and graph.waits[0].families[2] is Family.LOG


def test_a_rank_that_its_dump_shows_behind_is_a_root_although_logs_alone_tell_who_waits() -> None:
    found = combined([recorder(at(2, 6))], [watchdog(logged(0, 7, True), logged(1, 7, True), logged(3, 7, True))])
    assert [root.ranks for root in graph_of(found).free_roots] == [(2,)]


def test_sources_that_agree_are_named_together() -> None:
    found = combined([recorder(at(0, 7, True))], [watchdog(logged(0, 7, True))])
    place = found.recorded[0].positions[0]
    assert (place.entered, place.done, place.pending, place.source, place.also) == (7, 6, 7, "recorder0#1", ("log0#1",))


def test_an_older_line_of_a_log_is_a_bound_and_no_contradiction() -> None:
    found = combined([recorder(at(0, 7))], [watchdog(logged(0, 5))])
    assert found.recorded[0].positions[0].entered == 7 and not found.contradictions


def test_a_line_that_is_newer_than_the_dump_lifts_it() -> None:
    dump = replace(recorder(at(0, 6), at(1, 7, True)), captured={0: 100, 1: 300})
    found = combined([dump], [watchdog(logged(0, 7, True, time_ns=200))])
    assert found.recorded[0].positions[0].pending == 7 and not found.contradictions


def test_a_log_that_is_ahead_of_the_dump_without_a_time_contradicts_it() -> None:
    found = combined([recorder(at(0, 6), at(1, 7, True))], [watchdog(logged(0, 90, True), logged(1, 90, True))])
    assert found.recorded[0].positions[0].entered == 6, "the recorder decides"
    assert [(said.ranks, len(said.statements)) for said in found.contradictions] == [((0, 1), 2)]
    assert [group.label for group in found.reported] == ["0:default_pg (log)"]


def test_nobody_finishes_what_a_member_has_not_entered() -> None:
    """The logs of the ranks without a dump are of another run, or the dumps are much older."""
    found = combined([recorder(at(0, 6), at(1, 7, True))], [watchdog(logged(2, 90, True), logged(3, 90, True))])
    assert found.contradictions and found.recorded[0].positions.keys() == {0, 1}


def test_a_group_of_another_name_or_with_other_members_stays_apart() -> None:
    other = combined([recorder(at(0, 7, True))], [watchdog(logged(2, 6), name="1:TENSOR")])
    assert [group.label for group in other.reported] == ["1:TENSOR"]
    foreign = combined([recorder(at(0, 7, True))], [watchdog(logged(9, 6))])
    assert foreign.recorded[0].positions.keys() == {0}


def test_a_dump_that_is_older_than_the_line_that_sees_others_wait_does_not_accuse() -> None:
    dump = replace(recorder(at(2, 6)), captured={2: 100})
    late = [logged(rank, 7, True, time_ns=200) for rank in (0, 1, 3)]
    assert graph_of(combined([dump], [watchdog(*late)])).waits[0].absent == ()
    fresh = replace(dump, captured={2: 300})
    assert graph_of(combined([fresh], [watchdog(*late)])).waits[0].absent == (2,)


def wait(label: str, waiting: tuple[int, ...], absent: tuple[int, ...], family: Family) -> Wait:
    return Wait(label, 7, dict.fromkeys(waiting), absent, families=dict.fromkeys((*waiting, *absent), family))


def test_a_rank_that_is_behind_in_a_log_because_it_waits_in_a_recorded_operation_is_no_root() -> None:
    found = wait_graph([wait("a", (1,), (2,), Family.RECORDER)], [wait("b", (0,), (1,), Family.LOG)])
    assert [root.ranks for root in found.roots] == [(2,)] and found.reported_roots == ()


def test_what_logs_say_does_not_turn_a_recorded_root_into_a_circle() -> None:
    """The host of rank 2 runs ahead in another communicator, and its peer there waits for it."""
    found = wait_graph([wait("a", (1,), (2,), Family.RECORDER)], [wait("b", (2,), (1,), Family.LOG)])
    assert [root.ranks for root in found.roots] == [(2,)]


def test_a_silent_rank_that_waits_by_its_log_is_no_root() -> None:
    silent = Wait("a", 7, {0: None, 1: None}, (), (2, 3))
    found = wait_graph([silent], [wait("b", (2,), (3,), Family.LOG)])
    assert [root.ranks for root in found.roots] == [(3,)]


def test_a_process_without_a_rank_takes_part_in_the_chain_and_is_not_named() -> None:
    first = replace(wait("a", (0,), (1,), Family.RAS), nameless=((), ()))
    second = replace(wait("b", (1,), (), Family.RAS), nameless=((), ("10.0.0.9:77",)))
    found = wait_graph([], [first, second])
    assert found.roots == () and found.reported_roots == ()


@pytest.mark.slow
def test_ten_thousand_ranks_of_which_half_are_not_heard() -> None:
    ranks = range(10_000)
    group = Communicator("w", tuple(ranks), "read", {r: logged(r, 7, True) for r in ranks[::2]}, "nccl", size=10_000)
    found = wait_graph([], recorded_waits([group], ()))
    assert len(found.reported_roots) == 5_000 and len(found.waits) == 1
