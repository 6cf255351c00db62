"""Stragglers, and whether they are late by themselves, on flows whose times are made up from waits."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from duckdb import DuckDBPyConnection

from forensics.rules.reductions.network.stragglers import Straggler, stragglers
from tests.unit.rules.network.made_up_flows import MS, STEP_NS, Waits, flows_of, message, ring

_LEAST_NS = 100_000


@pytest.fixture
def connection() -> Iterator[DuckDBPyConnection]:
    with flows_of(4) as opened:
        yield opened


def only(found: tuple[Straggler, ...]) -> Straggler:
    (each,) = found
    return each


def waits_for(rank: int, by_ms: float, held_ms: float = 0.1) -> Waits:
    """A rank comes `by_ms` late: all others wait for data, and what comes to it waits for its GPU."""

    def waits(sender: int, receiver: int, step: int) -> tuple[float, float, float, float, float]:
        gpu = 1.0 if sender == rank else 1.0 + by_ms
        wire, consume = (1.0, held_ms) if receiver == rank else (1.0 + by_ms, 0.1)
        return gpu, 0.1, 0.2, wire + (sender * 5 + step * 3) % 7 / 100, consume

    return waits


@pytest.mark.parametrize("skew_ns", [0, 37 * 60 * 1_000_000_000])
def test_the_rank_that_waits_for_nobody_is_the_straggler(connection: DuckDBPyConnection, skew_ns: int) -> None:
    ring(connection, 4, 10, waits_for(2, 30.0), skew_ns)
    found = only(stragglers(connection, _LEAST_NS))
    assert (found.rank, found.late, found.calls, found.members) == (2, 10, 10, (0, 1, 2, 3))
    assert found.typical_ns == pytest.approx(30 * MS, rel=0.02)
    assert found.share == pytest.approx(0.3, abs=0.04)
    assert found.usual_ns == pytest.approx(1.3 * MS, rel=0.1), "of the one that comes last: all are there"
    assert found.own_share > 0.9 and found.held_ns == pytest.approx(0, abs=MS)


def test_one_call_of_each_step_is_enough_to_show_a_lateness(connection: DuckDBPyConnection) -> None:
    late, in_time = waits_for(2, 30.0), waits_for(2, 0.0)
    ring(connection, 4, 40, lambda s, r, step: (in_time if step % 4 else late)(s, r, step))
    found = only(stragglers(connection, _LEAST_NS))
    assert (found.rank, found.late, found.calls, found.turns) == (2, 10, 40, 10)


def test_late_calls_without_a_rhythm_are_counted_against_all(connection: DuckDBPyConnection) -> None:
    late, in_time = waits_for(2, 30.0), waits_for(2, 0.0)
    often = {0, 1, 5, 7, 13, 14, 20, 27, 31, 38}
    ring(connection, 4, 40, lambda s, r, step: (late if step in often else in_time)(s, r, step))
    assert only(stragglers(connection, _LEAST_NS)).turns == 40


def test_chunks_that_wait_for_its_gpu(connection: DuckDBPyConnection) -> None:
    ring(connection, 4, 10, waits_for(1, 30.0, held_ms=12.0))
    assert only(stragglers(connection, _LEAST_NS)).held_ns == pytest.approx(11.9 * MS, rel=0.01)


def test_a_rank_that_waits_at_its_own_nic_is_not_late(connection: DuckDBPyConnection) -> None:
    """Of a slow way out, everybody waits: the sender at its NIC, the others for data."""
    ring(connection, 4, 10, lambda s, r, step: (1.0, 0.1, 30.0, 31.0, 0.1) if s == 2 else (30.0, 0.1, 0.5, 31.0, 0.1))
    found = stragglers(connection, _LEAST_NS)
    assert not any(each.rank == 2 and each.share > 0.1 for each in found)


def test_jitter_has_no_rank(connection: DuckDBPyConnection) -> None:
    order = [0, 2, 1, 3, 3, 0, 1, 2, 0, 1, 2, 3]
    ring(connection, 4, 12, lambda s, r, step: waits_for(order[step], 5.0)(s, r, step))
    found = only(stragglers(connection, _LEAST_NS))
    assert found.late <= 4 and found.share < 0.02


def test_a_rank_that_becomes_late_is_judged_from_then_on(connection: DuckDBPyConnection) -> None:
    order = [0, 2, 1, 3, 3, 0, 1, 2, 0, 1, 2, 3] * 2
    ring(connection, 4, 36, lambda s, r, step: (waits_for(1, 30.0) if step >= 24 else waits_for(order[step], 5.0))(s, r, step))
    found = only(stragglers(connection, _LEAST_NS))
    assert (found.rank, found.late, found.calls) == (1, 12, 12)
    assert found.share == pytest.approx(0.3, abs=0.04)


def sudden(before_ms: float, since: int) -> Waits:
    """Everybody is late by turns, then rank 1 by 30 ms."""
    order = [0, 2, 1, 3, 3, 0]
    return lambda s, r, step: (waits_for(1, 30.0) if step >= since else waits_for(order[step], before_ms))(s, r, step)


def test_a_short_record_shows_a_sudden_change(connection: DuckDBPyConnection) -> None:
    ring(connection, 4, 12, sudden(0.5, 6))
    found = only(stragglers(connection, _LEAST_NS))
    assert (found.rank, found.calls, found.late, found.had_onset) == (1, 6, 6, True)


@pytest.mark.parametrize(("before_ms", "since"), [(10.0, 6), (0.5, 8)])
def test_a_change_that_is_small_or_happened_in_a_few_calls_only_is_none(
    connection: DuckDBPyConnection, before_ms: float, since: int
) -> None:
    """Lateness of a third was there before, or four calls are late: the whole record decides."""
    ring(connection, 4, 12, lambda s, r, step: sudden(before_ms, since)(s, r, step if step >= since else step % 6))
    found = only(stragglers(connection, _LEAST_NS))
    assert found.calls == 12 and not found.had_onset


def test_lateness_of_its_own_gpu_is_its_own(connection: DuckDBPyConnection) -> None:
    """Its messages come late as well, because both ends of the pipeline wait for the same GPU."""
    ring(connection, 2, 10, waits_for(1, 30.0, held_ms=28.0))
    for step in range(9):
        for rank, arrives, sends in ((0, 20, 40), (1, 50, 70)):
            begun = step * STEP_NS
            message(connection, rank + 2, rank, step + 1, begun + arrives * MS, (0, 1))
            message(connection, rank, rank + 2, step + 1, begun + sends * MS, (1, 0))
    found = next(each for each in stragglers(connection, _LEAST_NS) if each.members == (0, 1))
    assert found.rank == 1 and found.own_share > 0.9


def test_members_without_a_log_hide_the_order(connection: DuckDBPyConnection) -> None:
    ring(connection, 4, 10, waits_for(2, 30.0))
    connection.execute("DELETE FROM ended_flows WHERE rank = 3")
    assert stragglers(connection, _LEAST_NS) == ()


def test_lateness_that_came_with_messages_is_passed_on(connection: DuckDBPyConnection) -> None:
    """Ranks 0 and 1 reduce together; the message to rank 1 comes late, and what rank 1 sends on is late by no more."""
    ring(connection, 2, 10, waits_for(1, 30.0))
    for step in range(9):
        for rank, arrives, sends in ((0, 20, 40), (1, 50, 70)):
            begun = step * STEP_NS
            message(connection, rank + 2, rank, step + 1, begun + arrives * MS, (0, 1))
            message(connection, rank, rank + 2, step + 1, begun + sends * MS, (1, 0))
    found = next(each for each in stragglers(connection, _LEAST_NS) if each.members == (0, 1))
    assert found.rank == 1 and found.own_share < 0.2
    assert found.passed_ns == pytest.approx(9 * 30 * MS, rel=0.05)


def test_a_receive_that_began_late_is_late_by_itself_and_the_send_that_waits_for_it_is_not(
    connection: DuckDBPyConnection,
) -> None:
    """Rank 1 takes the message of rank 3 30 ms late: rank 3 waited for credit, and comes late to its own collective."""
    ring(connection, 2, 10, waits_for(1, 30.0))
    connection.execute("UPDATE ended_flows SET communicator = 'first'")
    ring(connection, 2, 10, waits_for(1, 30.0))
    connection.execute("UPDATE ended_flows SET rank = rank + 2, other = other + 2 WHERE communicator = 'ring'")
    for step in range(9):
        for rank, arrives, waited in ((0, 20, 0.0), (1, 50, 30.0)):
            sent = step * STEP_NS + arrives * MS
            message(connection, rank + 2, rank, step + 1, sent, (0, 1), (waited * MS, 0.0))
    late = {each.rank: each.own_share for each in stragglers(connection, _LEAST_NS)}
    assert late[1] > 0.9 and late[3] < 0.2


def test_lateness_to_one_call_of_each_step_is_dated(connection: DuckDBPyConnection) -> None:
    late, in_time = waits_for(2, 30.0), waits_for(2, 0.0)
    jitter = waits_for(2, 1.0)
    often = dict.fromkeys(range(40, 80, 4), late) | dict.fromkeys((3, 17, 30, 45, 51, 62), jitter)
    ring(connection, 4, 80, lambda s, r, step: often.get(step, in_time)(s, r, step))
    found = only(stragglers(connection, _LEAST_NS))
    assert (found.calls, found.turns, found.had_onset) == (40, 10, True)


def test_lateness_that_arose_between_messages_is_its_own(connection: DuckDBPyConnection) -> None:
    ring(connection, 2, 10, waits_for(1, 30.0))
    for step in range(9):
        for rank, arrives, sends in ((0, 20, 40), (1, 20, 70)):
            begun = step * STEP_NS
            message(connection, rank + 2, rank, step + 1, begun + arrives * MS, (0, 1))
            message(connection, rank, rank + 2, step + 1, begun + sends * MS, (1, 0))
    found = next(each for each in stragglers(connection, _LEAST_NS) if each.members == (0, 1))
    assert found.own_share > 0.9 and found.backward_ns == pytest.approx(9 * 30 * MS, rel=0.05)


@pytest.mark.parametrize("hops", [1, 2])
def test_only_the_first_of_late_ranks_one_behind_the_other_is_late_by_itself(hops: int) -> None:
    """Three stages of two replicas: rank 1 computes for too long, and passes it on to rank 3, and that one to rank 5."""
    with flows_of(6) as opened:
        for stage in range(hops + 1):
            ring(opened, 2, 10, waits_for(1, 30.0))
            moved = f"rank = rank + {2 * stage}, other = other + {2 * stage}, communicator = 'stage {stage}'"
            opened.execute(f"UPDATE ended_flows SET {moved} WHERE communicator = 'ring'")
        for step in range(9):
            for replica, by in ((0, 0), (1, 30)):
                for stage in range(hops):
                    sent = step * STEP_NS + (20 + 10 * stage + by) * MS
                    message(
                        opened, 2 * stage + replica, 2 * stage + 2 + replica, step + 1, sent, (stage, stage + 1), (0, by * MS)
                    )
        late = {each.rank: each.own_share for each in stragglers(opened, _LEAST_NS)}
    assert late.pop(1) > 0.9
    assert set(late) == {3, 5} & set(range(2 * hops + 2)) and max(late.values()) < 0.2
