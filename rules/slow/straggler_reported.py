"""A detector of stragglers that ran with the job reports one rank as the slowest, clearly and again and again."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence

from forensics.model import Anomaly, Belief, Cause, Component, Confidence, Evidence, Finding, Granularity, StageName, StageRef
from forensics.rules.interface import Need, Rule, Threshold, Thresholds
from forensics.rules.reductions.logs.log_evidence import Logged
from forensics.rules.reductions.progress.straggler_reports import Slowest, StragglerReports
from forensics.rules.reductions.text.evidence_text import counted, ranks_text

_CLOCK = "clock"
_LEAST_CLOCK_FACTOR = 1.25
_WORDS = {
    "score": "the score of its GPU",
    "round trip": "the time of its steps",
    "throughput": "its throughput",
    "clock": "the clock of its GPU",
}


def _evaluate(reports: StragglerReports, logged: Logged, thresholds: Thresholds) -> Iterator[Finding]:
    if logged.stalled:
        return  # who was slow before is not why it stands still
    found: dict[tuple[int, ...], list[Slowest]] = defaultdict(list)
    for one in reports:
        if one.measure != _CLOCK and _is_clear(one, thresholds):
            found[one.ranks].append(one)
    for ranks, measures in sorted(found.items()):
        clock = next((one for one in reports if one.measure == _CLOCK and one.ranks == ranks and _held_down(one)), None)
        yield _finding(ranks, sorted(measures, key=lambda one: -one.factor), clock)


def _is_clear(one: Slowest, thresholds: Thresholds) -> bool:
    """Alone, by much, and in report after report; a single one must list all ranks and show more."""
    if one.reports < thresholds["least_reports"]:
        least = thresholds["least_factor_twice" if one.reports > 1 else "least_factor_once"]
        repeated = one.times == one.reports and one.next_factor is not None
    else:
        least = thresholds["least_factor"]
        repeated = one.times >= thresholds["least_share"] * one.reports
    alone = one.next_factor is None or one.next_factor - 1 <= (one.factor - 1) / 2
    return repeated and alone and one.factor >= least


def _held_down(one: Slowest) -> bool:
    return one.factor >= _LEAST_CLOCK_FACTOR and 2 * one.times > one.reports


def _finding(ranks: tuple[int, ...], measures: Sequence[Slowest], clock: Slowest | None) -> Finding:
    whose = f"the host of {ranks_text(ranks)}"
    first = measures[0]
    loads = first.stage is StageName.DATA
    slow = Cause.DATALOADER_STALL if loads else Cause.COMPUTE_SLOW
    shown = (*measures, clock) if clock is not None else measures
    return Finding(
        ranks=ranks,
        granularity=Granularity.of_ranks(ranks),
        cause=slow if clock is None or loads else Cause.GPU_THROTTLED,
        stage=StageRef(name=first.stage, component=Component.HOST if loads else Component.COMPUTE),
        belief=Belief.BEHIND_AND_BUSY,
        confidence=Confidence.SUSPECT,
        evidence=tuple(Evidence(_said(one), one.source) for one in shown),
        anomaly=Anomaly.FAIL_SLOW,
        next_steps=(
            f"compare the storage, the CPU load and the loader's processes of {whose} with those of a peer"
            if loads
            else f"take nvidia-smi -q of {whose}: clocks, throttle reasons, temperature, other processes",
            f"take a trace of some steps of rank {ranks[0]} and of a peer: the report says that it is slow, not why",
        ),
    )


def _part(stage: StageName) -> str:
    return "compute" if stage is StageName.UNKNOWN else stage.value


def _said(one: Slowest) -> str:
    what = _WORDS.get(one.measure, one.measure)
    often = f"{one.times} of {counted(one.reports, 'report')}"
    who = ranks_text(one.ranks)
    if one.times_ms is not None:
        own, peers = one.times_ms
        takes, its = ("takes", "its") if len(one.ranks) == 1 else ("take", "their")
        steps = f"{'the last ' if one.has_begun else ''}{counted(one.reports, 'step')}"
        return (
            f"in {one.times} of {steps} {who} {takes} the longest for {_part(one.stage)}: "
            f"{own:.0f} ms, {its} peers {peers:.0f} ms (median), by which {its} own work of a step takes {one.factor:.1f} "
            "times as long"
        )
    beside = f"; no other rank is beyond {one.next_factor:.2f} times" if one.next_factor is not None else ""
    if one.measure.startswith("test "):
        what = one.measure.removeprefix("test ")
        return f"in {often} {who} reaches {1 / one.factor:.0%} of the mean of all ranks in {what}"
    if one.measure in ("score", "throughput", _CLOCK):
        return f"in {often} {what} is the lowest: the best is {one.factor:.2f} times that of {who}{beside}"
    return f"in {often} {who} is the slowest by {what}: {one.factor:.2f} times the fastest{beside}"


def _clears() -> None:
    """A detector sees what its program made it time: that no rank is slow in it rules nothing out."""


RULE = Rule(
    code="FX174",
    name="straggler-reported",
    seed="NVRx, Megatron-LM and Composer (straggler detection)",
    needs=(Need(StragglerReports, "straggler_reports", "a detector of stragglers prints it into the log"),),
    thresholds=(
        Threshold("least_reports", 3, "in fewer reports the slowest rank may be so by chance"),
        Threshold("least_share", 0.8, "of the reports that must name the same rank: ranks of a sound job take turns"),
        Threshold("least_factor", 1.3, "boards of one model differ by some per cent, and shares of work by more"),
        Threshold("least_factor_twice", 1.5, "two reports that agree are seldom chance where the rank is that far behind"),
        Threshold("least_factor_once", 2.0, "what a single report shows must be beyond any jitter"),
    ),
    concludes="The rank that a detector of stragglers reports as the slowest by far, in most of its reports.",
    evaluate=_evaluate,
    clears=_clears,
)
