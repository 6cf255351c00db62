"""Which end of a dead link is named: the one whose own port failed, if it is one."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace
from pathlib import Path

import pytest
from duckdb import DuckDBPyConnection

from forensics.case.build import open_case
from forensics.case.logged_calls import complete_calls
from forensics.model import Belief, Cause, Confidence, Evidence, Granularity, Members, Suspect
from forensics.rules.collectives import chunk_not_delivered, joined_not_finished
from forensics.rules.collectives.joined_not_finished import _called
from forensics.rules.collectives.work_request_failed import _resource
from forensics.rules.diagnosis import diagnose
from forensics.rules.engine import run, supply_of
from forensics.rules.reductions.calls.positions import Operation
from forensics.rules.reductions.hardware.ports_down import DownNic, PortsDown
from forensics.rules.reductions.network.failed_ports import FailedPorts, own_end
from forensics.rules.reductions.network.flow_ends import Flow
from forensics.rules.reductions.network.flow_faults import FaultyFlows
from forensics.rules.reductions.network.work_requests import QueuePair
from forensics.rules.reductions.ranks.nic_users import NicUsers
from forensics.rules.reductions.ranks.roster import RankFacts, Roster
from forensics.rules.reductions.waits.graph import Wait, WaitGraph
from forensics.rules.reductions.waits.sinks import wait_graph
from tests.recordings.scenarios import recorded

SCENARIOS = Path(__file__).parents[4] / "fixtures/scenarios"
LINE = "NET/IB : mlx5_0:1 Got async event : port error"


@pytest.mark.parametrize(
    ("failed", "named"), [((), None), ((0,), (0,)), ((2,), (2, 3)), ((3,), (2, 3)), ((0, 2), None), ((5,), None)]
)
def test_the_one_end_that_says_so(failed: Collection[int], named: tuple[int, ...] | None) -> None:
    assert own_end(FailedPorts(dict.fromkeys(failed, LINE)), ((0,), (2, 3))) == named


def first_suspect(scenario: str, *ranks: int) -> Suspect:
    """Of a scenario with a log line of a failed port on some ranks."""
    return diagnose(with_failed_port(scenario, *ranks)).suspects[0]


def with_failed_port(scenario: str, *ranks: int) -> DuckDBPyConnection:
    """A scenario with such lines."""
    connection = open_case([SCENARIOS / scenario / "bundle.tar.zst"])
    for rank in ranks:
        connection.execute(
            "INSERT INTO log_events (source_id, locator, rank, host, kind, subject, text) "
            "SELECT min(source_id), ?, ?, 'host-' || ?, 'nic_event', 'mlx5_0:1 port error', ? FROM sources",
            [rank, rank, rank, LINE],
        )
    complete_calls(connection)
    return connection


@pytest.mark.slow
@pytest.mark.parametrize("scenario", ["chunk-not-delivered", "work-request-failed"])
@pytest.mark.first(1)
def test_both_ends_of_a_dead_link_until_one_port_is_known_to_have_failed(scenario: str) -> None:
    link, two = first_suspect(scenario), first_suspect(scenario, 0, 2)
    assert link.ranks == two.ranks == (0, 2) and link.members is two.members is Members.ONE_OF
    for rank in (0, 2):
        one = first_suspect(scenario, rank)
        assert (one.ranks, one.members, one.granularity) == ((rank,), Members.EACH, Granularity.NIC)
        assert one.mechanism is not None and one.mechanism.side == "local"
        assert one.confidence in (Confidence.CONFIRMED, Confidence.LIKELY)


@pytest.mark.parametrize(
    ("read", "belief"), [({0}, Belief.DIRECT_RECORD), ({2}, Belief.BEHIND_AND_BUSY), (set(), Belief.BEHIND_AND_BUSY)]
)
def test_a_port_that_reads_as_down_is_a_record_of_the_fault(read: set[int], belief: Belief) -> None:
    """However short the waits are so far: it lifts a finding about its own NIC, and no other."""
    given: dict[object, object] = {
        FailedPorts: FailedPorts({0: LINE}),
        PortsDown: PortsDown({rank: DownNic("mlx5_0", Evidence("its port reads DOWN", "counters")) for rank in read}),
    }
    (found,) = run(supply_of(recorded("chunk-not-delivered"), instead=given), [chunk_not_delivered.RULE], {})[0]
    assert found.ranks == (0,) and (found.belief is Belief.DIRECT_RECORD) == (read == {0})


@pytest.mark.parametrize(("is_down", "named"), [(True, (0, 1)), (False, (0,))])
def test_a_port_that_is_down_is_so_for_all_ranks_on_its_nic(named: tuple[int, ...], *, is_down: bool) -> None:
    """Whichever of them had something to send over it."""
    case = recorded("chunk-not-delivered")
    (flow, *_) = supply_of(case).get(FaultyFlows)
    other = replace(flow, receiver=3) if flow.sender == 0 else replace(flow, sender=3)
    given: dict[object, object] = {
        FaultyFlows: FaultyFlows((flow, other)),
        PortsDown: PortsDown({0: DownNic("mlx5_0", Evidence("its port reads DOWN", "counters"))} if is_down else {}),
        NicUsers: NicUsers({("a", "mlx5_0"): (0, 1)}, {0: (0, 1), 1: (0, 1)}),
    }
    (found,) = run(supply_of(case, instead=given), [chunk_not_delivered.RULE], {})[0]
    assert found.ranks == named


@pytest.mark.parametrize(("failed", "other"), [(0, 2), (2, 0)])
def test_the_nic_and_the_peer_are_those_of_the_accused_end(failed: int, other: int) -> None:
    given: dict[object, object] = {FailedPorts: FailedPorts({failed: LINE})}
    (found,) = run(supply_of(recorded("chunk-not-delivered"), instead=given), [chunk_not_delivered.RULE], {})[0]
    at = found.resource
    assert found.ranks == (failed,) and at is not None and at.peer_ranks == (other,)
    assert at.queue_pair is None or at.nic is None or at.queue_pair.startswith(at.nic)


@pytest.mark.slow
@pytest.mark.first(1)
def test_the_member_of_an_unfinished_operation_whose_port_failed() -> None:
    """Without anything from inside the operation; two of three that say so are distinguished by nothing."""
    group, one, most = (first_suspect("joined-not-finished", *ranks) for ranks in ((), (1,), (0, 1, 2)))
    assert group.members is most.members is Members.ONE_OF and group.ranks == most.ranks
    assert {1} < {*group.ranks} and (one.ranks, one.members) == ((1,), Members.EACH)
    assert (one.cause, one.granularity, one.confidence) == (Cause.NETWORK_DOWN, Granularity.NIC, Confidence.LIKELY)


@pytest.mark.parametrize(
    ("left", "named"), [(RankFacts(3), [(1,)]), (RankFacts(3, has_stack=True), [])], ids=["nothing", "a stack"]
)
def test_a_failed_port_where_others_wait_for_a_rank_that_left_nothing(left: RankFacts, named: list[tuple[int, ...]]) -> None:
    """Whoever left a stack is somewhere, and may be what the others wait for."""
    case = with_failed_port("joined-not-finished", 1)
    supply = supply_of(case)
    (wait, *_), roster = supply.get(WaitGraph).roots[0].waits, supply.get(Roster)
    inside = {rank: call for rank, call in wait.waiting.items() if rank != 3}
    given: dict[object, object] = {
        WaitGraph: wait_graph([replace(wait, waiting=inside, unheard=(3,))]),
        Roster: replace(roster, ranks={**roster.ranks, 3: left}),
    }
    found = run(supply_of(case, instead=given), [joined_not_finished.RULE], {})[0]
    assert [each.ranks for each in found] == named
    assert all((each.cause, each.confidence) == (Cause.NETWORK_DOWN, Confidence.SUSPECT) for each in found)


@pytest.mark.slow
def test_a_failed_port_of_a_rank_that_is_elsewhere_changes_nothing() -> None:
    assert first_suspect("joined-not-finished", 99).ranks == first_suspect("joined-not-finished").ranks


@pytest.mark.parametrize(("order", "number"), [(3, 92), (7, 91)], ids=["called before", "called after"])
def test_a_nic_that_carries_nothing_stands_still_in_what_its_rank_called_first(order: int, number: int) -> None:
    """Later calls stand still as well, and their order in the evidence says nothing."""
    case = recorded("chunk-not-delivered")
    flow = supply_of(case).get(FaultyFlows)[0]

    def called(number: int, order: int) -> Flow:
        send, receive = (replace(end, order=order) if end else None for end in (flow.send, flow.receive))
        return replace(flow, number=number, send=send, receive=receive)

    given: dict[object, object] = {
        FailedPorts: FailedPorts({0: LINE}),
        FaultyFlows: FaultyFlows((called(91, 5), called(92, order))),
    }
    (found,) = run(supply_of(case, instead=given), [chunk_not_delivered.RULE], {})[0]
    assert (found.ranks, found.stage.sequence) == ((0,), number)


@pytest.mark.parametrize(("ranks", "nic", "whom"), [((2,), "mlx5_2", 0), ((0,), None, 2)], ids=["its own", "of the other end"])
def test_only_a_request_of_the_accused_end_shows_its_nic(ranks: tuple[int, ...], nic: str | None, whom: int) -> None:
    pair = QueuePair(2, "mlx5_2/7", "mlx5_2", 1, 0, "fe80::1", 6, None, 12, None, 5, "x")
    found = _resource((pair,), ranks)
    assert (found.nic, found.peer_ranks) == (nic, (whom,))


def test_messages_there_and_back_have_the_order_in_which_the_rank_called_them() -> None:
    calls = [Operation("send", "", 1, None, "fr#entry=1", order=order) for order in (1, 2)]
    there, back = (Wait("pp", 182, {22: one, 54: other}, ()) for one, other in (calls, calls[::-1]))
    assert [_called(wait, 54) for wait in (there, back)] == [2, 1]
    assert _called(there, 9) == float("inf")
