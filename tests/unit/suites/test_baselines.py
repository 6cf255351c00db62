"""The command that measures the methods of the papers on fresh seeds, and the one that measures what cases cost."""

from __future__ import annotations

import math
from pathlib import Path

import pytest

from forensics.fixtures.suites.interface import Case
from forensics.fixtures.suites.registry import SUITES
from forensics.fixtures.suites.results import opened
from forensics.fixtures.suites.rows import Comparison, Row
from forensics.fixtures.suites.scoring import Score
from tests.benchmarks import baselines, simulator_cost
from tests.benchmarks.simulator_cost import Cost
from tests.unit.suites.documents import fault, truth
from tests.unit.suites.rows import row

HANG = SUITES["hang"]
HIT, MISS = Comparison((5,), Score.EXACT, ()), Comparison((), Score.WRONG, ())


def answered(case: Case) -> Row:
    methods = {"missing rank": HIT if case.number % 2 else MISS, "network only": MISS, "fixed threshold": MISS}
    return row(case.number, None, truth("hang", fault(5)), methods=methods)


def test_cases_are_of_the_papers_kinds_only() -> None:
    found = [case.number for case in baselines.chosen(HANG, 3, 8)]
    drawn = [HANG.draw(case.random(), case.number) for case in (Case("hang", 3, number) for number in range(found[-1] + 1))]
    assert len(found) == 8 and found == [number for number, one in enumerate(drawn) if one.as_published]
    assert {drawn[number].about for number in found} <= {"forward", "backward", "transmission"}


def test_cases_that_ended_are_kept_and_none_is_begun_after_the_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    cases = [Case("hang", 7, number) for number in range(4)]
    asked: list[Case] = []

    def compared(case: Case) -> Row:
        asked.append(case)
        return answered(case)

    monkeypatch.setattr(baselines, "compare", compared)
    with opened(tmp_path / "rows", in_field=False) as results:
        assert baselines.sit(cases[:2], results, math.inf) == cases[:2]
        assert baselines.sit(cases, results, 0) == cases[:2]
        assert baselines.sit(cases, results, math.inf) == cases
    assert asked == cases


def test_the_page_has_published_figures_beside_those_reached_with_their_cases() -> None:
    found = baselines.page([(HANG, [answered(Case("hang", 7, number)) for number in range(1, 4)])], 7)
    assert "| hang | missing rank | 3 | f1 | 0.80 | 0.80 |" in found
    assert "| hang | missing rank | 3 | found | - | 2 of 3 (21-94 %) |" in found


def test_rules_that_rank_stages_need_no_bundle() -> None:
    found = baselines.compare(baselines.chosen(SUITES["frontier"], 3, 1)[0])
    assert found.error == ""
    assert found.verdict is None
    assert found.routings["frontier"].top2


def test_a_cost_is_a_ratio_against_dumps_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(simulator_cost, "cost", lambda ranks, asked: Cost(ranks / 16 * (1 + len(asked)), 100, 10))
    found = simulator_cost.table([64, 1024])
    assert "| 64 | recorder only | 12.0 s | 1.0 | 100 MiB | 10 MiB |" in found
    assert "| 1,024 | usual | 64.0 s | 0.3 |" in found
    assert "kineto" not in found.partition("1,024")[2]


@pytest.mark.slow
def test_what_a_case_costs_is_measured_in_a_process_of_its_own() -> None:
    found = simulator_cost.cost(16, ("--only", "recorder", "--iterations", "2"))
    assert found.seconds > 0 and found.memory > 10 and found.size > 0.01
