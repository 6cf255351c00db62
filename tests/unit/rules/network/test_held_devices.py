"""Devices that stand in a call inside their host, which logs of the library do not show, are not accused for it."""

from __future__ import annotations

import duckdb
import pytest

from forensics.rules.reductions.calls.positions import Communicator, Communicators
from forensics.rules.reductions.calls.shim_calls import Calls
from forensics.rules.reductions.mismatch.disagreements import BlockingMismatches, Call, Disagreement
from forensics.rules.reductions.network.chunk_flows import OpenFlows
from forensics.rules.reductions.network.flow_ends import Flow, FlowEnd, FlowState
from forensics.rules.reductions.network.held_devices import held_devices
from forensics.rules.reductions.ranks.roster import RankFacts, Roster
from forensics.rules.reductions.ranks.shim_logs import ShimLog, ShimLogs
from forensics.rules.reductions.waits.graph import Wait
from forensics.rules.reductions.waits.sinks import wait_graph

ROSTER = Roster({rank: RankFacts(rank, host=f"host{rank // 4}") for rank in range(8)}, 8)
PIPELINE = Wait("pipeline", 1, {2: None}, absent=(6,))
"""Rank 2 of the first host waits for a send that rank 6 of the second has not made."""
NO_FLOWS = OpenFlows(())
AGREED = BlockingMismatches(())
LOGS = ShimLogs({rank: ShimLog(rank, rank, "", None, 0, 0, None, False, None, None, None, frozenset()) for rank in range(8)})


def link(state: FlowState) -> OpenFlows:
    """A flow from rank 2 of the first host to rank 6 of the second."""
    return OpenFlows((Flow("pipeline", 1, "p2p", 0, 2, 6, None, None, state),))


def held(
    *waits: Wait,
    groups: tuple[tuple[int, ...], ...],
    dumped: frozenset[int] = frozenset(),
    flows: OpenFlows = NO_FLOWS,
    blocking: BlockingMismatches = AGREED,
    logs: ShimLogs = LOGS,
) -> frozenset[int]:
    communicators = Communicators(tuple(Communicator(str(members), members, "read", {}) for members in groups))
    with duckdb.connect() as connection:
        calls = Calls(connection, dumped, frozenset(range(8)), frozenset({7}))
        return held_devices(calls, communicators, wait_graph(waits), ROSTER, flows, blocking, logs) - {7}


@pytest.mark.parametrize(
    ("groups", "ranks"),
    [
        (((0, 2), (0, 1)), {0, 1}),
        (((1, 3), (0, 1)), set()),
        (((0, 1, 2, 3, 4, 5, 6, 7),), set()),
        (((4, 6), (2, 6)), set()),
    ],
    ids=["through a neighbour", "not joined to it", "a call between hosts is seen", "neighbours of the one that is absent"],
)
def test_whoever_shares_a_call_of_its_host_with_a_victim_may_be_held(
    groups: tuple[tuple[int, ...], ...], ranks: set[int]
) -> None:
    assert held(PIPELINE, groups=groups) == ranks


def test_whoever_the_absent_rank_waits_for_is_not_held() -> None:
    """Rank 6 did not come because it waits for rank 0 itself: rank 0 is the one to look at."""
    behind = Wait("ring", 1, {6: None}, absent=(0,))
    assert held(PIPELINE, behind, groups=((0, 1, 2),)) == {1}


def test_dumps_tell_what_is_in_front() -> None:
    assert held(PIPELINE, groups=((0, 2),), dumped=frozenset({0})) == set()


def test_a_rank_that_is_undetermined_is_held_in_any_case() -> None:
    with duckdb.connect() as connection:
        calls = Calls(connection, undetermined=frozenset({7}))
        assert held_devices(calls, Communicators(()), wait_graph(()), ROSTER, NO_FLOWS, AGREED, LOGS) == frozenset({7})


@pytest.mark.parametrize(
    ("state", "ranks"), [(FlowState.NOT_DELIVERED, {0, 1, 4}), (FlowState.CREDIT_LOST, {0, 1, 4}), (FlowState.NO_CREDIT, set())]
)
def test_whoever_shares_a_call_with_an_end_of_a_broken_link_may_be_held(state: FlowState, ranks: set[int]) -> None:
    """The ends themselves are not: what holds them is the link."""
    assert held(groups=((0, 1, 2), (4, 6)), flows=link(state)) == ranks


def test_whoever_made_different_calls_is_held_and_so_are_their_neighbours() -> None:
    made = {rank: Call(kind, "", kind, None, "pending", None, "") for rank, kind in ((1, "all_reduce"), (2, "reduce_scatter"))}
    differing = BlockingMismatches((Disagreement("pair", 1, made, (), (), None),))
    assert held(groups=((1, 2), (0, 1), (4, 5)), blocking=differing) == {0, 1, 2}
    assert held(groups=((1, 2), (0, 1), (4, 5)), blocking=differing, dumped=frozenset(range(8))) == set()


def test_whoever_shares_a_call_with_a_rank_that_is_undetermined_may_be_held() -> None:
    """Rank 7 may wait for one whose log is lost, and rank 5 for it."""
    assert held(groups=((5, 7), (4, 6))) == {5}
    assert held(groups=((5, 7), (4, 6)), dumped=frozenset({5})) == set()


def test_whoever_shares_a_call_with_one_that_faces_a_rank_without_a_log_may_be_held() -> None:
    waiting = FlowEnd(2, 8, 8, 0, 0, 0, 0, 9_000_000_000, 1, "")
    flows = OpenFlows((Flow("pipeline", 1, "p2p", 0, 6, 2, None, waiting, FlowState.UNKNOWN),))
    assert held(groups=((0, 2), (1, 3)), flows=flows, logs=ShimLogs({2: LOGS[2], 0: LOGS[0]})) == {0}
    assert held(groups=((0, 2), (1, 3)), flows=flows) == set()
