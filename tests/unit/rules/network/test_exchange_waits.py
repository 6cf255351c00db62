"""Who comes late to an exchange, on messages whose two ends are made up, and which communicators exchange at all."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import duckdb
import pytest
from duckdb import DuckDBPyConnection

from forensics.model import Belief, Cause, Confidence, Finding, StageRef
from forensics.rules.reductions.network.exchange_waits import exchange_calls
from forensics.rules.reductions.network.flow_stages import flow_stages
from forensics.rules.reductions.network.late_by_load import LEAST_LOAD, by_load
from forensics.rules.reductions.network.stragglers import Straggler, stragglers
from tests.unit.rules.network.made_up_flows import MS, exchange, flows_of

_LEAST_NS = 100_000


@pytest.fixture
def connection() -> Iterator[DuckDBPyConnection]:
    with flows_of(4) as opened:
        yield opened


def uneven(sender: int, receiver: int) -> float:
    """Most goes to the experts of member 0: its messages take ten times as long as others."""
    return 10.0 if receiver == 0 else 1.0 + (sender * 3 + receiver) % 4 / 10


def found_in(connection: DuckDBPyConnection) -> Straggler | None:
    found = [each for each in stragglers(connection, _LEAST_NS) if each.share > 0.005]
    return found[0] if found else None


@pytest.mark.parametrize("skew_ns", [0, 37 * 60 * 1_000_000_000])
@pytest.mark.parametrize("by", ["host", "gpu"])
def test_a_late_member_is_distinguished_from_long_messages(connection: DuckDBPyConnection, by: str, skew_ns: int) -> None:
    """Members wait far longer for the messages of another one, which are long, than for the late one."""
    late = [0.0, 0.5, 8.0, 0.2]
    for number in range(12):
        exchange(connection, number, late if by == "host" else [0.0] * 4, [0.0] * 4 if by == "host" else late, uneven, skew_ns)
    found = found_in(connection)
    assert found is not None and (found.rank, found.late, found.calls, found.kind) == (2, 12, 12, "all_to_all")
    assert found.typical_ns == pytest.approx(7.5 * MS, rel=0.05)
    assert found.load < LEAST_LOAD, "its own part is an even one"


def test_a_gpu_that_is_late_to_short_messages(connection: DuckDBPyConnection) -> None:
    """All of them fit into the buffers: who sends to it is done, and what arrived waits for it."""
    for number in range(12):
        exchange(connection, number, [0.0] * 4, [0.0, 0.1, 8.0, 0.0], uneven)
    connection.execute(
        "UPDATE ended_flows SET took_ns = took_ns - credit_ns, end_ns = end_ns - credit_ns::BIGINT, credit_ns = 0 WHERE sends "
        "AND credit_ns > 0 AND other = 2"
    )
    found = found_in(connection)
    assert found is not None and (found.rank, found.late) == (2, 12)


def test_a_member_with_long_messages_is_not_late(connection: DuckDBPyConnection) -> None:
    for number in range(12):
        exchange(connection, number, [0.0] * 4, [0.0] * 4, uneven)
    assert found_in(connection) is None


def test_what_a_late_member_moves_is_stated(connection: DuckDBPyConnection) -> None:
    for number in range(12):
        exchange(connection, number, [8.0, 0.0, 0.1, 0.2], [0.0] * 4, uneven)
    found = found_in(connection)
    assert found is not None and found.rank == 0 and found.load > 2


def test_a_member_that_waits_for_another_is_not_the_late_one(connection: DuckDBPyConnection) -> None:
    """Two come late, and only what the last one adds is its own."""
    for number in range(12):
        exchange(connection, number, [0.0, 7.0, 8.0, 0.0], [0.0] * 4, uneven)
    found = found_in(connection)
    assert found is not None and found.rank == 2 and found.typical_ns == pytest.approx(MS, rel=0.1)


def test_messages_of_two_calls_under_one_number_are_no_exchange(connection: DuckDBPyConnection) -> None:
    """Who sends nothing to somebody leaves a message out: later numbers of the two are those of other calls."""
    for number in range(12):
        exchange(connection, number, [0.0, 0.0, 8.0, 0.0], [0.0] * 4, uneven)
    connection.execute("UPDATE ended_flows SET group_call = group_call + 1 WHERE rank = 1 AND other = 3 AND number >= 6")
    (calls,) = exchange_calls(connection).values()
    assert [call.number for call in calls] == [0, 1, 2, 3, 4, 5]


def test_without_a_log_of_a_member_nothing_is_compared(connection: DuckDBPyConnection) -> None:
    for number in range(12):
        exchange(connection, number, [0.0, 0.0, 8.0, 0.0], [0.0] * 4, uneven)
    connection.execute("DELETE FROM ended_flows WHERE rank = 0")
    assert not any(exchange_calls(connection).values())


def test_a_member_that_only_sends_is_compared_with_nobody(connection: DuckDBPyConnection) -> None:
    """A log may state too small a size: the others alone would be as many."""
    for number in range(12):
        exchange(connection, number, [0.0, 0.0, 8.0, 0.0], [0.0] * 4, uneven)
    connection.execute("DELETE FROM ended_flows WHERE (sends AND other = 0) OR (NOT sends AND rank = 0)")
    connection.execute("UPDATE ended_flows SET size = 3")
    assert not any(exchange_calls(connection).values())


def stages_of(sends_to: dict[int, list[int]], group_call: int | None) -> bool:
    """Whether members are equals, who send to these in groups."""
    with duckdb.connect() as opened:
        opened.execute("CREATE TABLE members (communicator VARCHAR, position INTEGER, rank INTEGER)")
        opened.execute(
            "CREATE TABLE operations (source_id BIGINT, communicator VARCHAR, rank INTEGER, is_p2p BOOLEAN, kind VARCHAR, "
            "peer INTEGER, group_call BIGINT, bytes BIGINT)"
        )
        for rank, peers in sends_to.items():
            opened.execute("INSERT INTO members VALUES ('c', ?, ?)", [rank, rank])
            for peer in peers:
                opened.execute(
                    "INSERT INTO operations VALUES (?, 'c', ?, true, 'send', ?, ?, 8)", [rank, rank, peer, group_call]
                )
        return flow_stages(opened, sends_to).alike(sends_to)


@pytest.mark.parametrize(
    ("sends_to", "group_call", "are_equals"),
    [
        ({rank: [0, 1, 2, 3] for rank in range(4)}, 7, True),
        ({rank: [(rank + 1) % 4, (rank - 1) % 4] for rank in range(4)}, 7, False),
        ({0: [1], 1: [0, 2], 2: [1, 3], 3: [2]}, None, False),
    ],
    ids=["exchange", "interleaved pipeline", "pipeline"],
)
def test_an_exchange_is_no_pipeline(sends_to: dict[int, list[int]], group_call: int | None, are_equals: bool) -> None:
    assert stages_of(sends_to, group_call) is are_equals


@pytest.mark.parametrize(
    ("load", "had_onset", "cause", "confidence"),
    [
        (1.1, True, Cause.UNKNOWN, Confidence.LIKELY),
        (1.8, True, Cause.EXPERT_IMBALANCE, Confidence.LIKELY),
        (1.8, False, Cause.EXPERT_IMBALANCE, Confidence.SUSPECT),
    ],
    ids=["even", "became uneven", "always was"],
)
def test_a_load_accounts_for_a_lateness(load: float, had_onset: bool, cause: Cause, confidence: Confidence) -> None:
    late = Straggler(
        2, "ep", "all_to_all", (0, 1, 2, 3), 20, 20, 20, 8e6, 1e5, 1e8, 0.2, 0.0, 0.0, 0.0, 8e6, 0.0, "x", had_onset, load=load
    )
    finding = Finding((2,), Cause.UNKNOWN, StageRef(), Belief.BEHIND_AND_BUSY, Confidence.LIKELY, ())
    found = by_load(finding, late, LEAST_LOAD)
    assert (found.cause, found.confidence) == (cause, confidence)
    assert by_load(finding, replace(late, load=LEAST_LOAD - 0.01), LEAST_LOAD) == finding
