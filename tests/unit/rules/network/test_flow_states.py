"""What both ends of a flow, or one of them, show of it."""

from __future__ import annotations

from dataclasses import replace

import pytest

from forensics.rules.reductions.network.flow_ends import WINDOW, FlowEnd, FlowState
from forensics.rules.reductions.network.flow_states import Reached, _both, _sender_alone, judged

LONG = 3_000_000_000


def end(rank: int, counts: tuple[int, int, int, int], *, total: int = 4, order: int = 5, stuck: int = LONG) -> FlowEnd:
    """Posted, ready, passed, done."""
    return FlowEnd(rank, total, *counts, since_ns=1_000, stuck_ns=stuck, order=order, source=f"{rank}.frx#entry=-1")


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
    assert _both(end(0, send), end(1, receive), WINDOW) is state


def seen_on_a_queue_pair(rank: int, counts: tuple[int, int, int, int], total: int = 4) -> FlowEnd:
    return replace(end(rank, counts, total=total), queue_pair="mlx5_0/9", in_flight=0)


def test_what_the_nic_of_the_receiver_acknowledged_is_not_lost_on_the_way() -> None:
    """Over sockets a sender is done when its kernel has the bytes: there the network is not excluded."""
    assert _both(seen_on_a_queue_pair(0, (4, 4, 4, 4)), end(1, (4, 2, 2, 2)), WINDOW) is FlowState.NOT_SEEN
    assert _both(end(0, (4, 4, 4, 4)), end(1, (4, 2, 2, 2)), WINDOW) is FlowState.NOT_DELIVERED
    assert _both(seen_on_a_queue_pair(0, (4, 4, 4, 3)), end(1, (4, 2, 2, 2)), WINDOW) is FlowState.NOT_DELIVERED, (
        "one may be lost"
    )


@pytest.mark.parametrize(
    ("receive", "state"),
    [
        ((4, 4, 4, 0), FlowState.NOT_CONSUMED),
        ((4, 3, 3, 0), FlowState.NOT_DELIVERED),
        ((4, 4, 4, 4), FlowState.NO_CREDIT),
    ],
)
def test_a_socket_takes_more_than_its_receiver_has_buffers_for(receive: tuple[int, int, int, int], state: FlowState) -> None:
    """As NCCL 2.28.9 counts over sockets: the kernel of the receiver keeps what no buffer is posted for."""
    assert _both(end(0, (10, 6, 6, 6), total=24), end(1, receive, total=24), WINDOW) is state


@pytest.mark.parametrize(("others", "state"), [(4, FlowState.NOT_CONSUMED), (8, FlowState.NO_CREDIT)])
def test_how_much_a_receiver_may_post_is_shown_by_the_others(others: int, state: FlowState) -> None:
    """NCCL posts fewer steps where a proxy serves many channels at once."""
    stuck = {"send": end(0, (4, 6, 4, 4), total=24), "recv": end(1, (4, 4, 4, 0), total=24)}
    behind = {"send": end(1, (4, 0, 0, 0), total=24), "recv": end(2, (others, 0, 0, 0), total=24)}
    flows = {KEY: stuck, (*KEY[:4], 1, 2): behind}
    found, _ = judged(flows, Reached({}, frozenset(), frozenset({0, 1, 2})))
    assert found.state is state


KEY = ("nccl:a", 1, "all_reduce", 0, 0, 1)


@pytest.mark.parametrize(
    ("ends", "steps", "state"),
    [
        ({"recv": seen_on_a_queue_pair(1, (4, 2, 2, 2))}, 4, FlowState.NOT_SEEN),
        ({"recv": seen_on_a_queue_pair(1, (4, 2, 2, 2))}, 2, FlowState.UNKNOWN),
        ({"recv": seen_on_a_queue_pair(1, (4, 0, 0, 0))}, None, FlowState.NOT_STARTED),
        ({"recv": seen_on_a_queue_pair(1, (4, 2, 2, 2))}, None, FlowState.UNKNOWN),
        ({"recv": seen_on_a_queue_pair(1, (4, 4, 4, 2))}, 4, FlowState.NOT_CONSUMED),
        ({"send": seen_on_a_queue_pair(0, (4, 4, 4, 3))}, 4, FlowState.NOT_DELIVERED),
    ],
    ids=("unseen", "fewer were sent", "none were sent", "its history is lost", "taken by nobody", "not acknowledged"),
)
def test_an_end_that_is_through_is_none_that_did_not_begin(
    ends: dict[str, FlowEnd], steps: int | None, state: FlowState
) -> None:
    """One channel of a collective may be through while another one stands still."""
    (direction,) = {"send", "recv"} - ends.keys()
    entered = {("nccl:a", rank, "", -1): (1, 0) for rank in (0, 1)}
    ended = {} if steps is None else {(KEY, direction): steps}
    (found,) = judged({KEY: ends}, Reached(entered, frozenset({0, 1}), frozenset({0, 1}), ended=ended))
    assert found.state is state


@pytest.mark.parametrize(
    ("counts", "state"),
    [
        ((4, 4, 4, 2), FlowState.NOT_CONSUMED),
        ((2, 2, 2, 2), FlowState.NO_CREDIT),
        ((4, 2, 2, 2), FlowState.UNKNOWN),
        ((2, 2, 2, 1), FlowState.NOT_CONSUMED),
        ((4, 4, 4, 4), FlowState.UNKNOWN),
    ],
)
def test_a_receiver_alone_tells_what_it_does_not_do_itself(counts: tuple[int, int, int, int], state: FlowState) -> None:
    """Empty buffers wait for a sender without a log; one that takes nothing, or offers nothing, needs no other end."""
    (found,) = judged({KEY: {"recv": end(1, counts)}}, Reached({}, frozenset({1}), frozenset({1})))
    assert found.state is state


def test_a_proxy_that_sees_no_arrivals_sees_no_credit_and_no_completion_either() -> None:
    keys = {(sender, receiver): (*KEY[:4], sender, receiver) for sender, receiver in ((0, 1), (1, 2), (2, 3))}
    ends = {
        keys[0, 1]: {"send": seen_on_a_queue_pair(0, (4, 4, 4, 4)), "recv": seen_on_a_queue_pair(1, (4, 2, 2, 2))},
        keys[1, 2]: {"send": seen_on_a_queue_pair(1, (4, 4, 2, 1)), "recv": seen_on_a_queue_pair(2, (4, 2, 2, 2))},
        keys[2, 3]: {"send": seen_on_a_queue_pair(2, (4, 4, 2, 1)), "recv": seen_on_a_queue_pair(3, (4, 2, 2, 2))},
    }
    found = judged(ends, Reached({}, frozenset(), frozenset()))
    assert [each.state for each in found] == [FlowState.NOT_SEEN, FlowState.NOT_SERVED, FlowState.NOT_DELIVERED]


def test_a_full_window_that_the_gpu_does_not_empty_is_no_missing_credit() -> None:
    send, receive = end(0, (20, 12, 8, 8), total=20), end(1, (8, 8, 8, 0), total=20)
    assert _both(send, receive, WINDOW) is FlowState.NOT_CONSUMED


def test_ends_of_different_length_say_nothing() -> None:
    assert _both(end(0, (4, 4, 4, 4), total=4), end(1, (8, 4, 4, 4), total=16), WINDOW) is FlowState.UNKNOWN


@pytest.mark.parametrize(
    ("counts", "in_flight", "oldest_s", "state"),
    [
        ((8, 6, 2, 2), 0, None, FlowState.RECEIVER_SIDE),
        ((8, 6, 4, 2), 2, 5, FlowState.NOT_ACKNOWLEDGED),
        ((8, 6, 2, 2), 2, 5, FlowState.NOT_ACKNOWLEDGED),
        ((8, 6, 4, 2), 2, 0, FlowState.UNKNOWN),
        ((8, 6, 4, 2), 0, None, FlowState.UNKNOWN),
        ((8, 2, 2, 2), 0, None, FlowState.UNKNOWN),
        ((8, 6, 2, 2), None, None, FlowState.UNKNOWN),
    ],
)
def test_a_sender_alone_tells_a_side_by_its_queue_pair(
    counts: tuple[int, int, int, int], in_flight: int | None, oldest_s: int | None, state: FlowState
) -> None:
    """Handed over and neither done nor in flight, a GPU that gives nothing, and an unknown queue pair tell nothing."""
    oldest = None if oldest_s is None else oldest_s * 1_000_000_000
    assert _sender_alone(replace(end(0, counts, total=8), in_flight=in_flight, oldest_ns=oldest)) is state
