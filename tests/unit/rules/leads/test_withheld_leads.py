"""Whom to look at again where a rule names the one rank that all wait for, and nothing shows that it stands."""

from __future__ import annotations

from dataclasses import replace

import pytest

from forensics.model import Assessment, Cause, Confidence, StageName
from forensics.rules.leads.withheld import withheld_leads
from forensics.rules.reductions.progress.liveness import Liveness, Motion

AT_WORK = Assessment(
    ranks=(3,), cause=Cause.HOST_STALL, stage=StageName.UNKNOWN, confidence=Confidence.LIKELY, rules=("FX112",), explains=12,
    leaves=0, unexplained=(), contradicted_by=(), families=(), evidence=(), fault=None, withheld="rank 3 is at work",
)  # fmt: skip
STALLED = Liveness(Motion.STALLED, "no new operation for 9.2 s")


def test_the_rank_that_explains_all_waits_is_the_one_to_look_at_again() -> None:
    (found,) = withheld_leads(
        [AT_WORK, replace(AT_WORK, cause=Cause.OTHER), replace(AT_WORK, ranks=(1,), withheld=None)], STALLED
    )
    assert found.startswith("stack of rank 3 minutes later") and "rank 3 is at work" in found


def test_of_a_job_that_may_move_stacks_tell_more() -> None:
    assert not list(withheld_leads([AT_WORK], replace(STALLED, motion=Motion.UNSEEN)))


@pytest.mark.parametrize(
    "others",
    [
        [replace(AT_WORK, leaves=1)],
        [replace(AT_WORK, contradicted_by=("rank 3 had entered it",))],
        [replace(AT_WORK, ranks=(3, 4))],
        [AT_WORK, replace(AT_WORK, ranks=(4,))],
        [replace(AT_WORK, explains=0)],
    ],
    ids=["something is left", "contradicted", "two ranks", "two accounts", "nothing waits"],
)
def test_where_another_one_may_be_awaited_nobody_is_pointed_at(others: list[Assessment]) -> None:
    assert not list(withheld_leads(others, STALLED))
