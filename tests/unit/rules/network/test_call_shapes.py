"""Rings and trees of collectives as their open flows show them, and where a ring ran dry."""

from __future__ import annotations

from dataclasses import replace

import pytest

from forensics.rules.reductions.network.call_shapes import Tree, feeds, run_dry, tree_of, unbegun
from forensics.rules.reductions.network.flow_ends import Flow, FlowEnd, FlowState


def end(rank: int, ready: int) -> FlowEnd:
    """An end at which all that was ready is done."""
    return FlowEnd(rank, 64, 64, ready, ready, ready, since_ns=0, stuck_ns=5_000_000_000, order=1, source="x#entry=-1")


def flow(sender: int, receiver: int, steps: int, *, logged: tuple[bool, bool] = (True, True)) -> Flow:
    ends = (end(sender, steps) if logged[0] else None, end(receiver, steps) if logged[1] else None)
    state = FlowState.GPU_NOT_READY if all(logged) else FlowState.UNKNOWN
    return Flow("nccl:a", 1, "all_reduce", 0, sender, receiver, *ends, state)


def ring(*steps: int) -> list[Flow]:
    """Flows of a ring of hosts; `steps` are those that each rank sent on."""
    return [flow(rank, (rank + 1) % len(steps), each) for rank, each in enumerate(steps)]


def tree() -> list[Flow]:
    """Ranks 1 and 2 below rank 0, rank 3 below rank 1."""
    edges = [(1, 0), (2, 0), (3, 1)]
    return [flow(*edge, 9) for edge in edges] + [flow(*edge[::-1], 4) for edge in edges]


def test_what_is_ahead_leads_to_the_root() -> None:
    found = tree_of(tree(), {})
    assert found.root == (0,) and ((3,), (1,)) in found.up and ((1,), (3,)) in found.down


def test_sums_do_not_wait_for_results_but_at_the_root() -> None:
    flows = tree()
    found, up, down = tree_of(flows, {}), flows[0], flows[3]
    assert not feeds(down, up, (1,), found, {}) and feeds(up, down, (1,), found, {})
    assert feeds(down, up, (0,), found, {}), "the root sends back what it sums"


@pytest.mark.parametrize("flows", [ring(5, 5, 5, 5), [flow(0, 1, 5), flow(1, 0, 4)]], ids=["ring", "two ranks"])
def test_a_ring_is_no_tree(flows: list[Flow]) -> None:
    assert tree_of(flows, {}) == Tree()


def test_a_tree_whose_ways_are_as_far_tells_no_direction() -> None:
    edges = [(1, 0), (2, 0)]
    flows = [flow(*edge, 4) for edge in edges] + [flow(*edge[::-1], 4) for edge in edges]
    assert tree_of(flows, {}) == Tree()


def test_the_place_that_sent_on_less_of_what_it_got_is_where_the_ring_ran_dry() -> None:
    """Each sends one step more than it got, rank 2 stopped: what the others sent on ends there."""
    assert run_dry(ring(3, 4, 5, 6)[:3], {}) is None, "no ring"
    found = run_dry([flow(0, 1, 3), flow(1, 2, 4), flow(2, 3, 1), flow(3, 0, 2)], {})
    assert found is not None and (found.sender, found.state) == (2, FlowState.GPU_NOT_READY)
    assert run_dry([flow(0, 1, 3), flow(1, 2, 4), flow(2, 3, 1), flow(3, 0, 1)], {}) is None, "two are behind"
    assert run_dry(ring(4, 4, 4, 4), {}) is None, "all alike"


def test_a_place_without_a_log_is_a_side() -> None:
    flows = [flow(0, 1, 3), flow(1, 2, 4, logged=(True, False)), flow(2, 3, 1, logged=(False, True)), flow(3, 0, 2)]
    found = run_dry(flows, {})
    assert found is not None and (found.receiver, found.state) == (2, FlowState.RECEIVER_SIDE)


def test_ranks_of_one_host_are_one_place() -> None:
    """Two hosts of two: between them the steps of rank 0 go on to rank 1, which no flow shows."""
    places = {("nccl:a", rank): (rank // 2 * 2, rank // 2 * 2 + 1) for rank in range(4)}
    found = run_dry([flow(1, 2, 6), flow(3, 0, 4)], places)
    assert found is not None and found.sender == 3
    assert run_dry([flow(1, 2, 6), flow(3, 0, 4)], {}) is None
    assert run_dry([flow(0, 2, 6), flow(2, 0, 4)], places) is None, "may be a tree"


def begun(parents: dict[int, int], starved: set[int], channel: int) -> list[Flow]:
    """A tree in which all but `starved` places have filled the buffers of their parents, and nothing has come back."""
    up = [replace(flow(child, parent, 0 if child in starved else 8), channel=channel) for child, parent in parents.items()]
    return [*up, *(replace(flow(parent, child, 0), channel=channel) for child, parent in parents.items())]


def test_the_place_that_two_trees_have_in_common_never_began() -> None:
    """Rank 1 is below rank 0 in one tree, and below rank 2 in the other: both roots wait for it."""
    one, other = begun({1: 0, 2: 0, 3: 2}, {1}, 0), begun({1: 2, 0: 1, 3: 2}, {1}, 1)
    assert {(each.sender, each.receiver) for each in unbegun([one, other], {})} == {(1, 0), (1, 2)}
    assert unbegun([one], {}) == (), "of one tree either end may be the lower one"
    assert unbegun([one, begun({1: 0, 2: 0, 3: 2}, {1}, 1)], {}) == (), "the same neighbours in both"
    assert unbegun([one, begun({1: 0, 2: 0, 3: 2}, set(), 1)], {}) == (), "the other tree began everywhere"


def test_two_places_that_never_began_are_not_one() -> None:
    one, other = begun({1: 0, 2: 0, 3: 2}, {1, 3}, 0), begun({0: 3, 1: 3, 2: 1}, {1, 3}, 1)
    assert unbegun([one, other], {}) == ()
