"""In a job that became slower, one rank is at work in round after round of stacks while all others wait."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from forensics.model import Anomaly, Belief, Cause, Confidence, Evidence, Finding, WaitKind
from forensics.rules.interface import Need, Rule, Threshold, Thresholds
from forensics.rules.reductions.progress.speed import Pace, Speed
from forensics.rules.reductions.stacks.samples import Stacks, StacksByRank
from forensics.rules.reductions.text.evidence_text import EvidenceText, counted, ranks_text
from forensics.vocabulary import CAUSE_OF_STAGE

_OF_WAIT = {
    **dict.fromkeys((WaitKind.SLEEP, WaitKind.IO, WaitKind.LOCK, WaitKind.FILE_LOCK, WaitKind.CHILD), Cause.HOST_STALL),
    WaitKind.DATA: Cause.DATALOADER_STALL,
    WaitKind.DEVICE: Cause.COMPUTE_SLOW,
}


@dataclass(frozen=True, slots=True)
class _Round:
    """Who was in communication and who was not, when the ranks were looked at for the `number`th time."""

    number: int
    inside: frozenset[int]
    outside: frozenset[int]


def _evaluate(stacks: StacksByRank, speed: Speed, text: EvidenceText, thresholds: Thresholds) -> Iterator[Finding]:
    if speed.pace is not Pace.SLOWER or len(stacks) < thresholds["least_ranks"]:
        return
    # A round in which all wait tells of nobody; ranks that take turns are those of a sound job.
    apart = [found for found in _rounds(stacks) if found.outside]
    late = {rank for found in apart for rank in found.outside}
    if all(_meet_at_barrier(found, stacks) for found in apart):
        return  # who comes late to barriers saves, evaluates or sets up something for all
    if len(late) == 1 and len(stacks) ** (len(apart) - 1) >= thresholds["least_odds"]:
        (rank,) = late
        yield _finding(rank, stacks[rank], apart, speed, text)


def _rounds(stacks: Mapping[int, Stacks]) -> list[_Round]:
    """Rounds in which every rank that has stacks was looked at, once each."""
    inside, outside = defaultdict[int, set[int]](set), defaultdict[int, set[int]](set)
    for rank, found in stacks.items():
        for sample in found.main:
            waits = sample.activity.waits_for_others
            (inside if waits else outside)[sample.number].add(rank)
    numbers = sorted({*inside, *outside})
    looks = [_Round(number, frozenset(inside[number]), frozenset(outside[number])) for number in numbers]
    return [one for one in looks if not one.inside & one.outside and one.inside | one.outside == stacks.keys()]


def _meet_at_barrier(found: _Round, stacks: Mapping[int, Stacks]) -> bool:
    """Whether all who wait in a round are in a barrier."""
    samples = [each for rank in found.inside for each in stacks[rank].main if each.number == found.number]
    return all(each.activity.call_frame is not None and "barrier" in each.activity.call_frame.function for each in samples)


def _finding(rank: int, found: Stacks, apart: Sequence[_Round], speed: Speed, text: EvidenceText) -> Finding:
    newest = next(sample for sample in reversed(found.main) if sample.number == apart[-1].number)
    others = ranks_text(tuple(sorted(apart[-1].inside)))
    stated = f"in {counted(len(apart), 'round')} of stacks {others} wait in communication and rank {rank} is at work elsewhere"
    stage = newest.activity.stage
    return Finding(
        ranks=(rank,),
        cause=CAUSE_OF_STAGE.get(stage) or _OF_WAIT.get(newest.activity.wait, Cause.UNKNOWN),
        stage=text.stage_ref(rank, stage, newest.activity),
        belief=Belief.BEHIND_AND_BUSY,
        confidence=Confidence.SUSPECT,
        evidence=(
            Evidence(stated, newest.source),
            Evidence(f"the job became slower: {speed.reason}", speed.source),
            *text.stack(rank),
        ),
        anomaly=Anomaly.FAIL_SLOW,
        next_steps=(
            f"take stacks of rank {rank} ten times in a minute: where it is most often is what takes it long",
            f"compare CPU load, storage and nvidia-smi -q of the host of rank {rank} with those of a peer",
        ),
    )


def _clears() -> None:
    """A few moments rule nobody out: a slow rank waits as well whenever its peers are at work."""


RULE = Rule(
    code="FX176",
    name="awaited-in-stacks",
    seed="Mycroft section 6.2 (py-spy)",
    needs=(Need(StacksByRank, "stacks", "only stacks show who waits and who works at one moment"),),
    thresholds=(
        Threshold("least_odds", 16, "ranks to the power of rounds but one: against one rank being it each time by chance"),
        Threshold("least_ranks", 3, "of two ranks the one that works at a moment is late by any small imbalance"),
    ),
    concludes="The rank of a job that became slower which alone is at work in rounds of stacks in which all others wait.",
    evaluate=_evaluate,
    clears=_clears,
)
