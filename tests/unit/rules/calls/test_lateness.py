"""Who comes last to collectives: on one clock, on clocks of their own, from the first call on or since a change."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

import numpy as np
import pytest

from forensics.rules.reductions.arrivals.arrivals import WATCHDOG_INTERVAL_NS, Series
from forensics.rules.reductions.arrivals.lateness import Lateness, chance_of_last, of_series

MS = 1_000_000


def calls_of(
    kind: str,
    behind: list[list[int]],
    at_ns: list[list[int]],
    members: Sequence[int],
    coarse_ns: int = 0,
    is_bound: bool = False,
) -> Series:
    """Calls of one kind of one group, each in an artefact of its rank."""
    count = len(behind)
    entries = np.tile(members, (count, 1)), np.tile(np.arange(count)[:, None], (1, len(members)))
    paths = {rank: str(rank) for rank in members}
    about = np.full(count, coarse_ns), np.full(count, is_bound)
    return Series("group", kind, tuple(members), np.array(behind), np.array(at_ns), entries, paths, *about)


def series(
    late: Callable[[int], Mapping[int, float]],
    calls: int = 24,
    every_ms: Callable[[int], float] = lambda _: 100.0,
    members: Sequence[int] = range(4),
    coarse_ns: int = 0,
    is_bound: bool = False,
) -> Series:
    """Calls of a group; `late` tells by how many ms which members came after the first."""
    behind = [[int(late(number).get(rank, 0.0) * MS) for rank in members] for number in range(calls)]
    begins = np.cumsum([int(every_ms(number) * MS) for number in range(calls)])
    at_ns = (np.array(behind) + begins[:, None]).tolist()
    return calls_of("all_reduce [4]", behind, at_ns, members, coarse_ns, is_bound)


def of_rank(rank: int, *found: Series) -> Lateness:
    (late,) = [item for item in of_series(found).found if item.rank == rank]
    return late


def test_a_rank_that_is_late_from_the_first_call_on_has_no_onset() -> None:
    late = of_rank(2, series(lambda _: {2: 60}))
    assert (late.late, late.calls, late.since_ns, late.absorbed) == (18, 18, None, False)
    assert late.share == pytest.approx(18 * 60 / 1700, rel=0.02)


def test_a_rank_that_became_late_is_counted_from_then_on() -> None:
    late = of_rank(2, series(lambda number: {2: 60 if number >= 12 else 2}, every_ms=lambda n: 160 if n >= 12 else 100))
    assert (late.late, late.calls) == (12, 12)
    assert late.since_ns is not None and late.before_ns == 2 * MS and not late.absorbed


def test_calls_of_one_burst_are_one_chance_to_be_late() -> None:
    """Four buckets of a step, 5 ms apart: only to the first of them can a rank come 60 ms late."""
    late = of_rank(2, series(lambda number: {2: 60 if number % 4 == 0 else 2}, 40, lambda n: 160 if n % 4 == 0 else 5))
    assert (late.late, late.calls) == (7, 7)


@pytest.mark.parametrize(("turns", "calls"), [((0,), 18), ((0, 0, 1), 18), ((0, 1, 2, 3), 18)])
def test_a_call_to_which_another_member_comes_late_is_a_chance_to_be_late(turns: tuple[int, ...], calls: int) -> None:
    """The rank itself comes at once to a call behind its own late one, and could have been late again where another was."""
    gaps = [60 * MS if rank == turns[number % len(turns)] else 0 for number in range(24) for rank in range(4)]
    behind = np.array(gaps).reshape(24, 4)
    begins = np.concatenate([[0], np.cumsum(behind.max(axis=1) + MS)[:-1]])
    late = of_rank(0, calls_of("all_reduce [4]", behind.tolist(), (behind + begins[:, None]).tolist(), range(4)))
    assert (late.late, late.calls) == (sum(turns[number % len(turns)] == 0 for number in range(6, 24)), calls)


@pytest.mark.parametrize(("first", "has_onset"), [(1, False), (2, False), (8, True)])
def test_calls_of_one_step_are_one_look_at_it(first: int, *, has_onset: bool) -> None:
    """Six calls of a step, 10 ms apart: that the rank was in time for those of one or two steps shows no change."""
    found = series(
        lambda number: {2: 60 if number >= 6 * first else 2},
        calls=120,
        every_ms=lambda number: (10 if number % 6 else 200) + (60 if number >= 6 * first and number % 6 == 0 else 0),
    )
    assert (of_rank(2, found).since_ns is not None) is has_onset


@pytest.mark.parametrize(("slow", "onset"), [(8, 42), (4, None)])
def test_a_rank_that_starves_is_late_by_another_time_in_each_step(slow: int, onset: int | None) -> None:
    """Beside busy processes steps of 80 ms take 1.5 to 5 s, and the others are slower, too."""
    gaps = [1700, 3200, 2100, 1000, 1600, 2300, 2000, 1100]
    found = series(
        lambda number: {2: gaps[number - 42] if number >= 42 else 3},
        calls=42 + slow,
        every_ms=lambda number: 800 + 1.3 * gaps[number - 42] if number >= 42 else 80,
    )
    late = of_rank(2, found)
    assert (late.since_ns is not None) is (onset is not None)
    assert onset is None or (late.late, late.calls) == (slow, slow)


def test_a_lag_that_the_schedule_absorbs_is_marked() -> None:
    """The others have as much to wait for elsewhere: calls come no further apart than before."""
    late = of_rank(2, series(lambda number: {2: 60 if number >= 12 else 2}))
    assert late.absorbed


@pytest.mark.parametrize(
    ("paused", "longer_ms", "is_absorbed"), [(20, 60, False), (20, 0, True), (50, 0, True), (50, 60, False)]
)
def test_a_pause_on_one_side_of_the_onset_neither_hides_a_lag_nor_makes_one(
    paused: int, longer_ms: float, is_absorbed: bool
) -> None:
    """A checkpoint of five seconds lies before the rank became late, or after it."""
    apart = series(
        lambda number: {2: 60 if number >= 40 else 1},
        calls=60,
        every_ms=lambda number: 5_000 if number == paused else 100 + (longer_ms if number >= 40 else 0),
    )
    assert of_rank(2, apart).absorbed is is_absorbed


@pytest.mark.parametrize(("late_ms", "rest_ms", "is_absorbed"), [(4, 0, False), (4, 400, True)], ids=["all wait", "a bubble"])
def test_saves_of_several_seconds_hide_no_lag_of_milliseconds(late_ms: float, rest_ms: float, is_absorbed: bool) -> None:
    """A hundred calls a step, every second of which ends with a save; half of the saves, and a tenth of the calls, lie before.

    In the twin a bubble at the end of each step becomes shorter by what the rank is late by.
    """
    onset = 600

    def every_ms(number: int) -> float:
        if number % 100 == 0:
            save = 9_000 + 900 * ((number // 200) % 2) if number in (300, 500, 1000, 2000, 3000) else 0
            return 500 + save - (rest_ms if number >= onset else 0)
        return 5 + (late_ms if number >= onset else 0)

    late = of_rank(2, series(lambda number: {2: late_ms if number >= onset else 0.1}, calls=3_100, every_ms=every_ms))
    assert late.since_ns is not None and late.absorbed is is_absorbed


@pytest.mark.parametrize(("longer_ms", "is_absorbed"), [(30, False), (0, True)])
def test_what_a_run_takes_to_start_hides_no_lag(longer_ms: float, is_absorbed: bool) -> None:
    """Calls are 100 ms apart before and by the lag more since, and half a minute went by between the first two."""
    apart = series(
        lambda number: {2: 30 if number >= 30 else 1},
        calls=60,
        every_ms=lambda number: 30_000 if number == 1 else 100 + (longer_ms if number >= 30 else 0),
    )
    late = of_rank(2, apart)
    assert late.since_ns is not None and late.absorbed is is_absorbed


@pytest.mark.parametrize(("issued_ms", "on_device"), [(5, True), (55, False), (np.nan, False)])
def test_a_device_is_late_by_itself_where_its_host_was_in_time(issued_ms: float, *, on_device: bool) -> None:
    """A rank that is alone on its host cannot tell."""
    found = series(lambda _: {2: 60})
    found = replace(found, issued_after=np.full(found.behind.shape, issued_ms * MS))
    assert of_rank(2, found).on_device is on_device


def test_ranks_that_are_late_in_turn_are_so_by_chance() -> None:
    found = of_series([series(lambda number: {number % 4: 60})]).found
    assert {item.rank for item in found} == {0, 1, 2, 3}
    assert all(item.chance > 0.01 for item in found)


def test_of_two_members_one_is_always_last() -> None:
    """Nine of sixteen is what a coin does."""
    late = of_rank(1, series(lambda number: {1 if number % 9 < 5 else 0: 60}, members=(0, 1)))
    assert late.late >= 0.5 * late.calls and late.chance > 0.1


def test_the_same_lateness_is_lost_once() -> None:
    """A rank that is 300 ms behind all the step shows it in every call, 30 ms apart."""
    late = of_rank(2, series(lambda number: {2: 300}, every_ms=lambda _: 30))
    assert late.share == pytest.approx(1.0) and late.lost_ns <= 18 * 30 * MS


def test_less_than_the_watchdog_looks_apart_does_not_count() -> None:
    assert of_series([series(lambda _: {2: 200}, coarse_ns=WATCHDOG_INTERVAL_NS)]).found == ()
    assert of_rank(2, series(lambda _: {2: 300}, every_ms=lambda _: 500, coarse_ns=WATCHDOG_INTERVAL_NS)).late == 18


def test_bounds_show_who_is_late_and_not_that_nobody_is() -> None:
    known, bound = series(lambda _: {}), series(lambda _: {}, is_bound=True)
    assert of_series([known]).seen == {0, 1, 2, 3}
    assert of_series([bound]).seen == frozenset()
    assert of_series([series(lambda _: {}, calls=6)]).seen == frozenset(), "six calls could not have shown it"


@pytest.mark.parametrize(
    ("late", "calls", "members", "chance"),
    [(3, 4, 2, 5 / 8), (5, 5, 4, 4 / 4**5), (0, 9, 3, 1.0), (7, 7, 1, 1.0), (1000, 3000, 64, 0.0), (20000, 40000, 2, 1.0)],
)
def test_the_chance_of_being_last_so_often(late: int, calls: int, members: int, chance: float) -> None:
    """Of thousands of calls too."""
    assert chance_of_last(late, calls, members) == pytest.approx(chance, abs=1e-9)


def with_steps(
    own: Callable[[int], float], others: float, step_late: float = 0.0, kind: str = "barrier", between: int = 5,
    usual: str = "all_reduce [4]", each: float = 50,
) -> tuple[Series, Series]:  # fmt: skip
    """Calls of two kinds in turn, `each` ms before the first; before the second rank 0 needs `own` ms of its number."""
    now = 0.0
    behind: tuple[list[list[int]], list[list[int]]] = [], []
    at_ns: tuple[list[list[int]], list[list[int]]] = [], []
    for number in range(20 * (between + 1)):
        is_barrier = number % (between + 1) == between
        extra = own(number // (between + 1)) - others if is_barrier else step_late
        now += (others if is_barrier else each) * MS
        late = [0 if each else int(extra * MS) for each in range(4)]
        behind[is_barrier].append(late)
        at_ns[is_barrier].append([int(now) + each for each in late])
        now += extra * MS
    return calls_of(usual, behind[0], at_ns[0], range(4)), calls_of(kind, behind[1], at_ns[1], range(4))


@pytest.mark.parametrize(
    ("own", "others", "step_late", "duty"),
    [
        (lambda _: 400.0, 2.0, 0.0, True),
        # All save, and one needs longer: it has the same work as its peers.
        (lambda _: 400.0, 150.0, 0.0, False),
        # It is late to the calls between as well.
        (lambda _: 400.0, 2.0, 60.0, False),
        # It became so in the record.
        (lambda number: 400.0 if number >= 10 else 20.0, 2.0, 0.0, False),
    ],
)
def test_work_of_one_rank_by_design(own: Callable[[int], float], others: float, step_late: float, duty: bool) -> None:
    found = [item for item in of_series(with_steps(own, others, step_late)).found if item.kind == "barrier"]
    assert [(item.rank, item.is_duty) for item in found] == [(0, duty)]


@pytest.mark.parametrize(("kind", "duty"), [("barrier", True), ("all_reduce [1]", False)])
def test_data_that_is_reduced_in_every_step_is_everybodys(kind: str, duty: bool) -> None:
    """A loader that stalls shows at the first reduction of each step alone, while its peers have their rows already."""
    calls = with_steps(lambda _: 200, 10, kind=kind, between=1)
    (item,) = of_series(calls).found
    assert (item.rank, item.is_duty) == (0, duty)


@pytest.mark.parametrize(("others", "each", "duty"), [(60, 1, False), (2, 60, True)], ids=["layers", "metrics"])
def test_a_call_that_follows_the_work_of_all_is_of_their_step(others: float, each: float, duty: bool) -> None:
    """Layers of one size are reduced several times a step: between two calls of the first layer lies no step of its own."""
    found = of_series(with_steps(lambda _: 400, others, kind="all_reduce [1]", between=3, each=each)).found
    assert [(item.rank, item.is_duty) for item in found if item.typical_ns > 300 * MS] == [(0, duty)]


@pytest.mark.parametrize(
    ("usual", "kind", "others", "duty"),
    [
        ("gather [8]", "broadcast [4]", 2, True),
        ("reduce [8]", "scatter [4]", 2, True),
        # The buffers of rank 0, which is late by its data.
        ("all_reduce [8]", "broadcast [4]", 2, False),
        # All have work between the two: rank 0 does the same and needs longer.
        ("gather [8]", "broadcast [4]", 150, False),
        # The answer is what everybody has made.
        ("gather [8]", "all_reduce [4]", 2, False),
    ],
)
def test_a_learner_makes_something_of_what_it_got_and_gives_it_to_all(usual: str, kind: str, others: float, duty: bool) -> None:
    late = of_series(with_steps(lambda _: 300, others, kind=kind, between=1, usual=usual)).found
    assert [(item.rank, item.is_duty) for item in late if item.kind == kind.split()[0]] == [(0, duty)]
