"""What a verdict is worth, and what the rows of a suite add up to."""

from __future__ import annotations

from typing import Any

import pytest

from forensics.fixtures.suites.figures import figures
from forensics.fixtures.suites.scoring import Score, is_below, locate, mark
from tests.unit.suites.documents import fault, suspect, truth, verdict

HANG = truth("hang", fault(5))
GROUP = truth("hang", fault(5, group=(4, 5), accepted_causes=["network_down"]))
HEALTHY = truth("healthy")


def test_everything_right_is_exact() -> None:
    found = mark(verdict("hang", suspect(5, microbatch=3)), HANG)
    assert found.score is Score.EXACT
    assert (found.outcome, found.stage, found.microbatch, found.cause) == (True, True, True, True)


@pytest.mark.parametrize(
    "said",
    [suspect(5, stage="backward"), suspect(5, cause="gil_held"), suspect(5, microbatch=2)],
    ids=["stage", "cause", "microbatch"],
)
def test_the_right_rank_with_something_else_wrong_is_partial(said: dict[str, object]) -> None:
    found = mark(verdict("hang", said), HANG)
    assert (found.score, found.location, found.innocent) == (Score.PARTIAL, Score.EXACT, ())


def test_a_wrong_outcome_is_not_exact() -> None:
    assert mark(verdict("slowdown", suspect(5)), HANG).score is Score.PARTIAL


def test_a_job_that_ended_after_a_hang_is_a_hang() -> None:
    assert mark(verdict("failstop", suspect(5)), HANG).score is Score.EXACT


def test_others_beside_the_culprit_make_it_partial_and_are_innocent() -> None:
    found = mark(verdict("hang", suspect(5), suspect(6)), HANG)
    assert (found.score, found.innocent) == (Score.PARTIAL, (6,))


@pytest.mark.parametrize("suspects", [(), (suspect(6),)], ids=["nobody", "another"])
def test_nobody_or_another_is_wrong(suspects: tuple[dict[str, object], ...]) -> None:
    assert mark(verdict("hang", *suspects), HANG).score is Score.WRONG


def test_where_the_evidence_tells_a_group_the_group_is_exact_and_so_is_the_rank() -> None:
    assert mark(verdict("hang", suspect(4, 5, cause="unknown")), GROUP).score is Score.EXACT
    assert mark(verdict("hang", suspect(5, cause="network_down")), GROUP).score is Score.EXACT
    assert mark(verdict("hang", suspect(4, cause="unknown")), GROUP).score is Score.WRONG


def test_an_unknown_cause_is_a_mistake_where_the_evidence_tells_the_rank() -> None:
    assert mark(verdict("hang", suspect(5, cause="unknown")), HANG).cause is False


def test_a_part_of_a_host_accuses_nobody_innocent() -> None:
    found = mark(verdict("slowdown", suspect(1)), truth("slowdown", fault(0, 1, 2, 3)))
    assert (found.score, found.innocent) == (Score.PARTIAL, ())


def test_two_faults_are_found_by_two_suspects() -> None:
    both = truth("hang", fault(1), fault(7, group=(6, 7)))
    assert mark(verdict("hang", suspect(1), suspect(6, 7)), both).location is Score.EXACT
    assert mark(verdict("hang", suspect(1)), both).location is Score.PARTIAL


JOINT = {"name": "backward", "component": "communication", "microbatch": None}
WHOLE = {"granularity": "job", "cause": "network_slow"}


@pytest.mark.parametrize(
    ("said", "world", "score"),
    [
        (suspect(**WHOLE, stage="backward", component="communication"), 4, Score.EXACT),
        (suspect(**WHOLE, stage="backward", component="communication"), 8, Score.PARTIAL),
        (suspect(**WHOLE, stage="forward", component="communication"), 4, Score.WRONG),
        (suspect(**WHOLE, stage="backward", component="unknown"), 4, Score.PARTIAL),
        (suspect(granularity="job", cause="unknown", stage="backward", component="communication"), 4, Score.PARTIAL),
        (suspect(2, stage="backward", component="communication", cause="network_slow"), 4, Score.WRONG),
    ],
    ids=["a collective of all", "of some", "of another stage", "of no component", "of no cause", "one other rank"],
)
def test_a_slow_collective_of_all_ranks_may_be_called_the_whole_job(said: dict[str, Any], world: int, score: Score) -> None:
    slow = fault(1, group=(0, 1, 2, 3), stage=None, accepted_causes=["network_slow"])
    found = mark(verdict("slowdown", said), {**truth("slowdown", {**slow, "stage": JOINT}), "world_size": world})
    assert found.score is score


def test_a_sound_job_is_exact_when_it_is_called_healthy() -> None:
    assert mark(verdict("healthy"), HEALTHY).score is Score.EXACT
    assert mark(verdict("inconclusive"), HEALTHY).score is Score.PARTIAL
    accused = mark(verdict("slowdown", suspect(2)), HEALTHY)
    assert (accused.score, accused.innocent) == (Score.WRONG, (2,))


@pytest.mark.parametrize("said", [None, 3, 2])
def test_a_microbatch_that_the_evidence_tells_has_to_be_said(said: int | None) -> None:
    found = mark(verdict("hang", suspect(5, microbatch=said)), truth("hang", fault(5, tells=("microbatch",))))
    assert (found.microbatch, found.score) == ((True, Score.EXACT) if said == 3 else (False, Score.PARTIAL))
    assert (found.location, found.stage, found.cause) == (Score.EXACT, True, True)


@pytest.mark.parametrize(("said", "right"), [("unknown", None), ("forward", True), ("backward", False)])
def test_a_stage_that_nothing_shows_may_be_left_out_and_not_be_wrong(said: str, right: bool | None) -> None:
    hidden = fault(5)
    hidden["determinable"]["stage"] = False
    assert mark(verdict("hang", suspect(5, stage=said)), truth("hang", hidden)).stage is right
    assert mark(verdict("hang", suspect(5, stage="unknown")), HANG).stage is False


def test_a_microbatch_that_no_source_tells_may_be_left_out_and_not_be_wrong() -> None:
    assert mark(verdict("hang", suspect(5)), HANG).microbatch is None
    assert mark(verdict("hang", suspect(5)), HANG).score is Score.EXACT
    assert mark(verdict("hang", suspect(5, microbatch=2)), HANG).score is Score.PARTIAL


@pytest.mark.parametrize(
    ("said", "tells", "right", "score"),
    [
        ("slow_flow", ("mechanism",), True, Score.EXACT),
        ("late_start", ("mechanism",), False, Score.PARTIAL),
        (None, ("mechanism",), False, Score.PARTIAL),
        ("late_start", (), False, Score.PARTIAL),
        (None, (), None, Score.EXACT),
    ],
)
def test_a_mechanism_that_the_evidence_tells_has_to_be_said(
    said: str | None, tells: tuple[str, ...], right: bool | None, score: Score
) -> None:
    true = truth("slowdown", fault(5, tells=tells, mechanism={"state": "slow_flow", "side": "local"}))
    named = suspect(5, mechanism=said and {"state": said, "side": "unknown"})
    found = mark(verdict("slowdown", named), true)
    assert (found.mechanism, found.score, found.location) == (right, score, Score.EXACT)


def test_of_two_faults_each_microbatch_has_to_be_said() -> None:
    both = truth("hang", fault(1, tells=("microbatch",)), fault(7))
    assert mark(verdict("hang", suspect(1, microbatch=3), suspect(7)), both).score is Score.EXACT
    assert mark(verdict("hang", suspect(1), suspect(7, microbatch=3)), both).score is Score.PARTIAL


def test_one_of_more_than_two_ranks_is_exact_only_where_nothing_tells_them_apart() -> None:
    host = truth("slowdown", fault(0, 1, 2, stage=None, accepted_causes=["unknown"]))
    wide = mark(verdict("slowdown", suspect(0, 1, 2, members="one_of", cause="unknown")), host)
    assert (wide.score, wide.location, wide.narrow) == (Score.PARTIAL, Score.EXACT, False)
    group = truth("hang", fault(5, group=(4, 5, 6)))
    stated = mark(verdict("hang", suspect(4, 5, 6, members="one_of")), group)
    assert (stated.score, stated.narrow) == (Score.EXACT, True)
    each = mark(verdict("slowdown", suspect(0, 1, 2, cause="unknown")), host)
    assert (each.score, each.narrow) == (Score.EXACT, None)


def test_ranks_of_a_group_that_nothing_tells_apart_are_narrower_than_it() -> None:
    rail = truth("hang", fault(4, 5, 6, group=(3, 4, 5, 6, 7)))
    found = mark(verdict("hang", suspect(4, 5, 6, members="one_of")), rail)
    assert (found.score, found.narrow) == (Score.EXACT, True)


def test_a_group_and_a_part_of_a_host_are_partial() -> None:
    both = truth("hang", fault(1, group=(0, 1)), fault(4, 5, 6))
    found = mark(verdict("hang", suspect(0, 1, members="one_of"), suspect(4, 5)), both)
    assert (found.score, found.innocent) == (Score.PARTIAL, ())


def test_one_of_two_ranks_is_narrow_enough() -> None:
    assert mark(verdict("hang", suspect(4, 5, members="one_of", cause="unknown")), GROUP).score is Score.EXACT


def test_a_set_of_a_real_job_that_nothing_tells_apart_is_such_a_group() -> None:
    cycle = truth("hang", fault(0, 1, 2, accepted_ranks=[[0, 1, 2]]))
    assert mark(verdict("hang", suspect(0, 1, 2, members="one_of")), cycle).score is Score.EXACT


def test_one_of_the_ranks_of_two_faults_is_no_group_of_either() -> None:
    both = truth("hang", fault(1), fault(7, group=(6, 7)))
    found = mark(verdict("hang", suspect(1, 6, 7, members="one_of")), both)
    assert (found.location, found.score) == (Score.EXACT, Score.PARTIAL)


@pytest.mark.parametrize(
    ("said", "location", "innocent"),
    [((), Score.EXACT, ()), ((2,), Score.EXACT, ()), ((3,), Score.WRONG, (3,)), ((2, 3), Score.WRONG, (3,))],
)
def test_below_the_gate_only_others_are_a_false_alarm(
    said: tuple[int, ...], location: Score, innocent: tuple[int, ...]
) -> None:
    assert is_below(truth("healthy", fault(2))) and not is_below(HEALTHY) and not is_below(HANG)
    assert locate(said, truth("healthy", fault(2))) == (location, frozenset(innocent))


@pytest.mark.parametrize(
    ("said", "score"),
    [
        (verdict("healthy"), Score.EXACT),
        (verdict("slowdown", suspect(2)), Score.EXACT),
        (verdict("slowdown", suspect(2, stage="data", cause="unknown")), Score.EXACT),
        (verdict("inconclusive"), Score.PARTIAL),
        (verdict("slowdown", suspect()), Score.PARTIAL),
        (verdict("slowdown", suspect(2), suspect(3)), Score.WRONG),
    ],
)
def test_below_the_gate_naming_the_rank_is_as_good_as_naming_nobody(said: dict[str, object], score: Score) -> None:
    assert mark(said, truth("healthy", fault(2))).score is score


def test_below_the_gate_another_of_a_group_is_not_the_rank_and_the_group_is() -> None:
    group = truth("healthy", fault(5, group=(4, 5)))
    assert locate((4, 5), group) == (Score.EXACT, frozenset())
    assert locate((4,), group) == (Score.WRONG, frozenset({4}))


def test_figures_count_hits_misses_and_accusations() -> None:
    found = figures(
        [
            (True, Score.EXACT, ()),
            (True, Score.PARTIAL, (3,)),
            (True, None, ()),
            (False, Score.WRONG, (1,)),
            (False, Score.EXACT, ()),
        ]
    )
    assert (found.cases, found.hits, found.missed, found.accused, found.flagged) == (5, 1, 2, 2, 1)
    assert found.precision == pytest.approx(1 / 3)
    assert found.recall == pytest.approx(1 / 3)
    assert found.f1 == pytest.approx(1 / 3)


def test_figures_of_nothing_are_no_numbers() -> None:
    nothing = figures([(False, Score.EXACT, ())])
    assert (nothing.precision, nothing.recall, nothing.f1) == (None, None, None)
