"""The wait-for graph on hand-made positions."""

from __future__ import annotations

from dataclasses import replace
from unittest.mock import create_autospec

import pytest

from forensics.model import Family
from forensics.rules.collectives.order_cycle import RULE
from forensics.rules.reductions.calls.positions import Communicator, Operation, Position
from forensics.rules.reductions.mismatch.left_out_messages import LeftOutMessages
from forensics.rules.reductions.mismatch.miscounts import Miscounts
from forensics.rules.reductions.ranks.roster import RankFacts, Roster
from forensics.rules.reductions.stacks.activity import activity
from forensics.rules.reductions.stacks.call_paths import frame
from forensics.rules.reductions.stacks.samples import Sample, Stacks
from forensics.rules.reductions.text.evidence_text import EvidenceText
from forensics.rules.reductions.waits.collective_waits import recorded_waits
from forensics.rules.reductions.waits.graph import Root, RootKind, Wait, WaitGraph
from forensics.rules.reductions.waits.order_history import CallOrder
from forensics.rules.reductions.waits.point_to_point import _Calls, _waits
from forensics.rules.reductions.waits.sinks import wait_graph
from forensics.rules.reductions.waits.unrecorded import joined_by_stack, not_whole, unrecorded_wait
from tests.recordings.places import ALL_REDUCE, GRADIENT_HOOK, SITE, Place

AT_STORE: Place = (
    ("_new_process_group_helper", f"{SITE}torch/distributed/distributed_c10d.py", 2169),
    ("new_group", f"{SITE}torch/distributed/distributed_c10d.py", 5863),
    ("main", "/srv/job/train.py", 9),
)
CALL = Operation("send", "[[4]]", 1000, None, "dump#entry=1")


def at(rank: int, entered: int, pending: bool = False) -> Position:
    operation = Operation("all_reduce", "[[4]]", 1000 + rank, None, f"rank{rank}#entry={entered}") if pending else None
    return Position(rank, entered, entered - pending, entered if pending else None, operation)


def group(label: str, members: tuple[int, ...], *positions: Position, confidence: str = "read") -> Communicator:
    return Communicator(label, members, confidence, {position.rank: position for position in positions}, "nccl")


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


def test_a_circle_that_records_close_is_a_root_beside_a_rank_of_which_nothing_is_known() -> None:
    """Ranks 0 and 1 lack each other; all three meet in a third group, where rank 2 left no record."""
    job = group("world", (0, 1, 2), at(0, 8, True), at(1, 8, True))
    opposite = (group("a", (0, 1), at(0, 5, True), at(1, 4)), group("b", (0, 1), at(0, 4), at(1, 5, True)))
    found = graph(*opposite, job, world=3)
    assert [(root.kind, root.ranks) for root in found.roots] == [(RootKind.CYCLE, (0, 1)), (RootKind.FREE, (2,))]


def test_messages_posted_ahead_close_no_circle_while_a_rank_is_missing() -> None:
    messages = [Wait("pp", 5, {one: CALL}, (other,), peers=(one, other)) for one, other in ((0, 1), (1, 0))]
    found = wait_graph([*messages, Wait("world", 8, {0: CALL, 1: CALL}, (), (2,))])
    assert [(root.kind, root.ranks) for root in found.roots] == [(RootKind.FREE, (2,))]


def test_an_operation_everyone_entered_has_no_culprit() -> None:
    found = graph(group("w", (0, 1), at(0, 3, True), at(1, 3, True)), world=2)
    assert [(root.kind, root.ranks) for root in found.roots] == [(RootKind.ALL_JOINED, (0, 1))]


@pytest.mark.parametrize(("last", "root"), [(at(2, 3, True), (RootKind.FREE, (2,))), (at(2, 3), (RootKind.ALL_JOINED, (0, 1)))])
def test_what_a_process_had_entered_ends_with_it_unless_it_came_out(
    last: Position, root: tuple[RootKind, tuple[int, ...]]
) -> None:
    groups = [group("w", (0, 1, 2), at(0, 3, True), at(1, 3, True), last)]
    found = wait_graph(recorded_waits(groups, range(3), ignore={2}))
    assert [(each.kind, each.ranks) for each in found.roots] == [root]
    assert found.waits[0].lost == tuple({2} & {*root[1]})


@pytest.mark.parametrize(("gone", "missing"), [(frozenset({0}), (0,)), (frozenset[int](), ())])
def test_a_message_that_a_process_had_posted_ends_with_it(gone: frozenset[int], missing: tuple[int, ...]) -> None:
    pair = ("pp", (0, 1))
    posted = {(pair, "send"): 1, (pair, "recv"): 1}
    (wait,) = _waits(*pair, _Calls(receives=[(1, CALL)]), posted, {Family.RECORDER: (0, 1)}, (gone, ()))
    assert wait is not None and wait.missing == wait.lost == missing


@pytest.mark.parametrize(("cut", "absent"), [((), (0,)), ((1,), (0,)), ((0,), ())], ids=["whole", "its own", "the other's"])
def test_what_a_rank_had_not_posted_is_known_of_a_whole_record_alone(cut: tuple[int, ...], absent: tuple[int, ...]) -> None:
    """Of a cut one the newest calls are lost, and the answer may be among them."""
    (wait,) = _waits("pp", (0, 1), _Calls(receives=[(1, CALL)]), {}, {Family.RECORDER: (0, 1)}, (frozenset(), cut))
    assert wait is not None and (wait.absent, wait.missing) == (absent, (0,))


def test_a_member_without_a_dump_is_waited_for_only_when_no_known_member_is_missing() -> None:
    silent = graph(group("w", (0, 1, 2), at(0, 3, True), at(1, 3, True)), world=3)
    assert [root.ranks for root in silent.free_roots] == [(2,)]
    assert silent.waits[0].unheard == (2,)
    known = graph(group("w", (0, 1, 2), at(0, 3, True), at(1, 2)), world=3)
    assert [root.ranks for root in known.free_roots] == [(1,)]
    assert known.waits[0].unheard == ()


def at_call(kind: str, rank: int, entered: int) -> Position:
    return Position(rank, entered, entered - 1, entered, Operation(kind, "[[4]]", 1000, None, f"rank{rank}"))


@pytest.mark.parametrize(("kind", "missing"), [("all_to_all", ()), ("_all_gather_base", ()), ("broadcast", (0,))])
def test_whoever_came_out_of_a_meeting_proves_that_all_have_entered_it(kind: str, missing: tuple[int, ...]) -> None:
    """Rank 0 left no record; rank 2 is out of the operation that ranks 1 and 3 are in."""
    found = graph(group("w", (0, 1, 2, 3), at_call(kind, 1, 7), at(2, 7), at_call(kind, 3, 7)))
    assert found.waits[0].missing == missing


def test_whoever_came_out_of_a_call_on_the_host_may_have_lost_a_member() -> None:
    members = group("w", (0, 1, 2), at_call("all_reduce", 1, 7), at(2, 7))
    (wait,) = recorded_waits([replace(members, backend="gloo")], range(3))
    assert (wait.missing, wait.left) == ((0,), ())


def test_an_older_record_of_a_meeting_that_somebody_left_accuses_nobody() -> None:
    found = graph(group("w", (0, 1, 2), at(0, 6), at_call("barrier", 1, 7), at(2, 7)), world=3)
    assert [(root.kind, root.ranks) for root in found.roots] == [(RootKind.ALL_JOINED, (1,))]


def test_a_meeting_that_somebody_left_is_behind_nothing() -> None:
    """The host of rank 0 issued call 7 behind a transfer that it is in; that rank 2 finished it shows its device inside."""
    first = Position(0, 7, 5, 6, Operation("all_reduce", "[[4]]", 1000, None, "rank0"))
    pair = group("pair", (0, 1), Position(0, 3, 2, 3, Operation("all_reduce", "[[4]]", 900, None, "rank0", order=-1)))
    groups = (group("w", (0, 1, 2), first, at_call("all_reduce", 1, 6), at(2, 7)), pair)
    found = graph(*groups, world=3)
    joined = next(wait for wait in found.waits if wait.communicator == "w")
    assert joined.left == (2,) and found.waits_for[1] == ()


def test_members_inferred_from_the_waiting_ranks_leave_the_others_possible() -> None:
    """Opposite first use of two groups whose members nobody reported: only the assumption closes the circle."""
    found = graph(
        group("a", (0,), at(0, 1, True), confidence="assumed"), group("b", (1,), at(1, 1, True), confidence="assumed"), world=2
    )  # fmt: skip
    assert [(root.kind, root.ranks) for root in found.roots] == [(RootKind.CYCLE, (0, 1))]
    assert found.waits[0].assumed == (1,)


def test_members_inferred_from_records_leave_ranks_without_one_possible() -> None:
    """Rank 3 left no dump: its groups look whole without it, also where one rank has come further."""
    groups = (
        replace(group("a", (0, 1), at(0, 9, True), at(1, 8, True), confidence="assumed"), backend="gloo"),
        group("b", (2,), at(2, 7, True), confidence="assumed"),
    )
    ends = [
        (root.kind, root.ranks)
        for root in wait_graph(recorded_waits(groups, range(4), heard={Family.RECORDER: {0, 1, 2}})).roots
    ]
    assert ends == [(RootKind.FREE, (3,))]
    whole = wait_graph(recorded_waits(groups, range(3), heard={Family.RECORDER: {0, 1, 2}}))
    assert [(root.kind, root.ranks) for root in whole.roots] == [(RootKind.ALL_JOINED, (1,)), (RootKind.ALL_JOINED, (2,))]


def test_waits_that_only_stacks_show_end_in_the_ranks_elsewhere() -> None:
    found = wait_graph([unrecorded_wait({0: None, 1: None}, [3, 2])])
    assert [root.ranks for root in found.free_roots] == [(2,), (3,)]


def test_a_thousand_ranks_waiting_for_one_make_a_small_graph() -> None:
    members = tuple(range(1000))
    found = graph(group("w", members, at(0, 6), *(at(rank, 7, True) for rank in members[1:])), world=1000)
    assert [root.ranks for root in found.roots] == [(0,)]
    assert len(found.waits) == 1


HEARD = {Family.RECORDER: {0, 2}, Family.SHIM: {1}}


def test_ranks_that_wait_for_thousands_of_which_nothing_is_known_share_one_list() -> None:
    """A list for each would take the product of both: gigabytes where two thousand dumps of a larger job are there."""
    found = graph(group("w", tuple(range(4000)), *(at(rank, 3, True) for rank in range(1000))), world=4000)
    lists = [found.waits_for[rank] for rank in range(1000)]
    assert lists[0] == tuple(range(1000, 4000))
    assert all(each is lists[0] for each in lists)


def test_a_member_whose_own_record_is_of_another_kind_is_elsewhere() -> None:
    (wait,) = recorded_waits([group("w", (0, 1, 2), at(0, 7, True), at(2, 7, True))], range(3), heard=HEARD)
    assert (wait.missing, wait.elsewhere) == ((1,), (1,))


@pytest.mark.parametrize(("elsewhere", "found"), [((), 1), ((1,), 0), ((2,), 1)])
def test_a_circle_is_not_closed_by_a_member_whose_record_is_of_another_kind(elsewhere: tuple[int, ...], found: int) -> None:
    """Rank 1 left a shim log: that may hold the call of the dumps in which it seems to be missing, under another name."""
    waits = (
        Wait("a", 1, {0: None}, (), unheard=(1,), elsewhere=elsewhere),
        Wait("b", 1, {1: None}, (0,)),
    )
    text = create_autospec(EvidenceText, instance=True)
    findings = RULE.evaluate(wait_graph(waits), Miscounts(()), LeftOutMessages(()), CallOrder(frozenset(), frozenset()), text)
    assert len(list(findings)) == found


@pytest.mark.parametrize(("free", "passed", "found"), [((), (), 1), ((0,), (), 0), ((), (1,), 1), ((), (1, 2), 0)])
def test_messages_behind_each_other_are_no_circle_while_a_rank_is_awaited(
    free: tuple[int, ...], passed: tuple[int, ...], found: int
) -> None:
    """Hosts that wait for rank 0 have posted messages ahead; nor are they where such messages passed on both sides before."""
    there, back = (
        Wait("a", number, {rank: replace(CALL, order=order) for rank, order in orders.items()}, (), peers=peers)
        for number, orders, peers in ((1, {1: 3, 2: 4}, (1, 2)), (2, {1: 4, 2: 3}, (2, 1)))
    )
    crossed = Root(RootKind.INVERTED, (1, 2), (there, back))
    roots = (crossed, *(Root(RootKind.FREE, (rank,), ()) for rank in free))
    text = create_autospec(EvidenceText, instance=True)
    text.stack.return_value = ()
    findings = RULE.evaluate(
        WaitGraph((there, back), roots, {}), Miscounts(()), LeftOutMessages(()), CallOrder(passed=frozenset(passed)), text
    )
    assert len(list(findings)) == found


@pytest.mark.parametrize(("place", "missing"), [(AT_STORE, (3,)), (ALL_REDUCE, ())], ids=["at the store", "elsewhere"])
def test_a_rank_that_still_makes_a_group_may_be_its_member(place: Place, missing: tuple[int, ...]) -> None:
    """Ranks 0 and 1 made one group, rank 2 makes calls in another one of the same number, which rank 3 has not made yet."""
    pair = group("1", (0, 1, 2), at(0, 1), at(1, 1), at(2, 1, True), confidence="assumed")
    waits = recorded_waits([replace(pair, backend="gloo")], range(4))
    sample = Sample(0, 4, 4, True, False, activity(tuple(frame(*each) for each in place)), "s#thread=4")
    (wait,) = not_whole(waits, {pair.label: pair.members}, {3: Stacks((sample,), (), ())})
    assert wait.missing == missing
    assert not_whole(waits, {}, {3: Stacks((sample,), (), ())}) == waits


@pytest.mark.parametrize(("others", "missing"), [(GRADIENT_HOOK, ()), (ALL_REDUCE, (2,)), (None, ())])
def test_a_stack_in_a_backward_pass_is_in_no_call_that_the_others_made_elsewhere(
    others: Place | None, missing: tuple[int, ...]
) -> None:
    """Rank 2 left no dump; below the autograd engine no frame shows a call."""
    (wait,) = recorded_waits([group("w", (0, 1, 2), at(0, 3, True), at(1, 3, True))], range(3))
    places = {2: GRADIENT_HOOK} | (dict.fromkeys((0, 1), others) if others else {})
    stacks = {
        rank: Stacks((Sample(0, 4, 4, True, False, activity(tuple(frame(*each) for each in place)), "s#thread=4"),), (), ())
        for rank, place in places.items()
    }
    (found,) = joined_by_stack([wait], Roster({rank: RankFacts(rank) for rank in range(3)}, 3), stacks, {})
    assert found.missing == missing


@pytest.mark.parametrize(
    ("place", "facts", "waits"),
    [
        (ALL_REDUCE, RankFacts(2, recorder_damaged=True), True),
        (GRADIENT_HOOK, RankFacts(2, recorder_damaged=True), False),
        (ALL_REDUCE, RankFacts(2, has_recorder=True), False),
        (ALL_REDUCE, RankFacts(2, recorder_damaged=True, thread_states=("T",)), False),
    ],
    ids=["on the line", "elsewhere", "its record is whole", "stopped"],
)
def test_a_member_whose_record_is_cut_waits_where_those_stand_that_do(place: Place, facts: RankFacts, waits: bool) -> None:
    """Rank 3 did not come, ranks 0 and 1 are recorded to wait for it; nothing is recorded of rank 2."""
    call = Operation("all_reduce", "", 1, None, "0#entry=9")
    wait = Wait("w", 3, dict.fromkeys((0, 1), call), (3,))
    stacks = {
        rank: Stacks((Sample(0, 4, 4, True, False, activity(tuple(frame(*each) for each in at)), "s#thread=4"),), (), ())
        for rank, at in {0: ALL_REDUCE, 1: ALL_REDUCE, 2: place}.items()
    }
    roster = Roster({rank: facts if rank == 2 else RankFacts(rank) for rank in range(4)}, 4)
    (found,) = joined_by_stack([wait], roster, stacks, {"w": range(4)})
    assert (2 in found.waiting) is waits
    assert found.missing == (3,)


def test_calls_that_only_counters_of_a_cut_record_tell_are_no_group_call() -> None:
    """Else operations that have nothing in common but a cut rank would wait for each other in a circle."""

    def call(order: int) -> Operation:
        return Operation("all_reduce", "[8]", 5, None, "", order=order)

    message = Wait("pipe", 1, {14: call(5), 18: None}, (), peers=(18, 14))
    reduction = Wait("dp", 2, {16: call(7), 18: None}, ())
    everybody = Wait("world", 3, {14: call(9), 16: call(9), 18: None}, ())
    roots = wait_graph([message, reduction, everybody]).roots
    assert [(root.kind, root.ranks) for root in roots] == [
        (RootKind.ALL_JOINED, (14, 18)),
        (RootKind.ALL_JOINED, (16, 18)),
    ]
