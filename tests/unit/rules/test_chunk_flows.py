"""Which flow of chunks stands still on its own account."""

from __future__ import annotations

import pytest

from forensics.rules.reductions.network.chunk_flows import Flow, FlowEnd, FlowState, OpenFlows, _both, root_flows
from forensics.rules.reductions.network.flow_faults import standing_flows
from forensics.rules.reductions.ranks.roster import RankFacts, Roster
from forensics.rules.reductions.waits.graph import Wait, wait_graph

LONG = 3_000_000_000


def end(rank: int, counts: tuple[int, int, int, int], *, total: int = 4, order: int = 5, stuck: int = LONG) -> FlowEnd:
    """Posted, ready, passed, done."""
    return FlowEnd(rank, total, *counts, since_ns=1_000, stuck_ns=stuck, order=order, source=f"{rank}.frx#entry=-1")


def flow(sender: int, receiver: int, state: FlowState, *, number: int = 1, order: int = 5, kind: str = "all_reduce") -> Flow:
    ends = (end(sender, (4, 0, 0, 0), order=order), end(receiver, (4, 0, 0, 0), order=order))
    return Flow("nccl:a", number, kind, 0, sender, receiver, *ends, state)


@pytest.mark.parametrize(
    ("send", "receive", "state"),
    [
        ((4, 4, 4, 0), (4, 0, 0, 0), FlowState.NOT_DELIVERED),
        ((4, 4, 4, 2), (4, 4, 4, 4), FlowState.NOT_DELIVERED),
        ((4, 1, 0, 0), (0, 0, 0, 0), FlowState.NO_CREDIT),
        ((4, 1, 0, 0), (4, 0, 0, 0), FlowState.CREDIT_LOST),
        ((4, 0, 0, 0), (4, 0, 0, 0), FlowState.GPU_NOT_READY),
        ((4, 2, 2, 2), (4, 2, 2, 2), FlowState.GPU_NOT_READY),
        ((4, 0, 0, 0), (0, 0, 0, 0), FlowState.NO_CREDIT),
        ((4, 4, 4, 4), (4, 4, 4, 1), FlowState.NOT_CONSUMED),
        ((4, 4, 4, 4), (4, 2, 2, 2), FlowState.NOT_DELIVERED),
        ((4, 4, 4, 4), (4, 4, 4, 4), FlowState.UNKNOWN),
    ],
)
def test_the_state_of_a_flow_by_both_ends(
    send: tuple[int, int, int, int], receive: tuple[int, int, int, int], state: FlowState
) -> None:
    assert _both(end(0, send), end(1, receive)) is state


def test_a_full_window_that_the_gpu_does_not_empty_is_no_missing_credit() -> None:
    send, receive = end(0, (20, 12, 8, 8), total=20), end(1, (8, 8, 8, 0), total=20)
    assert _both(send, receive) is FlowState.NOT_CONSUMED


def test_ends_of_different_length_say_nothing() -> None:
    assert _both(end(0, (4, 4, 4, 4), total=4), end(1, (8, 4, 4, 4), total=16)) is FlowState.UNKNOWN


def test_a_network_fault_is_always_a_root() -> None:
    broken = flow(0, 1, FlowState.NOT_DELIVERED)
    assert root_flows([broken, flow(1, 2, FlowState.GPU_NOT_READY)], {}) == (broken,)


def test_a_gpu_in_a_ring_that_waits_for_its_neighbour_is_no_root() -> None:
    """Rank 1 does not run: what it should send and take is stuck, and so is everything behind it."""
    taken, made = flow(0, 1, FlowState.NOT_CONSUMED), flow(1, 2, FlowState.GPU_NOT_READY)
    behind = [flow(2, 3, FlowState.GPU_NOT_READY), flow(3, 0, FlowState.GPU_NOT_READY)]
    assert root_flows([taken, made, *behind], {}) == (taken, made)


def test_a_rank_that_waits_for_a_call_of_another_holds_nothing_up() -> None:
    assert root_flows([flow(0, 1, FlowState.GPU_NOT_READY)], {0: (3,)}) == ()


def test_an_earlier_operation_comes_first() -> None:
    early = flow(0, 1, FlowState.NO_CREDIT, number=1, order=3)
    late = flow(1, 2, FlowState.GPU_NOT_READY, number=9, order=7)
    assert root_flows([early, late], {}) == (early, late), "the early one is held by rank 1 itself"
    held = flow(2, 1, FlowState.NO_CREDIT, number=1, order=3)
    mine = flow(2, 0, FlowState.GPU_NOT_READY, number=9, order=7)
    assert root_flows([held, mine], {}) == (held,), "rank 2 waits for the credit of rank 1 before"


def test_what_moved_a_moment_ago_is_not_stuck() -> None:
    moving = Flow("nccl:a", 1, "p2p", 0, 0, 1, end(0, (4, 4, 4, 0), stuck=1000), None, FlowState.NOT_DELIVERED)
    assert root_flows([moving], {}) == ()


def test_a_call_that_was_not_made_is_no_fault_of_a_flow() -> None:
    assert root_flows([flow(0, 1, FlowState.NOT_ENTERED)], {}) == ()


def roster(*dead: int) -> Roster:
    return Roster({rank: RankFacts(rank, state="absent" if rank in dead else "alive") for rank in range(4)}, 4)


def test_the_log_of_a_process_that_is_gone_shows_no_root() -> None:
    broken, other = flow(0, 1, FlowState.NOT_DELIVERED), flow(2, 3, FlowState.NOT_DELIVERED)
    assert standing_flows(OpenFlows((broken, other)), roster(), wait_graph(())) == (broken, other)
    assert standing_flows(OpenFlows((broken, other)), roster(1), wait_graph(())) == (other,)


def test_a_gpu_behind_a_rank_that_is_gone_is_no_second_fault() -> None:
    """What it should pass on never comes: neither it nor those behind it hold chunks back themselves."""
    from_dead, behind, further = (flow(each, each + 1, FlowState.GPU_NOT_READY) for each in range(3))
    flows = OpenFlows((from_dead, behind, further))
    assert standing_flows(flows, roster(), wait_graph(())) == (from_dead,)
    assert standing_flows(flows, roster(0), wait_graph(())) == ()


def test_a_rank_whose_first_call_lacks_a_member_holds_no_flow_up_itself() -> None:
    held = flow(0, 1, FlowState.GPU_NOT_READY)
    first = Wait("other", 1, {0: None}, absent=(3,))
    assert standing_flows(OpenFlows((held,)), roster(), wait_graph([first])) == ()
    behind = Wait("other", 1, {1: None}, absent=(3,))
    assert standing_flows(OpenFlows((held,)), roster(), wait_graph([behind])) == (held,), "rank 1 does not hold it"
