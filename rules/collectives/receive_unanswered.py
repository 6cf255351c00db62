"""Ranks wait in point-to-point calls, and everybody who could answer waits as well."""

from __future__ import annotations

from collections.abc import Iterator

from forensics.model import Belief, Cause, Component, Confidence, Evidence, Finding, Granularity, Role, WaitKind
from forensics.rules.interface import Need, Rule, Thresholds
from forensics.rules.reductions import statements
from forensics.rules.reductions.job import Job
from forensics.rules.reductions.waits import Root, RootKind


def _evaluate(job: Job, _: Thresholds) -> Iterator[Finding]:
    for root in job.graph.roots:
        if root.kind is RootKind.ALL_JOINED and not root.waits[0].communicator and _point_to_point(job, root):
            yield _finding(job, root)


def _point_to_point(job: Job, root: Root) -> bool:
    found = [job.activity(rank) for rank in root.ranks]
    return all(activity is not None and activity.wait is WaitKind.POINT_TO_POINT for activity in found)


def _finding(job: Job, root: Root) -> Finding:
    """One rank that receives what nobody sends, or several that wait for each other."""
    ranks, wait = root.ranks, root.waits[0]
    calls = {activity.call_frame.function for rank in ranks if (activity := job.activity(rank)) and activity.call_frame}
    together = len(ranks) > 1
    behind = sorted({waiter for rank in ranks for waiter in job.waiters(rank)} - set(ranks))
    what = "the same call" if len(calls) == 1 else "calls"
    return Finding(
        rule=RULE.code,
        ranks=ranks,
        role=Role.ROOT,
        cause=Cause.DEADLOCK if together and calls <= {"recv", "irecv"} else Cause.P2P_UNMATCHED,
        stage=statements.joined_stage(job, wait, ranks, Component.COMMUNICATION),
        belief=Belief.MISMATCH,
        confidence=Confidence.LIKELY if together else Confidence.SUSPECT,
        strength=0.5,
        evidence=(
            Evidence(
                f"{statements.ranks_text(ranks)} wait in {what} ({'/'.join(sorted(calls))}), and no rank is free to answer"
            ),
            *(line for rank in ranks[:4] for line in statements.stack(job, rank)),
            *([Evidence(f"{statements.ranks_text(behind)} wait behind them")] if behind else []),
        ),
        granularity=Granularity.GROUP if together else Granularity.RANK,
        next_steps=("match the sends and receives of these ranks call by call; the recorder of gloo does not hold them",),
    )


def _clears(job: Job) -> str | None:
    seen = [found.latest for found in job.stacks.values() if found.latest]
    waiting = [activity for activity in seen if activity.wait is WaitKind.POINT_TO_POINT]
    return f"none of {len(seen)} ranks with stacks waits in a point-to-point call" if seen and not waiting else None


RULE = Rule(
    code="FX131",
    name="receive-unanswered",
    seed="VenusTrace section 6, case 1 (a missing receive)",
    needs=(Need("stacks", "gloo records no point-to-point calls"),),
    thresholds=(),
    concludes="Ranks at the end of all waits that receive (or send) while nobody is left to answer.",
    confusions=(
        "a peer that is busy: then that peer is the root",
        "recorded point-to-point calls: see order-cycle and host-stalled",
    ),
    evaluate=_evaluate,
    clears=_clears,
)
