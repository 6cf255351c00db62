"""Whether suspects are a lead and no accusation: one round of stacks looks alike in a stuck job and in a sound one."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from forensics.model import Confidence, Family, Suspect
from forensics.rules.arbitration import Judgement
from forensics.rules.reductions.logs.log_evidence import Logged
from forensics.rules.reductions.progress.liveness import Liveness, Motion
from forensics.rules.reductions.progress.standstill import Standing, WaitStates
from forensics.rules.reductions.stacks.samples import StacksByRank

_AGAIN = (
    "take stacks of all ranks again, half a minute later or more, with the time of day in the names of the files, and hand in "
    "both rounds: they tell whether the job stands still"
)
_STACKS = frozenset({Family.STACK})


def is_lead(judged: Judgement, motion: Liveness, states: WaitStates, heard: Logged, stacks: StacksByRank) -> bool:
    """Whether stacks of one moment are all that speaks for the suspects, and nothing shows that the job stands still."""
    faults = [each for each in judged.assessments if each.fault is not None]
    once = motion.motion is Motion.UNSEEN and all(len(found.main) < 2 for found in stacks.values())
    undated = all(state.standing is Standing.UNKNOWN for state in states)
    alone = all(each.families and {*each.families} <= _STACKS for each in faults)
    return bool(judged.suspects) and once and undated and not (heard.stalled or heard.overdue) and alone


def as_leads(suspects: Sequence[Suspect]) -> tuple[Suspect, ...]:
    """The suspects with no more confidence than a lead has; what would decide comes first of what is to be done."""
    return tuple(replace(each, confidence=Confidence.SUSPECT, next_steps=(_AGAIN, *each.next_steps)) for each in suspects)
