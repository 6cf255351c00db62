"""Who comes last to collectives: on one clock, on clocks of their own, from the first call on or since a change."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

import numpy as np
import pytest

from forensics.rules.reductions.arrivals.arrivals import WATCHDOG_INTERVAL_NS, Series
from forensics.rules.reductions.arrivals.late_roots import in_step, roots, with_silent
from forensics.rules.reductions.arrivals.lateness import Lateness, Latenesses, chance_of_last, of_series
from forensics.rules.reductions.ranks.roster import RankFacts, Roster

MS = 1_000_000
LINKED = frozenset({(0, 2), (2, 0), (1, 3), (3, 1)})


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


def late(rank: int, lost: float, members: tuple[int, ...], group: str) -> Lateness:
    return Lateness(rank, group, "all_reduce", members, 20, 20, int(lost * MS), 0.5, 30 * MS, "dump")


def rooted(found: Sequence[Lateness], linked: frozenset[tuple[int, int]] = frozenset()) -> list[tuple[int, tuple[int, ...]]]:
    late = Latenesses(tuple(found), linked)
    return [(item.rank, others) for item, others in roots(late, lambda item: item.lost_ns >= 100 * MS)]


def test_who_waits_for_a_late_rank_in_a_group_of_its_own_is_late_elsewhere() -> None:
    """Rank 1 waits for rank 0 in their pair, and comes late to rank 3 for it."""
    found = [late(0, 900, (0, 1), "pair"), late(0, 800, (0, 2), "a"), late(1, 790, (1, 3), "b")]
    assert rooted(found) == [(0, ())]


def test_late_ranks_of_other_groups_are_others_faults() -> None:
    found = [late(0, 900, (0, 1), "a"), late(4, 500, (4, 5), "b")]
    assert [rank for rank, _ in rooted(found)] == [0, 4]


def test_what_comes_late_through_messages_is_passed_on() -> None:
    clear = [late(0, 900, (0, 1), "a"), late(2, 500, (2, 3), "b")]
    assert rooted(clear, LINKED) == [(0, ())]
    alike = [late(0, 900, (0, 1), "a"), late(2, 800, (2, 3), "b")]
    assert rooted(alike, LINKED) == [(0, (2,))]


def test_a_little_lateness_passes_on_what_it_is_not_named_for() -> None:
    found = [late(2, 900, (2, 4), "a"), late(3, 800, (3, 5), "b"), late(2, 50, (0, 2), "pair")]
    assert rooted(found, frozenset({(0, 3)})) == [(2, (3,))]
    assert rooted(found[:2], frozenset({(0, 3)})) == [(2, ()), (3, ())]


TENSOR = late(3, 150, (2, 3), "tensor")
REDUCED = [late(2, 950, (0, 2), "a"), late(3, 900, (1, 3), "b"), late(6, 890, (4, 6), "c"), late(7, 880, (5, 7), "d")]
TURNS = late(2, 140, (2, 3), "tensor")


@pytest.mark.parametrize(
    ("within", "expected"),
    [
        ([TENSOR], [(3, ())]),
        ([], [(2, (6,)), (3, (7,))]),
        ([replace(TENSOR, typical_ns=5 * MS)], [(2, (6,)), (3, (7,))]),  # too little for what it costs
        ([TENSOR, TURNS], [(2, (6, 7))]),  # both are the last at times: neither holds the other up
        ([TENSOR, replace(TURNS, lost_ns=20 * MS, late=1)], [(3, ())]),  # once
        ([replace(TENSOR, members=(1, 3))], [(2, (6,)), (3, (7,))]),  # whom it is late for are late nowhere else
    ],
)
def test_who_is_late_to_its_tensor_peers_makes_them_late(
    within: list[Lateness], expected: list[tuple[int, tuple[int, ...]]]
) -> None:
    """All ranks of two stages come late to the reduction of gradients, by nearly as much; rank 3 alone to its tensor peer."""
    messages = frozenset({(2, 6), (6, 2), (3, 7), (7, 3)})
    assert rooted([*REDUCED, *within], messages) == expected


@pytest.mark.parametrize(("own", "expected"), [({2}, [(0, ()), (2, ())]), (set(), [(0, ())]), ({3}, [(0, ())])])
def test_what_arose_in_a_rank_itself_was_not_passed_on(own: set[int], expected: list[tuple[int, tuple[int, ...]]]) -> None:
    found = Latenesses((late(0, 900, (0, 1), "a"), late(2, 500, (2, 3), "b")), LINKED)
    kept = roots(found, lambda item: item.lost_ns >= 100 * MS, lambda item: item.rank in own)
    assert [(item.rank, others) for item, others in kept] == expected


@pytest.mark.parametrize(
    ("own", "lost", "expected"),
    [({0}, 880, [0]), (set(), 880, [0, 3]), ({0, 3}, 880, [0, 3]), ({0}, 1500, [0, 3])],
    ids=["a message delays it", "nobody is late by itself", "late to nearly all calls as well", "later than its sender"],
)
def test_who_receives_of_a_rank_that_is_late_by_itself_does_not_lead_its_peers(
    own: set[int], lost: int, expected: list[int]
) -> None:
    """Rank 3 gets its messages of rank 0, and is the last within its pair once in each pass."""
    first = replace(late(0, 900, (0, 1), "first"), calls=900, late=900)
    found = Latenesses((first, late(3, lost, (3, 5), "a"), late(2, lost, (2, 4), "b"), TENSOR), frozenset({(0, 3)}))
    kept = roots(found, lambda item: item.lost_ns >= 300 * MS, lambda item: item.rank in own)
    assert sorted(item.rank for item, _ in kept) == expected


@pytest.mark.parametrize(("own", "beside"), [(set[int](), (2,)), ({0}, ())])
def test_beside_a_rank_that_is_late_by_itself_nobody_else_may_be_meant(own: set[int], beside: tuple[int, ...]) -> None:
    found = Latenesses((late(0, 900, (0, 1), "a"), late(2, 800, (2, 3), "b")), LINKED)
    kept = roots(found, lambda item: item.lost_ns >= 100 * MS, lambda item: item.rank in own)
    assert [(item.rank, others) for item, others in kept] == [(0, beside)]


CUT = Lateness(3, "tensor", "all_reduce", (2, 3, 4), 900, 900, 300 * MS, 0.5, 2 * MS, "dump")
ELSEWHERE = [late(8, 950, (8, 9), "z"), late(2, 920, (0, 2), "a"), late(4, 900, (1, 4), "b")]
PASSED_ON = frozenset({(8, 2), (2, 8), (8, 3), (3, 8), (8, 4), (4, 8)})


@pytest.mark.parametrize(
    ("found", "expected"),
    [
        ([*ELSEWHERE, CUT], [(3, ())]),
        (ELSEWHERE, [(8, (2, 4))]),
        # It is late among its peers by far less of the time than these are elsewhere.
        ([*ELSEWHERE, replace(CUT, share=0.2)], [(8, (2, 4))]),
        # One of its peers is late by as much, and the other one is not.
        ([*ELSEWHERE[:2], CUT], [(8, (2,))]),
        # They take turns.
        ([*ELSEWHERE, CUT, replace(CUT, rank=2, lost_ns=250 * MS)], [(8, (2, 4))]),
    ],
    ids=["all of its peers", "no such group", "too little", "one peer", "turns"],
)
def test_a_cut_record_clears_nobody_who_is_last_among_its_peers(
    found: list[Lateness], expected: list[tuple[int, tuple[int, ...]]]
) -> None:
    """Rank 3 is cut before it met others often enough; what it costs in the fewer calls is as much of the time."""
    assert rooted(found, PASSED_ON) == expected


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


def late_at(rank: int, *members: int) -> Lateness:
    return Lateness(rank, "dp", "reduce_scatter", members, 9, 9, 9 * MS, 0.3, MS, f"{rank}.fr")


@pytest.mark.parametrize(
    ("late", "found"),
    [
        ([late_at(0, 0, 4), late_at(1, 1, 5)], [(0, (1, 2, 3))]),
        ([late_at(0, 0, 4), late_at(6, 2, 6)], [(0, ()), (6, ())]),
        ([late_at(0, 0, 4), late_at(1, 0, 1, 2, 3)], [(0, ()), (1, ())]),
        ([replace(late_at(0, 0, 4), within=late_at(0, 0, 1, 2, 3)), late_at(1, 1, 5)], [(0, ()), (1, ())]),
    ],
    ids=["of one group", "of two groups", "one is last within it", "one leads"],
)
def test_late_ranks_of_a_group_in_step_are_not_told_apart(
    late: list[Lateness], found: list[tuple[int, tuple[int, ...]]]
) -> None:
    """Each comes late to the calls with its replica by as much, and nothing shows who is last among them."""
    groups = [(0, 1, 2, 3), (4, 5, 6, 7)]
    assert [
        (item.rank, others) for item, others in in_step([(item, ()) for item in late], groups, frozenset(), range(8))
    ] == found


@pytest.mark.parametrize(
    ("lost_ms", "found"), [(8, [(0, (1, 2, 3, 9))]), (5, [(0, (1, 2, 3))]), (12, [(0, (1, 2, 3)), (9, ())])],
    ids=["as late", "less", "later by itself"],
)  # fmt: skip
def test_who_receives_of_a_late_group_is_late_by_it(lost_ms: int, found: list[tuple[int, tuple[int, ...]]]) -> None:
    """Rank 2, of which nothing is left, works in step with two late ranks and sends to rank 9."""
    late = [late_at(0, 0, 4), late_at(1, 1, 5), replace(late_at(9, 9, 8), lost_ns=lost_ms * MS)]
    of_group = in_step([(item, ()) for item in late], [(0, 1, 2, 3)], frozenset({(2, 9), (9, 2)}), range(10))
    assert [(item.rank, others) for item, others in of_group] == found


@pytest.mark.parametrize(
    ("late", "others"),
    [
        (late_at(0, 0, 4), (2,)),
        (late_at(5, 1, 5), ()),
        (replace(late_at(0, 0, 4), within=late_at(0, 0, 1, 2, 3)), ()),
        (late_at(0, 0, 1, 2, 3), ()),
    ],
    ids=["with one that left nothing", "all are seen", "it leads", "it is last within them"],
)
def test_who_works_in_step_with_one_that_left_no_record_may_be_late_because_of_it(
    late: Lateness, others: tuple[int, ...]
) -> None:
    seen = {0, 1, 3, 4, 5, 6, 7}
    assert in_step([(late, ())], [(0, 1, 2, 3), (4, 5, 6, 7)], frozenset(), seen) == [(late, others)]


def test_a_rank_without_a_record_that_sends_to_a_late_one_may_be_meant() -> None:
    """Ranks 1 and 2 are one of two that are late; rank 3 sends to rank 1, and so does rank 4, whose record shows when."""
    roster = Roster({rank: RankFacts(rank, has_recorder=rank != 3) for rank in range(5)}, 5)
    linked = Latenesses(linked=frozenset({(3, 1), (4, 1), (1, 3)}))
    assert with_silent((1, 2), linked, roster) == (2, 3)
