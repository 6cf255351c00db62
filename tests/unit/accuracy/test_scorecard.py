"""The scorecard: intervals, real and simulated cases side by side, and the page that is stored."""

from __future__ import annotations

import json

from tests.accuracy import page, scorecard, sittings
from tests.accuracy.scoring import Row, Score
from tests.accuracy.sittings import Sitting
from tests.accuracy.tally import Tally

SUITES = """# Suites

| suite | cases | right ranks | exact | partial | wrong | precision | recall | F1 | accused wrongly | published | wanted |
|---|---|---|---|---|---|---|---|---|---|---|---|
| hang | 10 | 9 | 7 | 2 | 1 | 1.00 | 0.90 | 0.95 | 1 of 10 | paper f1 1 | F1 1.00 |
| live | 0 |  |  |  |  |  |  |  | not run | | |

## hang

| handed over as | cases | exact | partial | silent | wrong |
|---|---|---|---|---|---|
| bundle | 10 | 7 | 2 | 0 | 1 |
| field form | 30 | 12 | 5 | 11 | 2 |

## nic

| field form | 3 | 1 | 1 | 1 | 0 |
"""


def row(named: tuple[int, ...], score: Score, truth: tuple[tuple[int, ...], ...] = ((2,),), moves: bool = False) -> Row:
    return Row("fault", moves, 1, truth, {"whole": named, "dumps": ()}, {"whole": score, "dumps": Score.WRONG}, {}, True)


def test_suites_are_read_from_their_page() -> None:
    assert scorecard.suites(SUITES) == {"hang": Tally(9, 1, 10), "in parts": Tally(13, 2, 33)}


def test_columns_are_found_by_their_names() -> None:
    page = """| suite | cases | below the gate | right ranks | F1 with stage | accused wrongly |
|---|---|---|---|---|---|
| slowdown | 8 | 2 | 5 | 0.40 | 1 of 8 |
| live | 0 |  |  |  |  |
"""
    assert scorecard.suites(page) == {"slowdown": Tally(5, 1, 8)}
    assert scorecard.suites("# Nothing yet") == {}


def test_real_rows_count_innocents_apart_from_silence() -> None:
    rows = [
        row((2,), Score.EXACT), row((), Score.WRONG), row((2, 3), Score.PARTIAL), row((1,), Score.WRONG),
        row((), Score.EXACT, ((),), moves=True),
    ]  # fmt: skip
    fresh = [Sitting("a user", "real", "hung", "logs", 1, 1, 2)]
    text = scorecard.section(rows, ("whole", "dumps"), Tally(3, 0, 4), fresh)
    cells = next(line for line in text.splitlines() if line.startswith("| a hang, whole bundle"))
    assert cells.startswith("| a hang, whole bundle | 1 of 4 (5-70 %) | 2 of 4 (15-85 %) |")
    assert text.index("## Never run on") < text.index("## Scorecard") < text.index("1 of 2 (9-91 %)")


def test_sets_of_one_kind_and_form_are_counted_together() -> None:
    fresh = [
        Sitting("logs", "written", "at fault", "logs", 2, 0, 3),
        Sitting("first", "real", "sound", "logs", 4, 0, 4),
        Sitting("first", "real", "hung", "logs", 1, 1, 2),
        Sitting("second", "real", "hung", "logs", 2, 0, 2),
    ]
    assert list(sittings.pooled(fresh).items()) == [
        (("real", "hung", "logs"), Tally(3, 1, 4)),
        (("real", "sound", "logs"), Tally(4, 0, 4)),
        (("written", "at fault", "logs"), Tally(2, 0, 3)),
    ]
    assert sittings.every(fresh).splitlines()[-1] == "| second | hung | logs | 2 | 0 | 2 |"


def test_no_sitting_counts_more_than_it_has() -> None:
    found = sittings.stored()
    assert all(one.right >= 0 and one.others >= 0 and one.right + one.others <= one.cases for one in found)
    assert len({(one.set, one.jobs, one.form) for one in found}) == len(found)


def test_the_page_is_that_of_the_stored_rows() -> None:
    found = json.loads(page.ROWS.read_text(encoding="utf-8"))
    rows = [page.row_of(each) for each in found["rows"]]
    assert page.PAGE.read_text(encoding="utf-8") == page.render(rows, found["versions"])
