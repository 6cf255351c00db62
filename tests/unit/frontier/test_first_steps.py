"""A record that begins a step or two before steps became longer: a rank is named only where the power of its GPU shows it."""

from __future__ import annotations

from dataclasses import replace

import pytest

from forensics.case.database import new_case
from forensics.model import Finding
from forensics.rules.engine import find, supply_of, thresholds
from forensics.rules.interface import Thresholds
from forensics.rules.reductions.frontier.first_steps import longer_than_first
from forensics.rules.reductions.frontier.reading import FrontierWindows
from forensics.rules.reductions.frontier.verdicts import FrontierWindow
from forensics.rules.reductions.hardware.drawn_power import DrawnPower
from tests.unit.frontier.jobs import job, judged
from tests.unit.rules.test_stage_signs import ALL, slow_from

COMPUTES = DrawnPower(3, 627_000, 488_000.0, 506_000, 7, "smi.xml#GPU-3")


def found(step: int, power: DrawnPower) -> list[Finding]:
    rule = find("FX170")
    assert rule is not None
    windows = FrontierWindows((FrontierWindow(slow_from(step)),))
    given: dict[object, object] = {FrontierWindows: windows, DrawnPower: power, Thresholds: thresholds(rule, {})}
    outcome = supply_of(new_case()).call(rule.evaluate, given)
    return [finding for finding in outcome if isinstance(finding, Finding) and finding.impact is not None]


@pytest.mark.parametrize(("step", "power", "ranks"), [
    (1, COMPUTES, (3,)),
    (2, COMPUTES, (3,)),
    (1, DrawnPower(), None),  # no GPU stands out
    (1, replace(COMPUTES, usual=610_000.0), None),  # by less than waiting makes
    (0, COMPUTES, None),  # no step before
    (20, COMPUTES, (3,)),  # enough steps before: the stage is known without it
])  # fmt: skip
def test_power_names_the_rank_that_too_few_steps_leave_open(
    step: int, power: DrawnPower, ranks: tuple[int, ...] | None
) -> None:
    assert [finding.ranks for finding in found(step, power)] == ([] if ranks is None else [ranks])


def test_only_the_stage_in_which_ranks_meet_is_meant() -> None:
    made = job("data", steps=45, who=lambda _: ALL, when=lambda number: number >= 1)
    assert longer_than_first(judged(replace(made, steps=made.steps + 500))) is None
