"""What a verdict is worth, and what the rows of a suite add up to."""

from __future__ import annotations

import pytest

from forensics.fixtures.suites.figures import figures
from forensics.fixtures.suites.scoring import Score, locate, mark
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


def test_a_sound_job_is_exact_when_it_is_called_healthy() -> None:
    assert mark(verdict("healthy"), HEALTHY).score is Score.EXACT
    assert mark(verdict("inconclusive"), HEALTHY).score is Score.PARTIAL
    accused = mark(verdict("slowdown", suspect(2)), HEALTHY)
    assert (accused.score, accused.innocent) == (Score.WRONG, (2,))


def test_a_fault_that_was_absorbed_is_nobodys_to_name() -> None:
    absorbed = truth("healthy", fault(2))
    assert locate((), absorbed) == (Score.EXACT, frozenset())
    assert locate((2,), absorbed) == (Score.WRONG, frozenset({2}))


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
