"""Whether suspects are a lead and no accusation: one round of stacks looks alike in a stuck job and in a sound one.

So do two where only the waits of some ranks repeat, which a slow job shows as well: nothing in them stands still.

So does one round of dumps of gloo: no watchdog writes them when a limit has passed, they were asked for. And so does one of a
pipeline whose hosts have queued all of a step.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from forensics.model import Cause, Confidence, Family, Suspect
from forensics.rules.arbitration import Judgement
from forensics.rules.reductions.calls.positions import Communicators
from forensics.rules.reductions.hardware.device_kernels import DeviceKernels
from forensics.rules.reductions.logs.log_evidence import Logged
from forensics.rules.reductions.progress.liveness import Liveness, Motion
from forensics.rules.reductions.progress.standstill import Standing, WaitStates
from forensics.rules.reductions.ranks.roster import Roster, SeenProcesses
from forensics.rules.reductions.stacks.samples import StacksByRank
from forensics.rules.reductions.waits.completions import HOST_BACKENDS
from forensics.rules.reductions.waits.graph import WaitGraph
from forensics.rules.reductions.waits.settled import ends_in_queued_messages

_AGAIN = (
    "take stacks of all ranks again, half a minute later or more, with the time of day in the names of the files, and hand in "
    "both rounds: they show whether the job stands still"
)
_STACKS = frozenset({Family.STACK})
# Calls that differ under one number do so in no sound job.
_OF_CALLS = frozenset({Cause.COLLECTIVE_MISMATCH, Cause.EXTRA_OR_MISSING_COLLECTIVE})
# A rank that is slow in one place is met there again by a second look.
_FEW_LOOKS = 2
_ASKED_FOR = frozenset({Family.STACK, Family.RECORDER})


def is_lead(
    judged: Judgement,
    motion: Liveness,
    states: WaitStates,
    heard: Logged,
    stacks: StacksByRank,
    groups: Communicators,
    roster: Roster,
    graph: WaitGraph,
    processes: SeenProcesses,
    kernels: DeviceKernels,
) -> bool:
    """Whether one look, that somebody asked for, is all that speaks for the suspects, and nothing shows a standstill."""
    faults = [each for each in judged.assessments if each.fault is not None]
    few = motion.motion is Motion.UNSEEN and all(len(found.main) <= _FEW_LOOKS for found in stacks.values())
    # What goes on is found in another launch by the next look.
    held = {rank for rank, found in kernels.items() if len(found) == 1 and found[0].seconds > 0}
    undated = all(state.standing is Standing.UNKNOWN for state in states) and not any({*each.ranks} & held for each in faults)
    on_hosts = all(group.backend in HOST_BACKENDS for group in groups if group.pending)
    # That a collector could have nothing of a rank is more than a look at it; that nobody handed it in is not.
    seen = {rank for rank, facts in roster.ranks.items() if not facts.unseen}
    reached = seen if processes else {*roster.ranks}
    in_reach = reached if on_hosts else seen if ends_in_queued_messages(graph, seen) else set()
    asked = [each.cause not in _OF_CALLS and bool(in_reach) and in_reach.issuperset(each.ranks) for each in faults]
    # Of several ranks that nothing was collected from, no family of evidence speaks at all.
    alone = all(
        (bool(each.families) or seen.isdisjoint(each.ranks)) and {*each.families} <= (_ASKED_FOR if by_request else _STACKS)
        for each, by_request in zip(faults, asked, strict=True)
    )
    return bool(judged.suspects) and few and undated and not (heard.stalled or heard.overdue) and alone


def as_leads(suspects: Sequence[Suspect]) -> tuple[Suspect, ...]:
    """The suspects with no more confidence than a lead has; what would decide comes first of what is to be done."""
    return tuple(replace(each, confidence=Confidence.SUSPECT, next_steps=(_AGAIN, *each.next_steps)) for each in suspects)
