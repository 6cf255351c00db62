"""In a job that moves, the main thread of one rank needs more processor time than that of any other, and all others wait."""

from __future__ import annotations

from collections.abc import Iterator

from duckdb import DuckDBPyConnection

from forensics.model import Anomaly, Belief, Cause, Confidence, Evidence, Finding
from forensics.rules.interface import Need, Rule, Threshold, Thresholds
from forensics.rules.reductions.pipeline.work_of_equals import apart_from_equals, meeting_groups
from forensics.rules.reductions.progress.liveness import Liveness
from forensics.rules.reductions.progress.speed import Pace, Speed
from forensics.rules.reductions.ranks.processor_time import LEAST_PART, LEAST_RATIO, MostUsed, ProcessorTimes, most_used
from forensics.rules.reductions.ranks.roster import Roster
from forensics.rules.reductions.stacks.rounds import WaitsBeside, usual_sample, waits_beside
from forensics.rules.reductions.stacks.samples import Stacks, StacksByRank
from forensics.rules.reductions.text.evidence_text import EvidenceText
from forensics.vocabulary import CAUSE_OF_STAGE

_FIRST = 0
_LEAST_AT_WORK = 2


def _evaluate(
    connection: DuckDBPyConnection,
    times: ProcessorTimes,
    stacks: StacksByRank,
    roster: Roster,
    liveness: Liveness,
    speed: Speed,
    text: EvidenceText,
    thresholds: Thresholds,
) -> Iterator[Finding]:
    found = most_used(times, thresholds["least_ratio"], thresholds["least_part"])
    if found is None or not liveness.shown or speed.pace is Pace.STEADY:
        return
    # The first rank logs, evaluates and saves for all: rounds.py has it as where to begin.
    if found.rank == _FIRST or set(times.ranks) != set(roster.ranks) or set(stacks) != set(roster.ranks):
        return
    waits = waits_beside(found.rank, stacks)
    if len(waits.at_work) < _LEAST_AT_WORK or waits.waiting != set(stacks) - {found.rank}:
        return
    apart = None if waits.are_equal else apart_from_equals(found, times, meeting_groups(connection), thresholds["least_ratio"])
    if waits.are_equal or apart:
        yield _finding(found, waits, stacks[found.rank], liveness, text, apart)


def _finding(
    found: MostUsed, waits: WaitsBeside, stacks: Stacks, liveness: Liveness, text: EvidenceText, apart: str | None
) -> Finding:
    at_work = [sample for sample in stacks.main if sample.number in waits.at_work]
    usual = usual_sample(at_work, lambda each: each.activity.stage)
    stage = usual.activity.stage
    return Finding(
        ranks=(found.rank,),
        cause=CAUSE_OF_STAGE.get(stage, Cause.UNKNOWN),
        stage=text.stage_ref(found.rank, stage, usual.activity),
        belief=Belief.BEHIND_AND_BUSY,
        confidence=Confidence.SUSPECT,
        evidence=(
            Evidence(f"rank {found.rank} works most: {found.describe()}", found.source),
            *((Evidence(apart, found.source),) if apart else ()),
            Evidence(waits.of_waits, usual.source),
            Evidence(f"the job moves: {liveness.progress or liveness.reason}", liveness.source),
            Evidence("whether it was faster before is not known: the job may be made so", None, supports=False),
            *text.stack(found.rank),
        ),
        anomaly=Anomaly.FAIL_SLOW,
        next_steps=(
            f"take stacks of rank {found.rank} ten times in a minute: where it is most often is what takes it long",
            "compare its batches, its share of experts and the clocks of its processors with those of a peer",
        ),
    )


def _clears() -> None:
    """Seconds rule nobody out: a rank that sleeps, or whose device is slow, uses no more than others."""


RULE = Rule(
    code="FX185",
    name="processor-time",
    seed="StageFrontier section 3 (a rank that is late waits least)",
    needs=(
        Need(ProcessorTimes, "processes", "only several samples of its thread tell what a rank used"),
        Need(StacksByRank, "stacks", "only stacks show that the others wait"),
    ),
    thresholds=(
        Threshold("least_ratio", LEAST_RATIO, "times what any other rank used: 1.08 at most in 21 sound jobs of four ranks"),
        Threshold("least_part", LEAST_PART, "of the time: a job that could save less is not slow by this"),
    ),
    concludes="The rank of a moving job whose main thread needs more processor time than any other, for which all others wait.",
    evaluate=_evaluate,
    clears=_clears,
)
