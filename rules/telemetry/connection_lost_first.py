"""Everybody lost the connection to one host, which lost nobody: what happened there came first."""

from __future__ import annotations

from collections.abc import Iterator

from forensics.model import (
    Belief,
    Cause,
    Component,
    Confidence,
    Evidence,
    Finding,
    Granularity,
    Members,
    Resource,
    StageName,
    StageRef,
)
from forensics.rules.interface import Need, Rule, Threshold, Thresholds
from forensics.rules.reductions.logs.events import Logs
from forensics.rules.reductions.logs.log_evidence import Logged
from forensics.rules.reductions.logs.lost_connections import Loss, NicFault, by_own_nic, lost_first, short
from forensics.rules.reductions.ranks.roster import Roster
from forensics.rules.reductions.text.evidence_text import counted, ranks_text
from forensics.rules.reductions.waits.graph import WaitGraph

_RETRIES_EXCEEDED = 12
_SHOWN = 3


def _evaluate(roster: Roster, graph: WaitGraph, logged: Logged, thresholds: Thresholds) -> Iterator[Finding]:
    """Nothing where dumps, stacks, numbers in logs or the end of a process tell more than the order of losses."""
    if any(wait.recorded or wait.absent for wait in graph.waits):
        return
    if any(facts.ended for facts in roster.ranks.values()):
        return
    faults = by_own_nic(logged.losses, logged.nic_faults or logged.links_lost)
    yield from _of_nics(roster, faults, logged.losses) if faults else ()
    if faults or logged.nic_faults:
        return  # where ports failed, the order of losses shows nothing
    found = lost_first(logged.losses)
    if found is None:
        return
    host, losses = found
    ranks = tuple(rank for rank, facts in sorted(roster.ranks.items()) if facts.host and short(facts.host) == host)
    if ranks:
        yield _finding(host, ranks, losses, thresholds["least_reporters"])


def _of_nics(roster: Roster, faults: tuple[NicFault, ...], losses: tuple[Loss, ...]) -> Iterator[Finding]:
    """The ranks whose own port failed; one whose number nothing tells may be any of its host."""
    of_host = tuple(rank for rank, facts in sorted(roster.ranks.items()) if facts.host and short(facts.host) == faults[0].host)
    named = tuple(sorted(fault.rank for fault in faults if fault.rank is not None))
    ranks = named or of_host
    if not ranks:
        return
    lost = next((loss for loss in losses if loss.peer == faults[0].host), losses[0])
    yield Finding(
        ranks=ranks,
        cause=Cause.NETWORK_DOWN,
        stage=StageRef(name=StageName.UNKNOWN, component=Component.COMMUNICATION),
        belief=Belief.DIRECT_RECORD,
        confidence=Confidence.LIKELY,
        evidence=(
            *(Evidence(_said(fault), fault.source) for fault in faults[:_SHOWN]),
            Evidence(f"no connection was lost but to or from {faults[0].host}: {lost.text}", lost.source),
        ),
        granularity=Granularity.of_ranks(ranks) if named else Granularity.HOST,
        members=Members.EACH if named or len(ranks) == 1 else Members.ONE_OF,
        resource=Resource(nic=faults[0].nic.partition(":")[0]) if len(faults) == 1 else None,
        next_steps=(f"check {faults[0].nic} of {faults[0].host}: cable, transceiver and switch port, ibstat, its kernel log",),
    )


def _said(fault: NicFault) -> str:
    if fault.by_kernel:
        return f"the kernel of {fault.host} says that the link of {fault.nic} went down"
    return f"NCCL on {fault.host} says that its own port {fault.nic} failed"


def _finding(host: str, ranks: tuple[int, ...], losses: tuple[Loss, ...], least: float) -> Finding:
    reporters = sorted({loss.reporter for loss in losses})
    unanswered = any(loss.status == _RETRIES_EXCEEDED for loss in losses)
    shown = {loss.reporter: loss for loss in reversed(losses)}
    who = counted(len(reporters), "other host")
    return Finding(
        ranks=ranks,
        cause=Cause.NETWORK_DOWN if unanswered else Cause.PROCESS_DEAD,
        stage=StageRef(name=StageName.UNKNOWN, component=Component.COMMUNICATION),
        belief=Belief.BEHIND_AND_BUSY,
        confidence=Confidence.LIKELY if len(reporters) >= least else Confidence.SUSPECT,
        evidence=(
            Evidence(
                f"{who} lost the connection to {host} ({ranks_text(ranks)}), whose logs report no lost peer", losses[0].source
            ),
            *(Evidence(f"{name}: {shown[name].text}", shown[name].source) for name in reporters[:_SHOWN]),
        ),
        granularity=Granularity.RANK if len(ranks) == 1 else Granularity.HOST,
        members=Members.EACH if len(ranks) == 1 else Members.ONE_OF,
        next_steps=(
            f"check {host}: the end of its ranks' logs, its kernel log, its NICs and links",
            "status 12 means that a peer did not answer for about 30 s: host, NIC, cable or switch port",
        ),
    )


def _clears() -> str | None:
    return None


RULE = Rule(
    code="FX152",
    name="connection-lost-first",
    seed="Flight Recorder practice",
    needs=(Need(Logs, "logs", "lost connections stand in logs only"),),
    thresholds=(Threshold("least_reporters", 2, "of two ends of one connection nobody can say which one failed"),),
    concludes="The host that others lost the connection to and that lost nobody.",
    evaluate=_evaluate,
    clears=_clears,
)
