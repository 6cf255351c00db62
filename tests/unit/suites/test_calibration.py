"""Whether the words of confidence hold: which suspects are right, and how often each word is."""

from __future__ import annotations

import json
from typing import Any

import pytest

from forensics.fixtures.suites import breakdown, calibration
from forensics.fixtures.suites.calibration import Word, has_stage, is_right
from tests.unit.suites.documents import fault, suspect, truth, verdict
from tests.unit.suites.rows import row

HANG = truth("hang", fault(5))
GROUP = truth("hang", fault(5, group=(4, 5)))


@pytest.mark.parametrize(
    ("said", "true", "right"),
    [
        (suspect(5), HANG, True),
        (suspect(5, stage="data", cause="unknown"), HANG, True),
        (suspect(6), HANG, False),
        (suspect(5, 6), HANG, False),
        (suspect(5, 6, 7, members="one_of"), HANG, True),
        (suspect(6, 7, members="one_of"), HANG, False),
        (suspect(4, 5), GROUP, True),
        (suspect(4), GROUP, False),
        (suspect(4, members="one_of"), GROUP, False),
        (suspect(1), truth("slowdown", fault(0, 1, 2, 3)), True),
        (suspect(1, 7), truth("hang", fault(1), fault(7)), True),
        (suspect(3), truth("hang", fault(2, accepted_ranks=[[2], [3]])), True),
        (suspect(5), truth("healthy", fault(5)), True),
        (suspect(6), truth("healthy", fault(5)), False),
        (suspect(6), truth("healthy"), False),
        (suspect(), HANG, True),
        (suspect(stage="data"), HANG, False),
        (suspect(), truth("healthy"), False),
        (suspect(), truth("slowdown", fault(5, stage=None)), None),
    ],
)
def test_a_suspect_is_right_when_what_it_says_of_ranks_is_true(said: Any, true: Any, right: bool | None) -> None:
    assert is_right(said, true) is right


@pytest.mark.parametrize(
    ("said", "true", "right"),
    [
        (suspect(5), HANG, True),
        (suspect(5, stage="unknown"), HANG, False),
        (suspect(5, stage="data"), truth("slowdown", fault(5, stage=None)), True),
        (suspect(7, stage="forward"), truth("hang", fault(1), fault(7, stage="backward")), False),
        (suspect(7, stage="backward"), truth("hang", fault(1), fault(7, stage="backward")), True),
        (suspect(), truth("healthy"), False),
    ],
)
def test_the_stage_is_that_of_the_fault_of_these_ranks(said: Any, true: Any, right: bool) -> None:
    assert has_stage(said, true) is right


def test_each_alternative_counts_by_its_word() -> None:
    said = verdict("hang", suspect(5, confidence="confirmed"), suspect(6, confidence="suspect"))
    late = verdict("hang", suspect(5, stage="data", confidence="confirmed"))
    found = calibration.words([row(0, said, HANG), row(1, late, HANG), row(2, None, HANG), row(3, verdict("healthy"), HANG)])
    assert found == {"confirmed": Word(2, 2, 1), "likely": Word(0, 0, 0), "suspect": Word(1, 0, 0)}


def test_words_stand_beside_what_is_wanted_of_them() -> None:
    rows = [row(0, verdict("hang", suspect(5, confidence="confirmed")), HANG)]
    table = breakdown.calibration(rows)
    assert table[1] == ("confirmed", "1", "1 of 1 (21-100 %)", "99 %", "open", "1 of 1 (21-100 %)")
    assert [line[3] for line in table[2:]] == ["95 %", "70 %"]
    found = json.loads(json.dumps(calibration.documents(calibration.words(rows))))
    assert (found["confirmed"]["wanted"], found["confirmed"]["right"]["share"]) == (0.99, 1.0)
    assert (found["likely"]["wanted"], found["likely"]["right"]["share"]) == (0.95, None)


def test_without_suspects_there_is_no_table() -> None:
    assert breakdown.calibration([]) == []
    assert breakdown.calibration([row(0, verdict("healthy"), truth("healthy"))]) == []


@pytest.mark.parametrize(("right", "suspects", "said"), [(400, 400, "yes"), (99, 100, "open"), (90, 100, "no"), (0, 0, "open")])
def test_a_word_holds_when_its_whole_interval_does(right: int, suspects: int, said: str) -> None:
    assert calibration.Word(suspects, right).holds(0.99) == said
