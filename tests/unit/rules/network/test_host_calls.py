"""Of ranks of one host that hold flows up, the one that has made the fewest calls inside it."""

from __future__ import annotations

import duckdb
import pytest

from forensics.rules.reductions.calls.positions import Communicator, Communicators
from forensics.rules.reductions.calls.shim_calls import Calls
from forensics.rules.reductions.network.flow_ends import Flow, FlowEnd, FlowState
from forensics.rules.reductions.network.flow_faults import FaultyFlows
from forensics.rules.reductions.network.host_calls import Made, behind_others, held_in_hosts
from forensics.rules.reductions.ranks.roster import RankFacts, Roster

ROSTER = Roster({rank: RankFacts(rank, host=f"host{rank // 3}") for rank in range(6)}, 6)


@pytest.mark.parametrize(
    ("made", "held"),
    [
        ({0: Made(4, 3), 1: Made(5, 4), 2: Made(5, 4)}, [1, 2]),
        ({0: Made(4, 3), 1: Made(5, 3), 2: Made(5, 5)}, [2]),
        ({0: Made(5, 4), 1: Made(5, 4)}, []),
    ],
    ids=["one is behind", "nothing shows that rank 1 came as far as rank 0", "all are as far"],
)
def test_whoever_came_as_far_and_made_one_more_waits_for_the_one_behind(made: dict[int, Made], held: list[int]) -> None:
    assert list(behind_others(made)) == held


def held(members: tuple[int, ...], stuck: dict[int, int], *, dumped: frozenset[int] = frozenset()) -> frozenset[int]:
    """Calls of a communicator at the places 10, 20, ... of each rank, messages at 15, 25, ..., all done but the last."""
    faulty = [
        Flow("pp", place, "p2p", 0, rank + 3, rank, None, FlowEnd(rank, 2, 2, 2, 2, 0, 0, 0, place, ""), FlowState.NOT_CONSUMED)
        for rank, place in stuck.items()
    ]
    with duckdb.connect() as connection:
        connection.execute(
            "CREATE TABLE latest_call AS SELECT r.r AS rank, 'tp' AS communicator, n.n AS sequence, 'pending' AS state,"
            " 10 * n.n AS record_id, NULL::BIGINT AS entered_ns, 0 AS locator FROM range(3) r, range(1, 9) n"
        )
        for rank, place in stuck.items():
            connection.execute(f"INSERT INTO latest_call VALUES ({rank}, 'pp', 1, 'done', {place - 10}, NULL, 0)")
        groups = Communicators((Communicator("tp", members, "read", {}),))
        calls = Calls(connection, dumped, frozenset(range(6)), frozenset())
        return held_in_hosts(calls, groups, ROSTER, FaultyFlows(tuple(faulty)))


def test_a_message_behind_one_call_more_of_the_host_is_held_by_it() -> None:
    assert held((0, 1, 2), {0: 35, 1: 45, 2: 45}) == {1, 2}


def test_calls_between_hosts_and_dumps_say_nothing_here() -> None:
    assert held((0, 1, 3), {0: 35, 1: 45}) == frozenset()
    assert held((0, 1, 2), {0: 35, 1: 45}, dumped=frozenset({0})) == frozenset()
    assert held((0, 1, 2), {0: 35, 1: 35}) == frozenset()
