"""In a job that became slower, one rank is at work in round after round of stacks while all others wait."""

from __future__ import annotations

from collections.abc import Iterator

from forensics.model import Anomaly, Belief, Cause, Confidence, Evidence, Finding, WaitKind
from forensics.rules.interface import Need, Rule, Threshold, Thresholds
from forensics.rules.reductions.progress.speed import Pace, Speed
from forensics.rules.reductions.stacks.rounds import LEAST_ODDS, LEAST_RANKS, AloneAtWork, alone_at_work
from forensics.rules.reductions.stacks.samples import Stacks, StacksByRank
from forensics.rules.reductions.text.evidence_text import EvidenceText, counted, ranks_text
from forensics.vocabulary import CAUSE_OF_STAGE

_OF_WAIT = {
    **dict.fromkeys((WaitKind.SLEEP, WaitKind.IO, WaitKind.LOCK, WaitKind.FILE_LOCK, WaitKind.CHILD), Cause.HOST_STALL),
    WaitKind.DATA: Cause.DATALOADER_STALL,
    WaitKind.DEVICE: Cause.COMPUTE_SLOW,
}


def _evaluate(stacks: StacksByRank, speed: Speed, text: EvidenceText, thresholds: Thresholds) -> Iterator[Finding]:
    if speed.pace is not Pace.SLOWER:
        return
    found = alone_at_work(stacks, thresholds["least_ranks"], thresholds["least_odds"])
    if found is not None and not found.shared:
        yield _finding(found, stacks[found.rank], speed, text)


def _finding(alone: AloneAtWork, found: Stacks, speed: Speed, text: EvidenceText) -> Finding:
    rank, newest = alone.rank, alone.samples(found)[-1]
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
        Threshold("least_odds", LEAST_ODDS, "ranks to the power of rounds but one: against one rank being it by chance"),
        Threshold("least_ranks", LEAST_RANKS, "of two ranks the one that works at a moment is late by any small imbalance"),
    ),
    concludes="The rank of a job that became slower which alone is at work in rounds of stacks in which all others wait.",
    evaluate=_evaluate,
    clears=_clears,
)
