"""Cases come from seed and number alone."""

from __future__ import annotations

import pytest

from forensics.errors import ForensicsError
from forensics.fixtures.simulator.faults import parse
from forensics.fixtures.suites import frontier, nic
from forensics.fixtures.suites.interface import Case, Draw, Suite
from forensics.fixtures.suites.registry import SUITES, chosen

DRAWN = [suite for suite in SUITES.values() if suite.record is None]


def draws(suite: Suite, seed: int, count: int = 24) -> list[Draw]:
    cases = [Case(suite.name, seed, number) for number in range(count)]
    return [suite.draw(case.random(), case.number) for case in cases]


@pytest.mark.parametrize("suite", DRAWN, ids=lambda suite: suite.name)
def test_the_same_seed_draws_the_same_cases(suite: Suite) -> None:
    assert draws(suite, 3) == draws(suite, 3)


@pytest.mark.parametrize("suite", DRAWN, ids=lambda suite: suite.name)
def test_every_fault_is_one_of_the_simulators(suite: Suite) -> None:
    assert all(parse(text).kind for draw in draws(suite, 1, 60) for text in draw.faults)


@pytest.mark.parametrize("name", ["hang", "slowdown", "healthy", "ccl"])
def test_another_seed_is_another_exam(name: str) -> None:
    assert draws(SUITES[name], 3) != draws(SUITES[name], 4)


def test_hangs_visit_the_papers_phases_alike_and_other_kinds_too() -> None:
    found = draws(SUITES["hang"], 5, 40)
    usual = [draw.about for draw in found if draw.as_published]
    assert {usual.count(phase) for phase in ("forward", "backward", "transmission")} == {10}
    assert len({draw.about for draw in found if not draw.as_published}) > 3


def test_a_third_of_the_delays_must_be_absorbed() -> None:
    found = draws(SUITES["slowdown"], 5, 30)
    assert sum(draw.about == "absorbed" for draw in found) >= 9


def test_all_cells_of_the_tables_have_their_turn() -> None:
    cells = {(draw.about, draw.faults) for draw in draws(SUITES["nic"], 0, len(nic.CELLS))}
    assert len({about for about, _ in cells}) == 12
    rows = [draw for draw in draws(SUITES["frontier"], 0, len(frontier.CELLS)) if draw.as_published]
    assert len(rows) == 100  # table 4 with host times, and again with device times


def test_a_case_is_written_as_it_is_read() -> None:
    assert Case.parse("hang:7:17") == Case("hang", 7, 17)
    assert str(Case("hang", 7, 17)) == "hang:7:17"
    with pytest.raises(ForensicsError, match="SUITE:SEED:NUMBER"):
        Case.parse("hang 7")


def test_unknown_suites_are_named() -> None:
    with pytest.raises(ForensicsError, match="hangs"):
        chosen(["hangs"])
