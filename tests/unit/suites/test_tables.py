"""Rows as JSON, text and a page."""

from __future__ import annotations

from pathlib import Path

import pytest

from forensics.fixtures.suites import figures, tables
from forensics.fixtures.suites.explained import METHOD
from forensics.fixtures.suites.interface import Case
from forensics.fixtures.suites.registry import SUITES
from forensics.fixtures.suites.rows import Comparison, Row
from forensics.fixtures.suites.scoring import Score, is_positive, mark
from tests.unit.suites.documents import fault, suspect, truth, verdict
from tests.unit.suites.rows import document

HANG = SUITES["hang"]


def row(number: int, said: dict[str, object], true: dict[str, object]) -> Row:
    methods = {"missing rank": Comparison((5,), Score.EXACT, ()), "network only": Comparison((), Score.WRONG, ())}
    return Row(Case("hang", 7, number), "forward", "dense", True, is_positive(true), true, said, mark(said, true), methods)


ROWS = [
    row(0, verdict("hang", suspect(5)), truth("hang", fault(5))),
    row(1, verdict("inconclusive"), truth("hang", fault(5))),
    row(2, verdict("hang", suspect(6)), truth("hang", fault(5))),
    row(3, verdict("hang", suspect(5, stage="data")), truth("hang", fault(5))),
]
FAILED = Row(Case("hang", 7, 4), "not made", "", False, False, {"outcome": None, "faults": []}, None, None, error="no memory")


def test_the_document_has_the_keys_of_the_design_and_a_row_for_each_case() -> None:
    found = document(HANG, 7, [*ROWS, FAILED])
    assert {"suite", "cases", "exact", "precision", "recall", "f1", "rows"} <= found.keys()
    assert (found["cases"], found["exact"], found["partial"], found["wrong"], found["errors"]) == (5, 1, 1, 2, 1)
    assert (found["precision"], found["recall"]) == (2 / 3, 0.5)
    first = found["rows"][1]
    assert (first["case"], first["seed"], first["number"], first["score"]) == ("hang:7:1", 7, 1, "wrong")
    assert first["replay"] == "forensics evaluate --replay hang:7:1"
    assert first["truth"]["faults"][0]["ranks"] == [5]
    assert first["verdict"]["suspects"] == []


def test_published_figures_stand_beside_those_reached_here() -> None:
    found = figures.compared(HANG, ROWS)
    assert found["missing rank"]["published"] == {"f1": 0.8}
    assert found["missing rank"]["measured"]["f1"] == 1.0
    assert found["VenusTrace"] == {"published": {"f1": 1.0}, "measured": {}}


def test_reasons_are_in_words() -> None:
    assert [figures.reason(one) for one in (*ROWS[1:], FAILED)] == [
        "nobody named",
        "innocent ranks named",
        "stage not right",
        "no answer",
    ]


def test_text_and_page_list_what_was_not_found() -> None:
    for shown in (tables.text([(HANG, [*ROWS, FAILED])]), tables.markdown([(HANG, [*ROWS, FAILED])], "forensics evaluate")):
        assert "hang:7:1" in shown
        assert "nobody named" in shown
        assert "no memory" in shown
        assert "0.80" in shown


def test_a_suite_that_did_not_run_says_so() -> None:
    assert "Not run" in tables.markdown([(HANG, [])], "forensics evaluate")
    assert "not run" in tables.text([(HANG, [])])


def test_with_stage_whoever_is_named_for_another_stage_is_named_wrongly() -> None:
    ranks, staged = figures.of_rows(ROWS), figures.with_stage(ROWS)
    assert (ranks.hits, ranks.missed, ranks.accused) == (2, 2, 1)
    assert (staged.hits, staged.missed, staged.accused) == (1, 3, 2)
    unknown = row(0, verdict("hang", suspect(5, stage="unknown")), truth("hang", fault(5)))
    assert figures.with_stage([unknown]).f1 == 0.0


def test_with_stage_ranks_are_enough_where_the_truth_has_none() -> None:
    lasting = row(0, verdict("slowdown", suspect(5)), truth("slowdown", fault(5, stage=None)))
    assert figures.with_stage([lasting]).f1 == 1.0


def test_with_stage_each_of_two_faults_needs_its_own() -> None:
    both = truth("hang", fault(1), fault(7, stage="backward"))
    right = row(0, verdict("hang", suspect(1), suspect(7, stage="backward")), both)
    assert figures.with_stage([right]).f1 == 1.0
    half = row(0, verdict("hang", suspect(1), suspect(7)), both)
    assert (figures.of_rows([half]).f1, figures.with_stage([half]).f1) == (1.0, 0.0)


def test_with_stage_an_alternative_with_other_ranks_is_an_accusation() -> None:
    found = figures.with_stage([row(0, verdict("hang", suspect(5), suspect(6)), truth("hang", fault(5)))])
    assert (found.hits, found.accused) == (0, 1)


@pytest.mark.parametrize("rows", [[], [FAILED], [row(0, verdict("healthy"), truth("healthy"))]])
def test_with_stage_nothing_to_find_has_no_figures(rows: list[Row]) -> None:
    assert figures.with_stage(rows).f1 is None
    assert tables.staged(rows) == ""
    assert document(HANG, 7, rows)["with_stage"].items() >= {"precision": None, "recall": None, "f1": None}.items()


def test_figures_with_stage_stand_beside_those_of_ranks() -> None:
    said = "anks: precision 0.67 (21-94 %), recall 0.50 (15-85 %), F1 0.57 (17-89 %); ranks with stage: precision 0.33 (6-79 %)"
    assert said in tables.text([(HANG, ROWS)])
    assert said in tables.markdown([(HANG, ROWS)], "forensics evaluate")
    assert document(HANG, 7, ROWS)["with_stage"]["recall"] == 0.25
    overview = dict(zip(*tables.overview([(HANG, ROWS)]), strict=True))
    assert (overview["F1"], overview["F1 with stage"]) == ("0.57", "0.29")


def test_what_is_not_said_is_distinguished_from_what_is_not_right() -> None:
    stated = ("microbatch", "mechanism")
    true = truth("hang", fault(5, tells=stated, mechanism={"state": "not_delivered", "side": "local"}))
    silent = row(0, verdict("hang", suspect(5, stage="data")), true)
    assert figures.reason(silent) == "stage not right, microbatch and mechanism not said"
    other = row(0, verdict("hang", suspect(5, microbatch=2, mechanism={"state": "slow_flow", "side": "local"})), true)
    assert figures.reason(other) == "microbatch and mechanism not right"
    wide = row(0, verdict("hang", suspect(1, 2, 3, members="one_of")), truth("hang", fault(1, 2, 3)))
    assert figures.reason(wide) == "one of many ranks named"


def test_below_the_gate_only_false_alarms_are_listed() -> None:
    below = truth("healthy", fault(5))
    said = (verdict("slowdown", suspect(5)), verdict("inconclusive"), verdict("slowdown", suspect(6)))
    rows = [row(number, one, below) for number, one in enumerate(said)]
    assert [line[0] for line in tables.failures(rows)[1:]] == ["hang:7:2"]
    found = document(HANG, 7, rows)
    assert found["below"]["cases"] == 3
    assert (found["exact"], found["partial"], found["wrong"], found["flagged"]) == (0, 0, 0, 1)
    assert [one["is_below"] for one in found["rows"]] == [True] * 3
    assert "right ranks named" in tables.text([(HANG, rows)])


def test_only_several_suites_add_up() -> None:
    assert tables.over_all([(HANG, ROWS), (SUITES["nic"], [])]) == []
    both = [(HANG, ROWS), (SUITES["nic"], ROWS)]
    assert [heading for heading, _ in tables.over_all(both)] == ["Confidence over all suites", "Sources over all suites"]
    confidence = tables.over_all(both)[0][1]
    assert [line[:2] for line in confidence[1:]] == [("confirmed", "0"), ("likely", "6"), ("suspect", "0")]
    assert "## Confidence over all suites" in tables.markdown(both, "forensics evaluate")
    assert "Confidence over all suites" in tables.text(both)


def test_a_document_has_kinds_sources_and_calibration() -> None:
    found = document(HANG, 7, [*ROWS, FAILED])
    assert found["kinds"]["forward"]["right_ranks"]["of"] == 4
    assert found["sources"].keys() == {"not known"}
    assert found["calibration"]["likely"]["right"]["count"] == 2


def test_every_line_of_a_table_has_as_many_cells_as_its_head() -> None:
    for table in (tables.overview([(HANG, ROWS), (HANG, [])]), tables.failures(ROWS)):
        assert len({len(line) for line in table}) == 1


def test_the_page_explains_scores_as_they_are_made() -> None:
    assert METHOD in (Path(__file__).parents[3] / "docs/suites.md").read_text(encoding="utf-8")
