"""The logs modelled on public reports: the index is whole, and a score means what the page says."""

from __future__ import annotations

from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest

from forensics.model import Outcome
from tests.accuracy import public
from tests.accuracy.public import Case, Row, Score
from tests.accuracy.tally import Tally

CASES = public.cases()


def suspect(*ranks: int, members: str = "each") -> dict[str, Any]:
    return {"ranks": list(ranks), "members": members}


def case(ranks: tuple[int, ...] = (), acceptable: tuple[int, ...] = ()) -> Case:
    return Case("a.log", "https://example.org/1", "watchdog", ("hang",), ranks, acceptable, None, "because")


def test_every_log_is_listed_once() -> None:
    listed = [one.log for one in CASES]
    assert sorted(listed) == sorted(path.name for path in public.LOGS.glob("*.log"))
    assert listed == sorted(set(listed))
    assert len(listed) >= 100


@pytest.mark.parametrize("one", CASES, ids=lambda one: Path(one.log).stem)
def test_a_case_is_whole(one: Case) -> None:
    address = urlsplit(one.source)
    assert address.scheme == "https" and address.netloc and address.path.strip("/")
    assert one.outcome and set(one.outcome) <= {outcome.value for outcome in Outcome}
    assert not set(one.ranks) & set(one.acceptable)
    assert one.reasoning.endswith(".")
    assert (public.LOGS / one.log).read_text(encoding="utf-8").strip()


def test_a_third_names_nobody() -> None:
    assert 3 * sum(not one.ranks for one in CASES) >= len(CASES)


@pytest.mark.parametrize(
    ("suspects", "truth", "expected"),
    [
        ([suspect(2)], case((2,)), Score.EXACT),
        ([], case((2,)), Score.SILENT),
        ([suspect(2, 3, members="one_of")], case((2,)), Score.GROUP),
        ([suspect(2, 3)], case((2,)), Score.WRONG),
        ([suspect(2, 3)], case((2,), (3,)), Score.GROUP),
        ([suspect(3)], case((2,), (3,)), Score.WRONG),
        ([suspect(2)], case((2, 3)), Score.WRONG),
        ([], case(), Score.EXACT),
        ([suspect()], case(), Score.EXACT),
        ([suspect(0)], case((), (0, 1)), Score.WRONG),
        ([suspect(0, 1)], case((), (0, 1)), Score.GROUP),
        ([suspect(4, 5, members="one_of")], case((), (0, 1)), Score.WRONG),
    ],
)
def test_scores(suspects: list[dict[str, Any]], truth: Case, expected: Score) -> None:
    assert public.score(suspects, truth) is expected


def test_a_part_of_the_page_lists_what_is_not_exact() -> None:
    rows = [
        Row("a.log", "watchdog", (2,), (2,), "hang", True, Score.EXACT),
        Row("b.log", "slow", (), (1,), "hang", True, Score.WRONG),
    ]
    assert "| b | - | 1 | wrong |" in public.section(rows, public.figures(rows))
    assert public.tally(rows) == Tally(right=1, others=1, cases=2)
