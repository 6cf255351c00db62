"""Collectives that take long once all are there, made up, and the rank that all of them share."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import replace

import duckdb
import numpy as np
import pytest

from forensics.model import Belief, Cause, Component, Confidence, Finding, Members, StageRef
from forensics.rules.engine import run, supply_of
from forensics.rules.reductions.epochs.judged import JudgedLink
from forensics.rules.reductions.epochs.links import LinkRate
from forensics.rules.reductions.epochs.slow_links import JudgedLinks
from forensics.rules.reductions.hardware.causes import Hardware, Oddity, Sign
from forensics.rules.reductions.network.gpu_holds import GpuHold
from forensics.rules.reductions.network.long_calls import LongCall, LongCalls, held_inside, is_held_by_gpu, long_calls
from forensics.rules.reductions.network.proxy_pauses import Pauses
from forensics.rules.reductions.network.slowness import Slowness
from forensics.rules.reductions.steps.times import StepTimes
from forensics.rules.slow import call_slow
from forensics.rules.slow.proxy_paused import RULE
from tests.recordings.scenarios import recorded

MS = 1_000_000
RING = ((0, 1), (1, 2), (2, 3), (3, 0))


_TABLES = """
CREATE TABLE sources (source_id BIGINT, path VARCHAR);
CREATE TABLE members (communicator VARCHAR, rank INTEGER);
CREATE TABLE operations (
    source_id BIGINT, locator BIGINT, rank INTEGER, communicator VARCHAR, sequence BIGINT, duration_ns BIGINT,
    kind VARCHAR DEFAULT 'all_reduce', input_sizes VARCHAR DEFAULT '[[1]]', output_sizes VARCHAR, count BIGINT,
    group_call BIGINT, pg_id BIGINT, pg_name VARCHAR, is_p2p BOOLEAN DEFAULT false, device_end_ns BIGINT,
    family VARCHAR DEFAULT 'recorder', backend VARCHAR DEFAULT 'nccl', state VARCHAR DEFAULT 'done',
    closes BOOLEAN DEFAULT false, enqueued_ns BIGINT
);
CREATE VIEW latest_call AS SELECT * FROM operations;
CREATE VIEW ordered_call AS SELECT * FROM operations;
"""


def found_in(long: Mapping[tuple[int, int], Collection[int]], late: Collection[int] = (), took_ms: int = 1000) -> LongCalls:
    """Twenty calls of 10 ms of each pair; some numbers take longer, to others the second member comes a second late."""
    with duckdb.connect() as connection:
        connection.execute(_TABLES)
        connection.execute("INSERT INTO sources SELECT n, n FROM range(4) r(n)")
        for pair in RING:
            for place, rank in enumerate(pair):
                connection.execute("INSERT INTO members VALUES (?, ?)", [f"dp{pair[0]}", rank])
                for number in range(20):
                    inside = took_ms if number in long.get(pair, ()) else 10
                    inside += 1000 if number in late and not place else 0
                    connection.execute(
                        "INSERT INTO operations (source_id, locator, rank, communicator, sequence, duration_ns) "
                        "VALUES (?, ?, ?, ?, ?, ?)", [rank, number, rank, f"dp{pair[0]}", number, inside * MS],
                    )  # fmt: skip
        return long_calls(connection, StepTimes({}, np.arange(0), np.zeros(0)))


def test_the_rank_that_long_calls_of_several_groups_share() -> None:
    found = found_in({(0, 1): (4, 9), (1, 2): (11,)})
    assert found.rank == 1 and [each.ranks for each in found.found] == [(0, 1), (0, 1), (1, 2)]
    assert found.lost_ns == pytest.approx(3 * 990 * MS)


@pytest.mark.parametrize(
    "long",
    [{(0, 1): (4, 9, 13)}, {(0, 1): (4,), (1, 2): (11,)}, {(0, 1): (4, 9), (2, 3): (11,)}, {(0, 1): range(12), (1, 2): (4,)}],
    ids=["one group", "two calls", "nobody in common", "as often long as not"],
)
def test_what_others_explain_as_well_names_nobody(long: Mapping[tuple[int, int], Collection[int]]) -> None:
    assert found_in(long).rank is None


def test_long_calls_of_two_ranks_alone_are_of_one_of_them() -> None:
    assert found_in({(0, 1): (4, 9, 13)}).link == (0, 1)
    assert found_in({(0, 1): (4, 9)}).link is None
    assert found_in({(0, 1): (4, 9, 13), (2, 3): (4,)}).ranks == ()


@pytest.mark.parametrize(
    ("long", "lasting"),
    [
        ({(0, 1): (16, 17, 18, 19)}, True),
        ({(0, 1): (17, 18, 19), (1, 2): (19,)}, True),
        ({(0, 1): (16, 17, 18)}, False),
        ({(0, 1): (4, 18, 19)}, False),
        ({(0, 1): (18, 19), (1, 2): (18, 19)}, False),
        ({(0, 1): (17, 18, 19), (1, 2): (11,)}, False),
    ],
    ids=["since then", "of two groups", "a usual one after", "a usual one between", "too few", "one group now and then"],
)
def test_calls_that_are_all_long_from_one_on_are_not_long_now_and_then(
    long: Mapping[tuple[int, int], Collection[int]], lasting: bool
) -> None:
    found = found_in(long)
    assert found.ranks and found.lasting is lasting


def test_a_member_that_comes_late_makes_no_call_long() -> None:
    assert not found_in({}, late=(3, 8, 15)).found


def test_a_tenth_of_a_second_is_no_pause_of_a_thread() -> None:
    assert not found_in({(0, 1): (4, 9), (1, 2): (11,)}, took_ms=90).found


LONG = LongCalls(
    tuple(LongCall("dp", pair, 1e9, 1e7, "x") for pair in ((0, 1), (0, 1), (1, 2))), 1
)  # fmt: skip
SINCE = LongCalls(tuple(LongCall("dp", (0, 1), 1e9, 2.5e8, "x", lasts=True) for _ in range(4)), None, (0, 1))
LATE = Finding(
    (1,), Cause.COMPUTE_SLOW, StageRef(component=Component.COMPUTE), Belief.BEHIND_AND_BUSY, Confidence.LIKELY, ()
)  # fmt: skip


def test_a_device_that_waited_in_calls_did_not_surely_compute() -> None:
    found = held_inside(LATE, LONG)
    assert (found.cause, found.stage.component) == (Cause.UNKNOWN, Component.UNKNOWN)
    assert "3 calls of 2 groups took up to 1000 ms once all were there" in found.evidence[-1].statement
    assert held_inside(replace(LATE, ranks=(0, 1), members=Members.ONE_OF), LONG).cause is Cause.UNKNOWN
    assert held_inside(replace(LATE, ranks=(2,)), LONG).cause is Cause.COMPUTE_SLOW
    assert held_inside(LATE, LongCalls()).cause is Cause.COMPUTE_SLOW


OF_TWO = LongCalls(tuple(LongCall("dp", (0, 1), 1e9, 1e7, "x") for _ in range(3)), link=(0, 1))


@pytest.mark.parametrize(
    ("members", "typical_ns", "share", "held"),
    [((0, 1), 4e8, 0.13, True), ((0, 1), 4e8, 0.01, False), ((0, 1), 1e8, 0.13, False), ((0, 2), 4e8, 0.13, False)],
    ids=["so long", "seldom", "far too short", "of another group"],
)
def test_long_calls_whose_chunks_a_gpu_takes_late(
    members: tuple[int, ...], typical_ns: float, share: float, held: bool
) -> None:
    hold = GpuHold(1, "nccl:1", "all_reduce", members, 7, 6, 15, 3e6, typical_ns, 6 * typical_ns, share, 0, True, None, "x")
    assert is_held_by_gpu(OF_TWO, (hold,)) is held


@pytest.mark.slow
@pytest.mark.parametrize(
    ("paused", "long", "ranks"),
    [(2, LONG, [(1,)]), (0, LONG, []), (2, LongCalls(), []), (2, replace(LONG, rank=3), [])],
    ids=["both", "no pause that chunks show", "nothing long", "of another rank"],
)
def test_few_pauses_count_with_the_long_calls_of_their_rank(paused: int, long: LongCalls, ranks: list[tuple[int, ...]]) -> None:
    """Two pauses in one group alone are a fourteenth of the time; the recorder shows a third one, in another."""
    pauses = {(1, 0): Pauses(1, 0, "dp", "all_reduce", 18, paused, 6e8, paused * 6e8, 0.07, 1.3e9, "y")}
    given: dict[object, object] = {Slowness: Slowness(pauses=pauses), LongCalls: long}
    found, _ = run(supply_of(recorded("proxy-paused"), instead=given), [RULE], {})
    assert [(each.ranks) for each in found] == ranks
    assert all(each.cause is Cause.PROXY_DELAY and each.confidence is Confidence.LIKELY for each in found)


@pytest.mark.slow
def test_of_a_link_that_pauses_the_end_is_named_that_has_long_calls_elsewhere() -> None:
    pauses = {(1, 0): Pauses(1, 0, "dp", "all_reduce", 18, 9, 6e8, 5.4e9, 0.3, 6e9, "y")}
    for long, ranks in ((LONG, (1,)), (LongCalls(), (0, 1)), (replace(LONG, rank=3), (0, 1))):
        given: dict[object, object] = {Slowness: Slowness(pauses=pauses), LongCalls: long}
        found, _ = run(supply_of(recorded("proxy-paused"), instead=given), [RULE], {})
        assert [each.ranks for each in found] == [ranks]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("long", "seconds", "named"),
    [
        (LONG, 20, [((1,), Members.EACH)]),
        (LongCalls(LONG.found[:2] * 2, None, (0, 1)), 20, [((0, 1), Members.ONE_OF)]),
        (LONG, 200, []),
        (replace(LONG, rank=None), 20, []),
    ],
    ids=["a rank", "two ranks", "of little weight", "nobody in common"],
)
def test_recorders_alone_tell_of_calls_that_are_long_now_and_then(
    long: LongCalls, seconds: int, named: list[tuple[tuple[int, ...], Members]]
) -> None:
    times = StepTimes({}, np.arange(20), np.full(20, seconds / 20 * 1e9))
    given: dict[object, object] = {LongCalls: long, StepTimes: times}
    found, _ = run(supply_of(recorded("call-slow"), instead=given), [call_slow.RULE], {})
    paused = [each for each in found if each.cause is Cause.PROXY_DELAY]
    assert [(each.ranks, each.members) for each in paused] == named
    assert all(each.confidence is Confidence.SUSPECT for each in paused)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("long", "read", "ranks", "cause"),
    [
        (SINCE, {0, 1}, (1,), Cause.PCIE_DEGRADED),
        (SINCE, {1}, (0, 1), Cause.PCIE_DEGRADED),
        (replace(SINCE, found=tuple(replace(each, usual_ns=1e8) for each in SINCE.found)), {0, 1}, (0, 1), Cause.NETWORK_SLOW),
        (replace(SINCE, found=OF_TWO.found), {0, 1}, (0, 1), Cause.PROXY_DELAY),
    ],
    ids=["by the link of a GPU", "a GPU that was not read", "longer than the link accounts for", "now and then"],
)
def test_calls_that_are_long_since_then_are_slow_by_what_accounts_for_it(
    long: LongCalls, read: set[int], ranks: tuple[int, ...], cause: Cause
) -> None:
    times = StepTimes({}, np.arange(20), np.full(20, 1e9))
    narrow = Sign(Oddity.NARROW, "4 lanes of 16", "y", factor=4.0)
    given: dict[object, object] = {LongCalls: long, StepTimes: times, Hardware: Hardware({1: (narrow,)}, frozenset(read))}
    found, _ = run(supply_of(recorded("call-slow"), instead=given), [call_slow.RULE], {})
    assert [(each.ranks, each.cause) for each in found if {0, 1} >= set(each.ranks)] == [(ranks, cause)]


@pytest.mark.slow
@pytest.mark.parametrize(("ends", "named"), [((1, 6), []), ((5, 6), [(0, 1)])], ids=["at one of the two", "elsewhere"])
def test_long_calls_of_a_link_are_of_the_slow_nic_at_one_of_its_ends(
    ends: tuple[int, int], named: list[tuple[int, ...]]
) -> None:
    times = StepTimes({}, np.arange(20), np.full(20, 1e9))
    slow = JudgedLink(LinkRate(*ends, 1e9, 1e8, 10, 10**9, ends[0], "x"), 4e9, 8, is_slow=True)
    given: dict[object, object] = {LongCalls: OF_TWO, StepTimes: times, JudgedLinks: JudgedLinks((slow,))}
    found, _ = run(supply_of(recorded("call-slow"), instead=given), [call_slow.RULE], {})
    assert [each.ranks for each in found if each.cause is Cause.PROXY_DELAY] == named
