"""Who is named where several ranks held steps up, at once or bit by bit: the root, and nobody that passed lateness on."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import pytest

from forensics.case.database import insert_rows, new_case
from forensics.model import Cause, Finding, Members
from forensics.rules.engine import find, supply_of, thresholds
from forensics.rules.interface import Thresholds
from forensics.rules.reductions.hardware.causes import Hardware, Oddity, Sign
from forensics.rules.reductions.hardware.cores import BusyHosts, TakenCores
from forensics.rules.reductions.hardware.cpu import CpuUse, HostCpu
from forensics.rules.reductions.pipeline.delay import Delay, Delays

MS = 1_000_000
RANKS, STEPS = 4, 20
ENOUGH = BusyHosts({})
UNREAD = HostCpu({})


def delay(
    rank: int, passed_on: float, *, step: int = 7, is_spread: bool = True, on_host: bool | None = False,
    at_barrier: bool = False, is_traced: bool = False, equals_ms: int = 0, own_ms: int = 0,
) -> Delay:  # fmt: skip
    """A rank that held a step up by a second."""
    return Delay(
        step, 1000 * MS, (rank,), "all", step, "all_reduce", step * MS, (0, step), 900 * MS,
        is_spread=is_spread, on_host=on_host, passed_on=passed_on, at_barrier=at_barrier, is_traced=is_traced,
        equals_ns=equals_ms * MS, own_ns=own_ms * MS,
    )  # fmt: skip


def findings(
    found: Sequence[Delay], timed: int = RANKS, factor: float | None = None, hosts: int = RANKS, beside_ms: Sequence[int] = (),
    usual: int = STEPS - 1, between_ms: Sequence[int] = (), short: BusyHosts = ENOUGH, typical_ms: int = 500,
    cpu: HostCpu = UNREAD,
) -> list[Finding]:  # fmt: skip
    """What the rule finds, where the first ranks have the time inside calls, the GPU of rank 1 is `factor` times slower.

    Cores of the `short` hosts are taken.
    """
    connection = new_case()
    insert_rows(connection, "ranks", "source_id rank host", [(rank, rank, f"host{rank % hosts}") for rank in range(RANKS)])
    ranks = frozenset(range(RANKS))
    unexplained = tuple(float(excess * MS) for excess in beside_ms)
    made = Delays(
        tuple(found),
        STEPS,
        usual,
        typical_ms * MS,
        len(unexplained),
        ranks,
        frozenset(range(timed)),
        unexplained_ns=unexplained,
        between_ns=tuple(float(excess * MS) for excess in between_ms),
    )
    signs = {} if factor is None else {1: (Sign(Oddity.SHARED, "another process", "smi", factor),)}
    rule = find("FX175")
    assert rule is not None
    given: dict[object, object] = {Delays: made, Hardware: Hardware(signs), Thresholds: thresholds(rule, {}), BusyHosts: short}
    given[HostCpu] = cpu
    return [finding for finding in supply_of(connection, None).call(rule.evaluate, given) if not finding.by_design]


def named(found: Sequence[Delay], timed: int = RANKS, hosts: int = RANKS) -> set[int]:
    return {rank for finding in findings(found, timed, hosts=hosts) for rank in finding.ranks}


def test_who_passed_on_clearly_least_is_the_root() -> None:
    """Its own lateness came back to it: it waited for some of it."""
    assert named([delay(1, 0.28), delay(2, 0.4)]) == {1}


def test_of_ranks_that_passed_on_alike_none_is_the_root() -> None:
    """A slow transfer, or a rank that is not seen, makes several late alike."""
    assert named([delay(1, 0.3), delay(2, 0.35)]) == set()


def test_who_was_in_no_call_for_most_of_the_delay_is_the_root() -> None:
    """What it waited beside was its own lateness, that came back; who worked for less of it passed some on."""
    assert named([delay(1, 0.42, own_ms=700), delay(2, 0.49)]) == {1}
    assert named([delay(1, 0.42, own_ms=300), delay(2, 0.49)]) == set()


def test_a_rank_that_waited_itself_is_no_root_where_nobody_else_is_seen_late() -> None:
    assert named([delay(1, 0.3)]) == set()


@pytest.mark.parametrize(("equals_ms", "is_named"), [(600, True), (300, False)])
def test_what_its_equals_wait_for_is_its_own_whatever_it_waited_itself(equals_ms: int, is_named: bool) -> None:
    """A GPU that is slow for a moment: its lateness comes back to it, and to its tensor-parallel mate as much."""
    others = [delay(rank, 0.4, step=step) for rank in (2, 3) for step in (7, 9)]
    found = [delay(1, 0.32, step=step, equals_ms=equals_ms) for step in (7, 9, 10)]
    assert named([*found, *others]) == ({1} if is_named else set())


@pytest.mark.parametrize(
    ("rank", "on_host", "is_traced", "is_named"),
    [
        (1, False, False, True),
        (1, True, False, False),
        (1, None, False, False),
        (0, False, False, False),
        (1, False, True, False),
    ],
    ids=["its device", "its host", "not known", "first rank", "in a trace"],
)
def test_once_between_the_passes_a_device_is_late_by_no_duty_of_its_host(
    rank: int, on_host: bool | None, is_traced: bool, is_named: bool
) -> None:
    """Data-parallel ranks meet after the passes alone: whoever logs or saves there holds up its host, which comes late."""
    found = [delay(rank, 0.0, is_spread=False, on_host=on_host, is_traced=is_traced)]
    assert bool(findings(found, hosts=1)) is is_named


def test_where_not_all_ranks_were_seen_the_root_may_be_another() -> None:
    assert named([delay(1, 0.28), delay(2, 0.4)], timed=RANKS - 1) == set()


def test_a_step_held_up_at_once_counts_beside_one_in_which_the_rank_passed_lateness_on() -> None:
    at_once = [delay(1, 0.0, step=step, is_spread=False) for step in (7, 12)]
    assert named([*at_once, delay(1, 0.45, step=9)]) == {1}


@pytest.mark.parametrize(
    ("rank", "beside", "is_named"),
    [(1, 8, True), (1, 6, True), (1, 12, False), (0, 8, False)],
    ids=["the step after", "the step before", "another moment", "first rank"],
)
def test_a_moment_that_spans_two_steps_is_one_rank_held_up_in_both(rank: int, beside: int, is_named: bool) -> None:
    """A GPU that is slow for two seconds: bit by bit in one step, at the begin of the next, where the first rank may save."""
    found = [delay(rank, 0.12, step=7), delay(rank, 0.0, step=beside, is_spread=False, on_host=None)]
    assert named(found) == ({rank} if is_named else set())


@pytest.mark.parametrize(
    ("rank", "steps", "is_named"),
    [
        (0, (4, 12, 28), False),
        (1, (4, 12, 28), True),
        (0, (4, 9, 28), True),
        (0, (4, 5, 7), True),
        (0, (4, 6, 10), True),
        (1, (4, 12, 20), False),
    ],
    ids=["one was short", "second rank of its host", "no rhythm", "one after the other", "by chance", "evenly"],
)
def test_the_first_rank_of_a_host_has_duties_some_of_which_are_short(rank: int, steps: tuple[int, ...], is_named: bool) -> None:
    late = [delay(rank, 0.0, step=step, is_spread=False, on_host=True) for step in steps]
    assert named(late, hosts=1) == ({rank} if is_named else set())


@pytest.mark.parametrize(("members", "ranks"), [((1, 2), (1, 2)), ((0, 1, 2), ())])
def test_one_of_most_ranks_of_a_job_is_no_finding(members: tuple[int, ...], ranks: tuple[int, ...]) -> None:
    """A slow transfer of all ranks of a sharded model is seen, and tells nobody."""
    (finding,) = findings([replace(delay(0, 0.0, is_spread=False), ranks=members, is_transfer=True)])
    assert finding.ranks == ranks


@pytest.mark.parametrize("at_barrier", [True, False])
def test_a_rank_that_is_late_to_barriers_alone_saves_or_evaluates_for_all(at_barrier: bool) -> None:
    """Steps 3, 4 and 9: no rhythm. Late to a call that moves data once as well, it is no longer what barriers are for."""
    saves = [delay(0, 0.0, step=step, is_spread=False, on_host=True, at_barrier=True) for step in (3, 4)]
    last = delay(0, 0.0, step=9, is_spread=False, on_host=True, at_barrier=at_barrier)
    assert named([*saves, last]) == (set() if at_barrier else {0})


@pytest.mark.parametrize(
    ("steps", "beside_ms", "is_named"),
    [
        ((7, 12), (), True),
        ((7, 12), (900, 900), False),
        ((7, 12), (300, 400), True),
        ((7, 12), (900,), True),
        ((3, 7, 12), (900,) * 4, True),
    ],
    ids=["alone", "beside as many as long", "beside shorter ones", "more often", "again and again"],
)
def test_a_step_is_nobodys_where_others_are_as_long_for_no_reason(
    steps: tuple[int, ...], beside_ms: tuple[int, ...], is_named: bool
) -> None:
    """The first steps of a record, or those of a busy network, differ by themselves: who came last in one of them is chance."""
    found = findings([delay(1, 0.0, step=step, is_spread=False) for step in steps], beside_ms=beside_ms)
    assert bool(found) is is_named


@pytest.mark.parametrize(
    ("others", "beside_ms", "is_named"),
    [((), (), True), (((2, 9),), (), False), ((), (900,), False), ((), (300,), True), (((1, 5),), (), True)],
    ids=["one step", "another transfer then", "an unexplained step", "a shorter step", "the same transfer then"],
)
def test_a_transfer_is_not_to_blame_where_other_steps_are_as_long_without_it(
    others: tuple[tuple[int, int], ...], beside_ms: tuple[int, ...], is_named: bool
) -> None:
    """A network that others fill is slow for another transfer in each step."""
    first = replace(delay(1, 0.0, step=7, is_spread=False), ranks=(1, 5), is_transfer=True)
    then = [replace(first, ranks=ranks, step=9 + number) for number, ranks in enumerate(others)]
    assert bool(findings([first, *then], beside_ms=beside_ms)) is is_named


@pytest.mark.parametrize(
    ("steps", "excess_ms", "usual", "is_named"),
    [((7,), 1000, 8, False), ((7,), 1000, 15, True), ((7,), 4000, 8, True), ((7, 9, 12), 1000, 8, True)],
    ids=["steps differ", "steps are alike", "by several steps", "again and again"],
)
def test_a_long_step_among_steps_that_differ_anyway_is_nobodys(
    steps: tuple[int, ...], excess_ms: int, usual: int, is_named: bool
) -> None:
    """On a busy network each step waits for somebody else, bit by bit."""
    late = [replace(delay(1, 0.0, step=step), excess_ns=excess_ms * MS) for step in steps]
    assert bool(findings(late, usual=usual)) is is_named


@pytest.mark.parametrize(
    ("between", "steps", "excess_ms", "is_transfer", "is_named"),
    [
        (6, (7,), 1000, False, False),
        (4, (7,), 1000, False, True),
        (6, (7,), 1600, False, True),
        (6, (7, 9, 12), 1000, False, True),
        (6, (7,), 1000, True, True),
    ],
    ids=["many lengths", "few", "far longer", "again and again", "a transfer"],
)
def test_the_longest_of_steps_of_many_lengths_is_nobodys(
    between: int, steps: tuple[int, ...], excess_ms: int, is_transfer: bool, is_named: bool
) -> None:
    """Samples of many lengths: some rank has the longest of all."""
    late = [replace(delay(1, 0.0, step=step, is_spread=False), excess_ns=excess_ms * MS) for step in steps]
    late = [replace(each, is_transfer=is_transfer, ranks=(1, 2) if is_transfer else (1,)) for each in late]
    lengths = [500, *range(100, 100 * between, 100)]
    assert bool(findings(late, usual=STEPS - 1 - between, between_ms=lengths)) is is_named


@pytest.mark.parametrize(
    ("on_host", "is_transfer", "is_named"),
    [(False, False, True), (True, False, False), (None, False, False), (False, True, False)],
    ids=["its device", "a host that allocates", "a host, maybe", "a transfer"],
)
def test_one_step_that_is_a_little_longer_is_of_a_device_whose_host_was_in_time(
    on_host: bool | None, is_transfer: bool, is_named: bool
) -> None:
    """A host stands still while it allocates, and makes its next calls late."""
    late = replace(delay(1, 0.0, is_spread=False, on_host=on_host), excess_ns=80 * MS, is_transfer=is_transfer)
    assert bool(findings([late], hosts=1)) is is_named


@pytest.mark.parametrize(("factor", "cause"), [(1.3, Cause.COMPUTE_SLOW), (3.5, Cause.GPU_CONTENTION)])
def test_a_gpu_that_is_shared_is_the_cause_only_of_a_step_that_was_as_much_longer(factor: float, cause: Cause) -> None:
    """Half a second became one and a half: three times, though little of the whole record."""
    assert [finding.cause for finding in findings([delay(1, 0.0)], factor=factor)] == [cause]


@pytest.mark.parametrize(("steps", "ranks"), [((7,), (1, 2)), ((7, 9, 11), (1,))])
def test_taken_cores_explain_many_slow_transfers_and_no_single_one(steps: tuple[int, ...], ranks: tuple[int, ...]) -> None:
    """They are taken for as long as anybody measured: one message of many that is late by seconds is late by something else."""
    short = BusyHosts({"host1": TakenCores("host1", 40.0, 0.5, "node.json")})
    found = [replace(delay(1, 0.0, step=step, is_spread=False), ranks=(1, 2), is_transfer=True) for step in steps]
    assert [each.ranks for each in findings(found, short=short)] == [ranks]


@pytest.mark.parametrize(("excess_ms", "by_arrivals", "is_named"), [
    (255, False, True),
    (90, False, False),  # packets that are sent again
    (255, True, False),  # hosts wait themselves, and want for a core now and then
])  # fmt: skip
def test_one_transfer_that_is_longer_by_a_sixth_of_a_step_is_no_pause_of_a_host(
    excess_ms: int, by_arrivals: bool, is_named: bool
) -> None:
    once = replace(
        delay(1, 0.0, is_spread=False), ranks=(1, 2), is_transfer=True, excess_ns=excess_ms * MS, by_arrivals=by_arrivals
    )
    assert bool(findings([once], typical_ms=1500)) is is_named


@pytest.mark.parametrize(("hosts", "named_ranks"), [(1, (0, 1, 2, 3)), (2, ())])
def test_one_of_all_ranks_of_a_job_is_said_of_a_single_node(hosts: int, named_ranks: tuple[int, ...]) -> None:
    found = findings([replace(delay(0, 0.0, is_spread=False), ranks=(0, 1, 2, 3), is_transfer=True)], hosts=hosts)
    assert [(each.ranks, each.members is Members.ONE_OF) for each in found] == [(named_ranks, bool(named_ranks))]


@pytest.mark.parametrize(
    ("excess_ms", "short", "on_host", "accused"),
    [(53, 4, True, set()), (53, 3, True, {1}), (53, 0, True, {1}), (300, 4, True, {1}), (53, 4, False, {1})],
    ids=["all are short", "one has cores", "all have cores", "for long", "a device is late"],
)
def test_where_no_host_has_cores_enough_a_step_is_longer_by_nobody(
    excess_ms: int, short: int, on_host: bool, accused: set[int]
) -> None:
    late = [replace(delay(1, 0.0, step=step, on_host=on_host), excess_ns=excess_ms * MS) for step in (5, 9, 10, 14)]
    cpu = HostCpu({f"host{n}": CpuUse(f"host{n}", 5.0, 1.0 if n < short else 5.0, "proc") for n in range(RANKS)})
    found = findings(late, usual=12, typical_ms=20, cpu=cpu)
    assert {rank for each in found for rank in each.ranks} == accused


@pytest.mark.parametrize(("longest_ms", "right"), [(3200, {1}), (2800, set())])
def test_where_ranks_hold_steps_up_by_turns_only_a_step_that_is_longer_by_far_accuses(longest_ms: int, right: set[int]) -> None:
    by_turns = [delay(rank, 0.0, step=rank + 3, is_spread=False) for rank in (0, 2, 3)]
    longest = replace(delay(1, 0.0, is_spread=False), excess_ns=longest_ms * MS)
    assert named([*by_turns, longest]) == right
