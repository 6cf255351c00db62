"""Which flow of chunks stands still on its own account."""

from __future__ import annotations

from dataclasses import replace
from unittest.mock import create_autospec

import duckdb
import pytest

from forensics.rules.collectives.gpu_not_ready import RULE as GPU_NOT_READY
from forensics.rules.engine import supply_of
from forensics.rules.reductions.calls.positions import Communicators
from forensics.rules.reductions.calls.shim_calls import Calls
from forensics.rules.reductions.hardware.gpu_errors import GpuErrors
from forensics.rules.reductions.mismatch.disagreements import BlockingMismatches
from forensics.rules.reductions.network.chunk_flows import OpenFlows
from forensics.rules.reductions.network.flow_ends import Flow, FlowEnd, FlowState
from forensics.rules.reductions.network.flow_faults import (
    FaultyFlows,
    RootFlows,
    faulty_flows,
    flow_evidence,
    idle_evidence,
    is_left_out,
    left_by_proxy,
    standing_flows,
)
from forensics.rules.reductions.network.flow_states import Reached, judged
from forensics.rules.reductions.network.held_devices import HeldByEnded, HeldDevices
from forensics.rules.reductions.network.host_calls import HeldInHosts
from forensics.rules.reductions.network.host_places import HostPlaces
from forensics.rules.reductions.network.root_flows import root_flows
from forensics.rules.reductions.network.work_requests import QueuePairs
from forensics.rules.reductions.ranks.roster import RankFacts, RecordedRanks, Roster
from forensics.rules.reductions.text.evidence_text import EvidenceText
from forensics.rules.reductions.waits.graph import Wait
from forensics.rules.reductions.waits.launch_orders import OrderInversion, OrderInversions
from forensics.rules.reductions.waits.sinks import wait_graph
from tests.recordings.scenarios import changed

LONG = 3_000_000_000


NOWHERE = HostPlaces({})


def end(rank: int, counts: tuple[int, int, int, int], *, total: int = 4, order: int = 5, stuck: int = LONG) -> FlowEnd:
    """Posted, ready, passed, done."""
    return FlowEnd(rank, total, *counts, since_ns=1_000, stuck_ns=stuck, order=order, source=f"{rank}.frx#entry=-1")


def flow(sender: int, receiver: int, state: FlowState, *, number: int = 1, order: int = 5, kind: str = "all_reduce") -> Flow:
    ends = (end(sender, (4, 0, 0, 0), order=order), end(receiver, (4, 0, 0, 0), order=order))
    return Flow("nccl:a", number, kind, 0, sender, receiver, *ends, state)


def test_a_network_fault_is_always_a_root() -> None:
    broken = flow(0, 1, FlowState.NOT_DELIVERED)
    assert root_flows([broken, flow(1, 2, FlowState.GPU_NOT_READY)], {}) == (broken,)


def test_a_gpu_in_a_ring_that_waits_for_its_neighbour_is_no_root() -> None:
    """Rank 1 does not run: what it should send and take is stuck, and so is everything behind it."""
    taken, made = flow(0, 1, FlowState.NOT_CONSUMED), flow(1, 2, FlowState.GPU_NOT_READY)
    behind = [flow(2, 3, FlowState.GPU_NOT_READY), flow(3, 0, FlowState.GPU_NOT_READY)]
    assert root_flows([taken, made, *behind], {}) == (taken, made)


def of(communicator: str, sender: int, receiver: int, state: FlowState, orders: tuple[int, int], kind: str = "p2p") -> Flow:
    """A flow of one of several communicators; `orders` are the places of its call at both ends."""
    ends = (end(sender, (4, 0, 0, 0), order=orders[0]), end(receiver, (4, 0, 0, 0), order=orders[1]))
    return Flow(communicator, 1, kind, 0, sender, receiver, *ends, state)


@pytest.mark.parametrize("hops", [1, 2, 3])
def test_what_waits_behind_other_communicators_is_no_root(hops: int) -> None:
    """The GPU of rank 1 stands in the ring of its replicas; rank 2 sends nothing down the pipeline, and so on (section 5.4)."""
    dp = [
        of("dp", 1, 2, FlowState.GPU_NOT_READY, (3, 3), "all_reduce"),
        of("dp", 2, 1, FlowState.NOT_CONSUMED, (3, 3), "all_reduce"),
    ]
    pp = [of("pp", 2, 4, FlowState.GPU_NOT_READY, (4, 7))]
    tp = [
        of("tp", 4, 5, FlowState.GPU_NOT_READY, (8, 2), "all_gather"),
        of("tp", 5, 4, FlowState.GPU_NOT_READY, (2, 8), "all_gather"),
    ]
    last = [of("next", 5, 6, FlowState.GPU_NOT_READY, (3, 1))]
    behind = [pp, [*pp, *tp], [*pp, *tp, *last]][hops - 1]
    held = [flow for flow in root_flows([*dp, *behind], {}) if flow.holder != 1]
    assert held == [], "all of them wait for rank 1"


def test_a_rank_that_waits_for_a_call_of_another_holds_nothing_up() -> None:
    assert root_flows([flow(0, 1, FlowState.GPU_NOT_READY)], {0: (3,)}) == ()


def test_an_earlier_operation_comes_first() -> None:
    early = flow(0, 1, FlowState.NO_CREDIT, number=1, order=3)
    late = flow(1, 2, FlowState.GPU_NOT_READY, number=9, order=7)
    assert root_flows([early, late], {}) == (early, late), "the early one is held by rank 1 itself"
    held = flow(2, 1, FlowState.NO_CREDIT, number=1, order=3)
    mine = flow(2, 0, FlowState.GPU_NOT_READY, number=9, order=7)
    assert root_flows([held, mine], {}) == (held,), "rank 2 waits for the credit of rank 1 before"


@pytest.mark.parametrize(("still_ns", "is_root"), [(0, False), (9_000_000_000, False), (-1, True)])
def test_a_device_in_a_message_whose_other_end_left_no_later_log_holds_nothing_up(still_ns: int, is_root: bool) -> None:
    """The log of rank 1 ended with its process, before it could show that nothing moves; -1 where its message had ended."""
    calls = [of("all", 2, 3, FlowState.GPU_NOT_READY, (7, 7), "all_reduce")]
    to_ended = of("pipe", 2, 1, FlowState.NOT_DELIVERED, (3, 3))
    ended = replace(to_ended, receive=replace(end(1, (4, 0, 0, 0), order=3), stuck_ns=still_ns))
    found = root_flows([*calls, *([ended] if still_ns >= 0 else [])], {})
    assert (calls[0] in found) is is_root


def message(number: int, state: FlowState, *, at_receiver: int | None) -> Flow:
    """From rank 0 to rank 1; the receiver shows a step of it where it has a place there."""
    receive = None if at_receiver is None else end(1, (4, 0, 0, 0), order=at_receiver)
    return Flow("nccl:a", number, "p2p", 0, 0, 1, end(0, (4, 4, 0, 0), order=3), receive, state)


def test_a_message_that_was_not_begun_comes_before_the_next_one_between_its_ranks() -> None:
    left_out, behind = message(7, FlowState.NOT_STARTED, at_receiver=None), message(8, FlowState.GPU_NOT_READY, at_receiver=20)
    assert left_out in root_flows([left_out, behind], {}), "what rank 1 waits for from rank 0 comes later"
    before = flow(2, 1, FlowState.GPU_NOT_READY, number=3, order=19, kind="p2p")
    assert left_out not in root_flows([left_out, behind, before], {}), "rank 1 may be in the one of rank 2 first"
    assert left_out not in root_flows([left_out, before], {}), "nothing tells when rank 1 called it"


@pytest.mark.parametrize(("order", "is_root"), [(9, True), (3, False)])
def test_messages_of_other_ranks_with_the_same_number_are_ordered_by_their_calls(order: int, is_root: bool) -> None:
    """Messages are counted by pair: number 1 from rank 2 is another call of rank 1 than number 1 from rank 0."""
    left_out, later = message(1, FlowState.NOT_STARTED, at_receiver=None), message(2, FlowState.GPU_NOT_READY, at_receiver=7)
    third = flow(2, 1, FlowState.GPU_NOT_READY, order=order, kind="p2p")
    assert (left_out in root_flows([left_out, later, third], {})) is is_root


@pytest.mark.parametrize(("order", "is_root"), [(4, False), (8, True)])
def test_a_message_without_a_later_one_has_the_place_of_its_call(order: int, is_root: bool) -> None:
    """Only the call of the receiver is logged: what it called before may hold it up, and its proxy runs in a later one."""
    entered = {("nccl:a", 1, "recv", 0): (7, 6)}
    logs = frozenset({0, 1})
    known = Reached(entered, logs, logs, places={("nccl:a", 7, 1, "recv", 0): 5})
    (left_out,) = judged({("nccl:a", 7, "p2p", 0, 0, 1): {"send": end(0, (4, 4, 0, 0), order=3)}}, known)
    other = flow(2, 1, FlowState.GPU_NOT_READY, number=9, order=order, kind="p2p")
    assert left_out.state is FlowState.NOT_STARTED and left_out.order_at(1) == 5
    assert (left_out in root_flows([left_out, other], {})) is is_left_out(left_out, [other]) is is_root


@pytest.mark.parametrize(("order", "kind", "is_root"), [(2, "p2p", False), (2, "all_reduce", True)])
def test_a_message_behind_one_that_its_receiver_does_not_take_is_not_left_out(order: int, kind: str, is_root: bool) -> None:
    """A proxy works off what one peer sends one by one, and serves others meanwhile: a later call of another group runs."""
    taken = Flow("nccl:a", 6, kind, 0, 0, 1, None, end(1, (4, 4, 4, 0), order=order), FlowState.NOT_CONSUMED)
    left_out, other = (
        message(7, FlowState.NOT_STARTED, at_receiver=None),
        of("b", 3, 1, FlowState.UNKNOWN, (9, 30), "all_reduce"),
    )
    placed = replace(left_out, unseen_order=5)
    found = root_flows([taken, placed, other] if not is_root else [replace(taken, communicator="b"), placed, other], {})
    assert (placed in found) is is_root and (is_root or taken in found)


def test_a_proxy_that_serves_later_messages_runs() -> None:
    left_out = message(7, FlowState.NOT_STARTED, at_receiver=None)
    assert is_left_out(left_out, [left_out, message(8, FlowState.GPU_NOT_READY, at_receiver=20)])
    assert not is_left_out(left_out, [left_out, message(6, FlowState.GPU_NOT_READY, at_receiver=4)])


@pytest.mark.parametrize(("later", "is_accused"), [(8, True), (6, False)])
def test_no_device_keeps_a_proxy_from_one_message_that_serves_later_ones(later: int, is_accused: bool) -> None:
    """The device of rank 1 may stand in a call inside its host, which holds up what it sends and what it takes out."""
    left_out = message(7, FlowState.NOT_STARTED, at_receiver=None)
    flows = OpenFlows((left_out, message(later, FlowState.GPU_NOT_READY, at_receiver=20)))
    with duckdb.connect() as connection:
        calls = Calls(connection, frozenset(), frozenset({0, 1}), frozenset())
        found = faulty_flows(
            RootFlows((left_out,)), flows, BlockingMismatches(()), QueuePairs(()), calls, Communicators(()), wait_graph(()),
            RecordedRanks(frozenset()), HeldDevices(frozenset({1})),
        )  # fmt: skip
    assert found == ((left_out,) if is_accused else ())


def test_what_moved_a_moment_ago_is_not_stuck() -> None:
    moving = Flow("nccl:a", 1, "p2p", 0, 0, 1, end(0, (4, 4, 4, 0), stuck=1000), None, FlowState.NOT_DELIVERED)
    assert root_flows([moving], {}) == ()


def test_a_call_that_was_not_made_is_no_fault_of_a_flow() -> None:
    assert root_flows([flow(0, 1, FlowState.NOT_ENTERED)], {}) == ()


def roster(*dead: int) -> Roster:
    return Roster({rank: RankFacts(rank, state="absent" if rank in dead else "alive") for rank in range(4)}, 4)


def test_the_log_of_a_process_that_is_gone_shows_no_root() -> None:
    broken, other = flow(0, 1, FlowState.NOT_DELIVERED), flow(2, 3, FlowState.NOT_DELIVERED)
    assert standing_flows(OpenFlows((broken, other)), roster(), wait_graph(()), NOWHERE) == (broken, other)
    assert standing_flows(OpenFlows((broken, other)), roster(1), wait_graph(()), NOWHERE) == (other,)


def test_a_gpu_behind_a_rank_that_is_gone_is_no_second_fault() -> None:
    """What it should pass on never comes: neither it nor those behind it hold chunks back themselves."""
    from_dead, behind, further = (flow(each, each + 1, FlowState.GPU_NOT_READY) for each in range(3))
    flows = OpenFlows((from_dead, behind, further))
    assert standing_flows(flows, roster(), wait_graph(()), NOWHERE) == (from_dead,)
    assert standing_flows(flows, roster(0), wait_graph(()), NOWHERE) == ()


def test_a_rank_whose_first_call_lacks_a_member_holds_no_flow_up_itself() -> None:
    held = flow(0, 1, FlowState.GPU_NOT_READY)
    first = Wait("other", 1, {0: None}, absent=(3,))
    assert standing_flows(OpenFlows((held,)), roster(), wait_graph([first]), NOWHERE) == ()
    behind = Wait("other", 1, {1: None}, absent=(3,))
    assert standing_flows(OpenFlows((held,)), roster(), wait_graph([behind]), NOWHERE) == (held,), "rank 1 does not hold it"


def silent(sender: int, receiver: int, *, number: int = 1) -> Flow:
    """A flow to a rank without a log: chunks wait for credit, nothing is in flight."""
    own = replace(end(sender, (8, 6, 2, 2), total=8), in_flight=0)
    return Flow("nccl:a", number, "all_reduce", 0, sender, receiver, own, None, FlowState.RECEIVER_SIDE)


def onward(sender: int, receiver: int, counts: tuple[int, int, int, int], number: int = 1) -> Flow:
    """What a rank without a log sends on, by the receiver's log."""
    return Flow("nccl:a", number, "all_reduce", 0, sender, receiver, None, end(receiver, counts, total=8), FlowState.UNKNOWN)


def test_a_receiver_without_a_log_is_the_side_when_all_it_needs_is_there() -> None:
    first = silent(0, 1)
    assert root_flows([first, onward(1, 2, (8, 3, 3, 3))], {}) == (first,)


@pytest.mark.parametrize(
    "others",
    [
        (),
        (onward(1, 2, (8, 8, 8, 0)),),
        (onward(1, 2, (3, 3, 3, 3)),),
        (onward(1, 2, (8, 3, 3, 3)), onward(1, 4, (8, 8, 8, 0))),
        (onward(1, 2, (8, 3, 3, 3), number=2),),
        (silent(1, 2),),
    ],
)
def test_a_receiver_without_a_log_that_may_wait_for_others_is_no_root(others: tuple[Flow, ...]) -> None:
    """Behind it nobody is seen, a GPU takes nothing, no buffers are offered, one of two branches is stuck, another call."""
    first = silent(0, 1)
    assert first not in root_flows([first, *others], {})


def test_a_side_is_said_as_a_side() -> None:
    first = silent(0, 1)
    texts = [each.statement for each in (*flow_evidence(first), *idle_evidence(first))]
    assert texts[1] == "rank 1 left no log: the queue pair of rank 0 shows the side only"
    assert texts[2] == "the NIC of rank 0 is idle for it: no request in flight on its queue pairs"
    assert not list(idle_evidence(flow(0, 1, FlowState.NO_CREDIT)))


def test_requests_that_age_speak_against_a_receiver_that_gives_no_credit() -> None:
    held = replace(end(0, (8, 6, 2, 2), total=8), in_flight=3, oldest_ns=4_000_000_000)
    (against,) = idle_evidence(
        Flow("nccl:a", 1, "all_reduce", 0, 0, 1, held, end(1, (2, 2, 2, 2), total=8), FlowState.NO_CREDIT)
    )
    assert not against.supports and "3 requests in flight, the oldest for 4.0 s" in against.statement


@pytest.mark.parametrize("state", [FlowState.NOT_STARTED, FlowState.NO_CREDIT])
def test_a_gpu_that_waits_for_what_its_own_proxy_does_not_fetch_is_not_the_one(state: FlowState) -> None:
    absent = Flow("nccl:a", 1, "all_reduce", 0, 0, 1, end(0, (4, 4, 0, 0)), None, state)
    waiting, later = flow(1, 2, FlowState.GPU_NOT_READY), flow(1, 2, FlowState.GPU_NOT_READY, number=2, order=9)
    assert left_by_proxy(FaultyFlows((waiting, later, absent))) == {1}
    assert left_by_proxy(FaultyFlows((flow(1, 2, FlowState.GPU_NOT_READY, order=4), flow(0, 1, state)))) == frozenset()


def gpus_named(
    holders: int, inversions: OrderInversions, inside: frozenset[int] = frozenset()
) -> list[tuple[int, ...]]:  # fmt: skip
    faulty = FaultyFlows(tuple(flow(rank, rank + 8, FlowState.GPU_NOT_READY, kind="p2p") for rank in range(holders)))
    roster, text = Roster({rank: RankFacts(rank) for rank in range(16)}, 16), create_autospec(EvidenceText, instance=True)
    text.stack.return_value = text.process.return_value = ()
    nobody = HeldByEnded(frozenset())
    found = GPU_NOT_READY.evaluate(
        roster, nobody, faulty, OpenFlows(()), NOWHERE, text, GpuErrors(), inversions, HeldInHosts(inside)
    )
    return [each.ranks for each in found]


@pytest.mark.parametrize(("holders", "named"), [(1, [(0,)]), (2, [(0,), (1,)]), (3, [])])
def test_devices_of_many_ranks_do_not_fail_at_once(holders: int, named: list[tuple[int, ...]]) -> None:
    """They stand in calls inside their hosts, which no flow shows."""
    assert gpus_named(holders, OrderInversions(())) == named


def test_the_device_that_the_others_of_its_host_wait_for_is_the_one() -> None:
    assert gpus_named(4, OrderInversions(()), frozenset({0, 1, 3})) == [(2,)]


@pytest.mark.parametrize(
    ("communicator", "order", "named"),
    [("nccl:a", "enqueued", []), ("nccl:b", "enqueued", [(0,)]), ("nccl:a", "overlap", [(0,)])],
)
def test_no_device_fails_that_is_in_a_call_launched_in_another_order(
    communicator: str, order: str, named: list[tuple[int, ...]]
) -> None:
    waits = tuple(Wait(label, 2, {0: None, 8: None}, ()) for label in (communicator, "nccl:c"))
    assert gpus_named(1, OrderInversions((OrderInversion(waits, (0, 8), order),))) == named


def test_calls_of_several_threads_have_the_order_of_their_times() -> None:
    """Beside dumps calls of a log have no number in the process, and each thread has its own part of the log."""
    with changed("gpu-not-ready", "UPDATE operations SET locator = 1000000 - locator") as connection:
        flows = supply_of(connection, instead={Calls: Calls(connection)}).get(OpenFlows)
        known = {*connection.execute("SELECT rank, entered_ns FROM operations").fetchall()}
    orders = {(end.rank, end.order) for flow in flows for end in flow.ends}
    assert orders and orders <= known
