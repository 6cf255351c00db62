"""A job in which ranks are long in a pass by much is not called healthy, though nobody is accused."""

from __future__ import annotations

import pytest

from forensics.case.database import new_case
from forensics.model import Belief, Cause, Confidence, Finding, Impact, StageName, StageRef
from forensics.rules.engine import supply_of
from forensics.rules.facts.symptoms import Findings
from forensics.rules.soundness import SlownessSigns, slowness_signs


@pytest.mark.parametrize(
    ("stage", "share", "why", "is_said"),
    [
        (StageName.FORWARD, 0.2, "messages", True),
        (StageName.FORWARD, 0.05, "messages", False),
        (StageName.CHECKPOINT, 0.9, "a duty", False),
        (StageName.FORWARD, 0.2, None, False),
    ],
    ids=["by much", "by little", "a checkpoint", "accused"],
)
def test_passes_that_may_hold_a_slow_rank(stage: StageName, share: float, why: str | None, is_said: bool) -> None:
    impact = Impact(1_000_000, share, 10, "frontier_gain")
    finding = Finding(
        (3,), Cause.UNKNOWN, StageRef(stage), Belief.BEHIND_AND_BUSY, Confidence.SUSPECT, (), by_design=why, impact=impact
    )
    signs: SlownessSigns = supply_of(new_case(), None).call(slowness_signs, {Findings: Findings((finding,))})
    assert any(stage in sign for sign in signs) is is_said
