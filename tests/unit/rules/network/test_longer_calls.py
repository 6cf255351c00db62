"""Collectives of the whole job that take longer than before once all are there, made up."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import duckdb
import pytest

from forensics.model import Cause, Finding, Granularity, Role
from forensics.rules.engine import run, supply_of
from forensics.rules.reductions.hardware.causes import Hardware, Oddity, Sign
from forensics.rules.reductions.hardware.cores import BusyHosts, TakenCores
from forensics.rules.reductions.network.joint_calls import TimedCalls
from forensics.rules.reductions.network.longer_calls import LongerCalls, LongerOfAll, longer_of_all
from forensics.rules.reductions.progress.liveness import Liveness, Motion
from forensics.rules.reductions.ranks.roster import RankFacts, Roster
from forensics.rules.slow.call_slow import RULE
from tests.recordings.scenarios import recorded
from tests.unit.rules.network.test_long_calls import _TABLES

MS = 1_000_000
WORLD = 8
Took = Callable[[int], float]
"""By the number of a call, ms that it takes once all are there."""


def changed(before: float, after: float, at: int = 30) -> Took:
    return lambda number: after if number >= at else before


def found_in(
    groups: Sequence[Sequence[int]], took: Sequence[Took], sizes: int = 1, late: int | None = None, hosts: int = 4
) -> LongerOfAll:
    """Sixty calls of each group, one each 100 ms; all members but the last one to come wait 20 ms more."""
    with duckdb.connect() as connection:
        connection.execute(_TABLES)
        connection.execute("INSERT INTO sources SELECT n, n FROM range(8) r(n)")
        rows = []
        for label, members in enumerate(groups):
            connection.executemany("INSERT INTO members VALUES (?, ?)", [[f"g{label}", rank] for rank in members])
            for number in range(60 * sizes):
                last = members[number % len(members)] if late is None else late
                for rank in members:
                    inside = took[label](number // sizes) + 20 * (rank != last)
                    rows.append(
                        (rank, number, rank, f"g{label}", number, int(inside * MS), number * 100 * MS, f"[[{number % sizes}]]")
                    )
        columns = "source_id, locator, rank, communicator, sequence, duration_ns, enqueued_ns, input_sizes"
        values = ", ".join(f"unnest(${place})" for place in range(1, 9))
        connection.execute(
            f"INSERT INTO operations ({columns}) SELECT {values}", [list(each) for each in zip(*rows, strict=True)]
        )
        facts = {rank: RankFacts(rank, f"n{rank * hosts // WORLD}") for rank in range(WORLD)}
        return longer_of_all(connection, Roster(facts, WORLD))


def test_calls_of_all_ranks_that_take_longer_since_some_moment() -> None:
    (found,) = found_in([range(WORLD)], [changed(10, 40)])
    assert (found.ranks, found.calls, found.before_ns, found.took_ns) == (tuple(range(WORLD)), 30, 10 * MS, 40 * MS)
    assert found.share == pytest.approx(30 / 100, rel=0.05) and found.since_ns == 30 * 100 * MS


def test_all_of_two_halves_must_have_changed() -> None:
    halves = [range(4), range(4, 8)]
    assert len(found_in(halves, [changed(10, 40)] * 2)) == 2
    assert found_in(halves, [changed(10, 40), changed(10, 10)]) == ()


@pytest.mark.parametrize(
    ("groups", "took", "late", "hosts"),
    [
        ([range(WORLD)], changed(10, 10), 2, 4),
        ([range(WORLD)], changed(10, 16), None, 4),
        ([range(WORLD)], changed(10, 40, 55), None, 4),
        ([range(WORLD)], changed(0.1, 0.5), None, 4),
        ([range(WORLD)], lambda number: 40 if 20 <= number < 40 else 10, None, 4),
        ([range(WORLD)], changed(10, 40), None, 1),
        ([(0, 2), (1, 3), (4, 6), (5, 7)], changed(10, 40), None, 8),
    ],
    ids=[
        "one rank is late",
        "less than twice",
        "five calls",
        "latency",
        "a while",
        "one host",
        "groups that have others alike",
    ],
)
def test_what_is_no_change_of_the_network(groups: list[Sequence[int]], took: Took, late: int | None, hosts: int) -> None:
    assert found_in(groups, [took] * len(groups), late=late, hosts=hosts) == ()


def roots(motion: Motion = Motion.MOVING, lost: float = 9e8, **beside: object) -> list[Finding]:
    """What is said of four ranks on two hosts, with what the state of GPUs and hosts tells."""
    longer = LongerOfAll((LongerCalls("0", "all_reduce", (0, 1, 2, 3), 30, 4e7, 1e7, lost, 3e9, 5, "x"),))
    facts = {rank: RankFacts(rank, f"n{rank // 2}") for rank in range(4)}
    given: dict[object, object] = {
        LongerOfAll: longer, Liveness: Liveness(motion, "it is made up"), TimedCalls: TimedCalls(True),
        Roster: Roster(facts, 4), BusyHosts: beside.get("busy", {}), Hardware: beside.get("hardware", Hardware()),
    }  # fmt: skip
    found, _ = run(supply_of(recorded("job-moving"), instead=given), [RULE], {})
    return [each for each in found if each.role is Role.ROOT]


@pytest.mark.parametrize(
    ("motion", "lost", "named"),
    [(Motion.MOVING, 9e8, True), (Motion.MOVING, 1e8, False), (Motion.STALLED, 9e8, False)],
    ids=["a third of the time", "little", "it stands still"],
)
def test_the_whole_job_is_said_and_no_rank(motion: Motion, lost: float, named: bool) -> None:
    found = [(each.ranks, each.cause, each.granularity) for each in roots(motion, lost)]
    assert found == [((), Cause.NETWORK_SLOW, Granularity.JOB)] * named


NARROW = Sign(Oddity.NARROW, "4 lanes of 16", "y", factor=4.0)
MARKED = Sign(Oddity.CONGESTED, "2,000 marks", "y", share=0.9)
EVERY = frozenset(range(4))


@pytest.mark.parametrize(
    ("busy", "hardware", "pointed"),
    [
        ({"n1": TakenCores("n1", 44.0, 1.0, "z")}, Hardware(), ["n1 is short of CPU"]),
        ({}, Hardware({1: (NARROW,)}, EVERY), ["4 lanes of 16"]),
        ({}, Hardware({1: (MARKED,)}, EVERY), []),
    ],
    ids=["a host short of cores", "a narrow link", "marks of congestion"],
)
def test_the_state_of_hosts_and_gpus_is_where_to_begin_and_accuses_nobody(
    busy: dict[str, TakenCores], hardware: Hardware, pointed: list[str]
) -> None:
    """Of many hosts some are short of cores in a sound job, too."""
    (found,) = roots(busy=busy, hardware=hardware)
    said = [each.statement for each in found.evidence if each.statement.startswith("begin there: ")]
    assert found.ranks == () and len(said) == len(pointed)
    assert all(what in statement for what, statement in zip(pointed, said, strict=True))
