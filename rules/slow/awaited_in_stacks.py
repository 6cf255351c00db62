"""In a job that became slower, one rank is at work in round after round of stacks while all others wait."""

from __future__ import annotations

from collections.abc import Iterator

from forensics.model import Anomaly, Belief, Cause, Confidence, Evidence, Finding, WaitKind
from forensics.rules.interface import Need, Rule, Threshold, Thresholds
from forensics.rules.reductions.progress.liveness import Liveness
from forensics.rules.reductions.progress.speed import Pace, Speed
from forensics.rules.reductions.stacks.rounds import (
    LEAST_ODDS,
    LEAST_RANKS,
    LEAST_ROUNDS,
    AloneAtWork,
    alone_at_work,
    meet_as_equals,
    usual_sample,
)
from forensics.rules.reductions.stacks.samples import Stacks, StacksByRank
from forensics.rules.reductions.text.evidence_text import EvidenceText, counted, ranks_text
from forensics.vocabulary import CAUSE_OF_STAGE

_OF_WAIT = {
    **dict.fromkeys((WaitKind.SLEEP, WaitKind.IO, WaitKind.LOCK, WaitKind.FILE_LOCK, WaitKind.CHILD), Cause.HOST_STALL),
    WaitKind.DATA: Cause.DATALOADER_STALL,
    WaitKind.DEVICE: Cause.COMPUTE_SLOW,
}


def _evaluate(
    stacks: StacksByRank, speed: Speed, liveness: Liveness, text: EvidenceText, thresholds: Thresholds
) -> Iterator[Finding]:
    found = alone_at_work(stacks, thresholds["least_ranks"], thresholds["least_odds"])
    if found is None:
        return
    is_slower = speed.pace is Pace.SLOWER and found.shared <= thresholds["most_shared"] * len(found.rounds)
    # Who is waited for at most of so many moments takes half of the time of all others.
    often = len(found.rounds) >= max(thresholds["least_rounds"], thresholds["least_part"] * found.sampled)
    is_last = often and (liveness.shown or found.came) and speed.pace is not Pace.STEADY and meet_as_equals(found, stacks)
    if is_slower or is_last:
        yield _finding(found, stacks[found.rank], speed if speed.pace is Pace.SLOWER else None, liveness, text)


def _finding(alone: AloneAtWork, found: Stacks, speed: Speed | None, liveness: Liveness, text: EvidenceText) -> Finding:
    rank, newest = alone.rank, usual_sample(alone.samples(found), lambda each: (each.activity.stage, each.activity.wait))
    others = ranks_text(tuple(sorted(alone.rounds[-1].inside)))
    often = counted(len(alone.rounds), "round")
    stated = f"in {often} of stacks {others} wait in communication and rank {rank} is at work elsewhere"
    stage = newest.activity.stage
    return Finding(
        ranks=(rank,),
        cause=CAUSE_OF_STAGE.get(stage) or _OF_WAIT.get(newest.activity.wait, Cause.UNKNOWN),
        stage=text.stage_ref(rank, stage, newest.activity),
        belief=Belief.BEHIND_AND_BUSY,
        confidence=Confidence.SUSPECT,
        evidence=(
            Evidence(stated, newest.source),
            *_of_speed(alone, speed, liveness),
            *text.stack(rank),
        ),
        anomaly=Anomaly.FAIL_SLOW,
        next_steps=(
            f"take stacks of rank {rank} ten times in a minute: where it is most often is what takes it long",
            f"compare CPU load, storage and nvidia-smi -q of the host of rank {rank} with those of a peer",
        ),
    )


def _of_speed(alone: AloneAtWork, speed: Speed | None, liveness: Liveness) -> Iterator[Evidence]:
    """What shows that the job is slow: that it became slower, else that the others do nothing but wait for this rank."""
    if speed is not None:
        yield Evidence(f"the job became slower: {speed.reason}", speed.source)
        return
    yield Evidence(f"the job moves: {liveness.progress or liveness.reason}", liveness.source)
    yield Evidence(f"in {len(alone.rounds)} of {alone.sampled} moments the others waited: for half of the time, or more", None)
    yield Evidence("whether it was faster before is not known: the job may be made so", None, supports=False)


def _clears() -> None:
    """A few moments rule nobody out: a slow rank waits as well whenever its peers are at work."""


RULE = Rule(
    code="FX176",
    name="awaited-in-stacks",
    seed="Mycroft section 6.2 (py-spy)",
    needs=(Need(StacksByRank, "stacks", "only stacks show who waits and who works at one moment"),),
    thresholds=(
        Threshold("least_odds", LEAST_ODDS, "ranks to the power of rounds but one: against one rank being it by chance"),
        Threshold(
            "least_rounds",
            LEAST_ROUNDS,
            "where nothing shows that the job became slower: by chance in one of 32 where it is half of the time",
        ),
        Threshold("least_part", 0.8, "of all rounds, there"),
        Threshold("most_shared", 0.25, "rounds in which another one is at work too, for each in which this one alone is"),
        Threshold("least_ranks", LEAST_RANKS, "of two ranks the one that works at a moment is late by any small imbalance"),
    ),
    concludes="The rank of a job that became slower which alone is at work in rounds of stacks in which all others wait.",
    evaluate=_evaluate,
    clears=_clears,
)
