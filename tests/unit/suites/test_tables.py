"""Rows as JSON, text and a page."""

from __future__ import annotations

import json

from forensics.fixtures.suites import figures, tables
from forensics.fixtures.suites.interface import Case
from forensics.fixtures.suites.registry import SUITES
from forensics.fixtures.suites.running import Comparison, Row
from forensics.fixtures.suites.scoring import Score, is_positive, mark
from tests.unit.suites.documents import fault, suspect, truth, verdict

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
    found = json.loads(json.dumps(figures.document(HANG, 7, [*ROWS, FAILED])))
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
