"""Who was late before a job stopped: what ended calls tell, apart from why it stands still.

VenusTrace leaves a job that is slow and then hangs open. The calls that ended before the standstill are those of a moving job,
and who came last to them stays true; only the strictest comparison counts here, since nobody looked at the job while it moved.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import NewType

from forensics.case.database import has_rows
from forensics.model import Anomaly, Belief, Cause, Component, Confidence, Evidence, Finding, Impact, StageRef
from forensics.rules.reductions.arrivals.arrivals import arrivals
from forensics.rules.reductions.arrivals.lateness import Lateness, of_series
from forensics.rules.reductions.calls.shim_calls import Calls
from forensics.rules.reductions.interface import reduction
from forensics.rules.reductions.pipeline.axes import Axis
from forensics.rules.reductions.pipeline.layout import Layout
from forensics.rules.reductions.progress.liveness import Liveness, Motion
from forensics.rules.reductions.ranks.roster import Roster
from forensics.rules.reductions.waits.graph import WaitGraph

LateBeforeStop = NewType("LateBeforeStop", tuple[Lateness, ...])
"""Ranks of a job that stands still that came late to the calls that ended, by exact times among equals; most lost first."""

_APART = "what ended steps show stays true when a job stops: this is independent of why it stands still"


@dataclass(frozen=True, slots=True)
class Stopped:
    """Whether the job stands still, and the ranks that hold it up."""

    still: bool = False
    held_by: frozenset[int] = frozenset()


@reduction
def stopped(liveness: Liveness, graph: WaitGraph) -> Stopped:
    """Whoever holds up the job may have been slow by the same fault: that is one fault, and the standstill has its name."""
    held = frozenset(rank for root in graph.roots for rank in root.ranks)
    return Stopped(liveness.motion is Motion.STALLED, held)


def of_past(finding: Finding, stop: Stopped) -> Finding:
    """A finding about steps that ended as one about what was before the job stopped; unchanged where it did not."""
    if not stop.still or not finding.ranks or not stop.held_by.isdisjoint(finding.ranks):
        return finding
    first, *others = finding.evidence
    before = replace(first, statement=f"before the job stopped {first.statement}")
    return replace(finding, evidence=(before, Evidence(_APART, first.source), *others), of_past=True)


_TIMED = "SELECT 1 FROM latest_call WHERE duration_ns IS NOT NULL LIMIT 1"


@reduction
def late_before_stop(calls: Calls, stop: Stopped, layout: Layout) -> LateBeforeStop:
    """Late ranks of tensor-parallel groups, whose members do the same work, without those that the others now wait for."""
    if not stop.still or not has_rows(calls.connection, "operations"):
        return LateBeforeStop(())
    if not calls.connection.execute(_TIMED).fetchall():
        return LateBeforeStop(())
    equals = layout.along(Axis.TENSOR)
    found = of_series(arrivals(calls.connection)).found
    return LateBeforeStop(
        tuple(
            item
            for item in found
            if item.on_own_clocks and not item.is_bound and item.communicator in equals and item.rank not in stop.held_by
        )
    )


def before_stop(late: Lateness, roster: Roster) -> Finding:
    """Say what it cost; what the rank does in the standstill shows nothing of that."""
    cost = f"peers spent {100 * late.share:.0f} % of the time waiting for it"
    often = f"{late.late}/{late.calls} {late.kind} of {late.communicator}"
    said = (
        f"before the job stopped rank {late.rank} arrived last in {often} (median {late.typical_ns / 1e6:.0f} ms late); {cost}"
    )
    apart = "who came last is in a call for the shortest, on its own clock; this is independent of why the job stands still"
    return Finding(
        ranks=(late.rank,),
        cause=Cause.COMPUTE_SLOW if late.on_device else Cause.UNKNOWN,
        stage=StageRef(
            component=Component.COMPUTE if late.on_device else Component.UNKNOWN,
            operation=late.kind,
            communicator=late.communicator,
        ),
        belief=Belief.BEHIND_AND_BUSY,
        confidence=Confidence.LIKELY,
        evidence=(Evidence(said, late.source), Evidence(apart, late.source)),
        anomaly=Anomaly.FAIL_SLOW,
        impact=Impact(late.lost_ns, round(late.share, 3), late.late, "arrival"),
        since=roster.since(late.rank, late.since_ns, "its host's realtime"),
        next_steps=(f"when the job runs again, compare clocks, temperature and load of rank {late.rank} with its group",),
        of_past=True,
    )
