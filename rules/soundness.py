"""That the job is sound is a hypothesis too: it needs motion, and a look at speed that found nothing."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NewType

import numpy as np

from forensics.model import Assessment, StageName, Symptom, SymptomKind
from forensics.rules.facts.symptoms import Findings
from forensics.rules.reductions.frontier.reading import FrontierWindows
from forensics.rules.reductions.logs.finished import Finished
from forensics.rules.reductions.network.slowness import Slowness
from forensics.rules.reductions.progress.liveness import Liveness
from forensics.rules.reductions.progress.speed import Pace, Speed
from forensics.rules.reductions.ranks.roster import RecordedRanks, Roster
from forensics.rules.reductions.steps.times import StepTimes
from forensics.rules.reductions.text.evidence_text import counted, ranks_text

_SHOWN = 6
# Of the time of all steps: what single long steps cost less than this is a trifle.
_TRIFLE = 0.01
# Of the distances between long steps: where as many are equal they are how the program is (gradients are summed, logs written).
_EVENLY, _LEAST_EVEN = 0.8, 3
# Of the time: a link that loses as much to its peers makes a step slower, also where it is too little to accuse.
_LOST = 0.05


UnrecordedRanks = NewType("UnrecordedRanks", frozenset[int])
"""Ranks of the job of which neither steps nor calls are known."""


def unrecorded_ranks(roster: Roster, recorded: RecordedRanks, windows: FrontierWindows) -> UnrecordedRanks:
    """Ranks whose own speed nothing tells: one that was slow before the record began delays the others without a trace."""
    return UnrecordedRanks(frozenset(roster.ranks) - recorded - {rank for window in windows for rank in window.matrix.ranks})


SlownessSigns = NewType("SlownessSigns", tuple[str, ...])
"""What speaks for a slow job although it is too little to accuse anybody."""


def slowness_signs(times: StepTimes, slowness: Slowness, findings: Findings) -> SlownessSigns:
    """Long steps that nothing accounts for, not even what sound jobs do, and links that lose time to their peers."""
    return SlownessSigns((*_long_steps(times, findings), *_lossy_links(slowness)))


def _long_steps(times: StepTimes, findings: Findings) -> Iterator[str]:
    long = times.long()
    usual = [each.impact.recoverable_ns or 0 for each in findings if each.by_design and each.impact is not None]
    lost = sum(excess for _, excess in long) - sum(usual)
    if lost >= _TRIFLE * float(times.length.sum()) and not _are_even([number for number, _ in long]):
        which = f"{len(long)} of {counted(len(times.number), 'step')}"
        yield f"{which} took longer than usual, {lost / 1e6:.0f} ms in all that nothing accounts for"


def _are_even(numbers: Sequence[int]) -> bool:
    apart = np.diff(sorted(numbers))
    middle = np.median(apart) if len(apart) >= _LEAST_EVEN else 0
    return bool(middle > 1 and (apart == middle).mean() >= _EVENLY)


def _lossy_links(slowness: Slowness) -> Iterator[str]:
    links = {link: channel.share for link, channel in slowness.slow_links(least_slowdown=1.0).items() if channel.share >= _LOST}
    if links:
        (sender, receiver), share = max(links.items(), key=lambda each: (each[1], each[0]))
        yield f"chunks from rank {sender} to rank {receiver} take longer than on other links, {100 * share:.0f} % of the time"


def sound(
    motion: Liveness,
    speed: Speed,
    symptoms: Sequence[Symptom],
    unrecorded: UnrecordedRanks,
    signs: SlownessSigns,
    end: Finished,
) -> Assessment:
    """Assess it: it explains no symptom, and is withheld without motion shown, or where the speed of some rank is open.

    A job that trained to its end neither hung nor fails; how fast it was only its steps tell.
    """
    against = [symptom.text for symptom in symptoms if symptom.kind is not SymptomKind.ABSENT]
    return Assessment(
        ranks=(),
        cause=None,
        stage=StageName.UNKNOWN,
        confidence=None,
        rules=("FX190",),
        explains=0,
        leaves=sum(len(symptom.ranks) for symptom in symptoms),
        contradicted_by=tuple(against[:_SHOWN]),
        withheld=_withheld(motion, speed, unrecorded, signs, end),
    )


def _withheld(motion: Liveness, speed: Speed, unrecorded: UnrecordedRanks, signs: SlownessSigns, end: Finished) -> str | None:
    moves = motion.progress or motion.reason
    if end.text is not None:
        return f"it finished, slower than before: {speed.reason}" if speed.pace is Pace.SLOWER else None
    if not motion.shown:
        return f"nothing shows that the job moves: {motion.reason}"
    if speed.pace is Pace.SLOWER:
        return f"it moves, slower than before: {speed.reason}"
    if not speed.was_measured:
        return f"it moves ({moves}); speed not measured: {speed.reason}"
    if unrecorded:
        return f"it moves ({moves}); no record of {ranks_text(unrecorded)}, whose speed is not known"
    return f"it moves ({moves}); speed cannot be judged: {signs[0]}" if signs else None
