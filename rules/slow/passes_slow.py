"""A stage of a pipeline without equals: its passes take longer than they did, or than those of all other stages."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import groupby

from forensics.model import Anomaly, Belief, Cause, Confidence, Evidence, Finding, Impact, StageRef
from forensics.rules.interface import Need, Rule, Undecided
from forensics.rules.reductions.hardware.causes import Hardware
from forensics.rules.reductions.hardware.cpu import HostCpu, doubted, waits_for_cores
from forensics.rules.reductions.pipeline.delay import Delays
from forensics.rules.reductions.pipeline.slow_stages import SlowStage, SlowStages
from forensics.rules.reductions.ranks.roster import Roster
from forensics.rules.reductions.text.evidence_text import counted
from forensics.rules.reductions.text.seen import Seen
from forensics.rules.reductions.waits.graph import WaitGraph

_SHOWN = 3
_BY_ENDS = "the time inside calls was not recorded: ends are as watchdogs saw them, up to a round late, and this is their mean"
_LAYERS = "a stage with more layers than the others leaves the same evidence: compare how the model is split"


def _evaluate(
    slow: SlowStages, delays: Delays, roster: Roster, cpu: HostCpu, hardware: Hardware, graph: WaitGraph
) -> Iterator[Finding]:
    # Whoever holds up a job that stands still may have been slow by the same fault: the standstill has its name.
    held = {rank for root in graph.roots for rank in root.ranks} if slow.of_past else set[int]()
    for stage in slow.found:
        if stage.rank in held or _began_late(stage, delays):
            continue
        finding = doubted(_finding(stage, slow), waits_for_cores(cpu, roster, (stage.rank,)))
        # A mean of ends that were seen in rounds is no measure of what the state of a GPU has to explain.
        slowdown = stage.slow_ns / stage.usual_ns if stage.usual_ns and not slow.by_ends else None
        yield hardware.refined(finding, (Cause.UNKNOWN,), slowdown)


def _began_late(stage: SlowStage, delays: Delays) -> bool:
    """Whether another rank came late to half of the slow steps themselves.

    What is sent to it waits then, and what is sent after queues behind that: passes in between look longer.
    """
    late = {delay.step for delay in delays.found if delay.before_step and stage.rank not in delay.ranks}
    return 2 * len(late.intersection(stage.numbers)) >= len(stage.numbers)


def _finding(stage: SlowStage, slow: SlowStages) -> Finding:
    is_sure = not (slow.by_ends or stage.by_peers)
    spent = len(stage.numbers) * stage.step_ns
    return Finding(
        ranks=(stage.rank,),
        cause=Cause.UNKNOWN,
        stage=StageRef(pipeline_stage=stage.stage),
        belief=Belief.BEHIND_AND_BUSY,
        confidence=Confidence.LIKELY if is_sure else Confidence.SUSPECT,
        evidence=tuple(_evidence(stage, slow)),
        anomaly=Anomaly.FAIL_SLOW,
        impact=Impact(round(stage.lost_ns), round(min(1.0, stage.lost_ns / spent), 3), len(stage.numbers), "arrival"),
        of_past=slow.of_past,
        next_steps=(f"check clocks, temperature, other processes and the host of rank {stage.rank} in these steps",),
    )


def _evidence(stage: SlowStage, slow: SlowStages) -> Iterator[Evidence]:
    when, verb = ("before the job stopped ", "worked") if slow.of_past else ("", "works")
    took = f"{when}rank {stage.rank} (stage {stage.stage}) {verb} {stage.slow_ns / 1e6:.0f} ms on a microbatch"
    if stage.by_peers:
        yield Evidence(f"{took} in {counted(len(stage.numbers), 'step')}, the other stages {stage.usual_ns / 1e6:.0f} ms", None)
        yield Evidence(_LAYERS, None, supports=False)
    else:
        often = f"in {len(stage.numbers)} of {counted(stage.compared, 'step')}{_which(stage, slow)}"
        yield Evidence(f"{took} {often}, {stage.usual_ns / 1e6:.0f} ms in usual ones; no other stage works longer then", None)
    if slow.by_ends:
        yield Evidence(_BY_ENDS, None, supports=False)
    others = [each for each in slow.found if each.rank != stage.rank]
    if others and not stage.by_peers:
        said = ", ".join(f"rank {each.rank} in {counted(len(each.numbers), 'step')}" for each in others[:_SHOWN])
        yield Evidence(f"others are slow in steps of their own: {said}", None)


def _which(stage: SlowStage, slow: SlowStages) -> str:
    """The steps, counted from the first one of the record that all ranks show; none where there are too many runs of them."""
    runs = _runs([number - slow.first for number in stage.numbers])
    if len(runs) > _SHOWN:
        return ""
    words = [str(begin) if begin == end else f"{begin}-{end}" for begin, end in runs]
    return f" ({', '.join(words)} of the record)"


def _runs(numbers: Sequence[int]) -> list[tuple[int, int]]:
    groups = groupby(enumerate(numbers), key=lambda each: each[1] - each[0])
    runs = [[number for _, number in group] for _, group in groups]
    return [(run[0], run[-1]) for run in runs]


def _clears(seen: Seen, slow: SlowStages) -> str | None:
    """Not what was slow from the begin on at both ends of the pipeline, or by less than the others differ."""
    if slow.found or slow.by_ends or slow.of_past or not seen.all_in(slow.ranks):
        return None if slow.found else Undecided("the passes of each stage are not dated, or by ends of calls alone")
    return f"in {counted(slow.compared, 'step')} no stage works longer than before, or half as long again as all others"


RULE = Rule(
    code="FX179",
    name="passes-slow",
    seed="VenusTrace sections 3.3 and 4 (expected time of a stage, slow by half) and MegaTrace section III.C",
    needs=(Need(SlowStages, "steps of a pipeline", "what a stage works follows from its messages in whole steps"),),
    concludes="The rank of a pipeline without replicas whose passes take longer than before, or than those of all others.",
    evaluate=_evaluate,
    clears=_clears,
)
