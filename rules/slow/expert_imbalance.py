"""More of each exchange falls on some ranks than on the others: their experts have more tokens to work on."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from forensics.model import (
    Anomaly,
    Belief,
    Cause,
    Component,
    Confidence,
    Evidence,
    Finding,
    Granularity,
    Impact,
    Members,
    Resource,
    StageRef,
)
from forensics.rules.interface import Need, Rule, Threshold, Thresholds
from forensics.rules.reductions.epochs.captures import NicCaptures
from forensics.rules.reductions.epochs.exchange_loads import ExchangeLoads, LoadedRank, loaded_ranks
from forensics.rules.reductions.epochs.links import LinkRates
from forensics.rules.reductions.epochs.mirrors import MirroredPeers
from forensics.rules.reductions.epochs.slow_links import JudgedLinks
from forensics.rules.reductions.pipeline.axes import Axis
from forensics.rules.reductions.pipeline.layout import Layout
from forensics.rules.reductions.progress.liveness import Liveness, Motion
from forensics.rules.reductions.ranks.roster import Roster
from forensics.rules.reductions.text.evidence_text import counted, ranks_text

_SHOWN = 3
EVEN = 1.2
"""Loads over many exchanges: routing that is balanced wavers by less."""


def _evaluate(
    liveness: Liveness, loads: ExchangeLoads, rates: LinkRates, judged: JudgedLinks, layout: Layout, mirrored: MirroredPeers,
    thresholds: Thresholds,
) -> Iterator[Finding]:  # fmt: skip
    if liveness.motion is Motion.STALLED:
        return
    found = list(loaded_ranks(loads, thresholds["least_load"], EVEN, _lines(rates)))
    ranks = {each.rank for each in found}
    members = {rank for mesh in loads for rank in mesh.members}
    if not found or 2 * len(ranks) >= len(members):
        return
    began = all(each.past < EVEN for each in found)
    cost = max(each.share for each in found)
    # What was always so may be how the job is made, and be beside the point where a NIC is slow.
    lasting = _are_of_experts(found, layout) and not any(link.is_slow for link in judged)
    if began and cost >= thresholds["least_cost"]:
        yield mirrored.doubted(_finding(found, Confidence.LIKELY))
    elif lasting and cost >= thresholds["least_cost_lasting"]:
        yield mirrored.doubted(_finding(found, Confidence.SUSPECT))


def _are_of_experts(found: Sequence[LoadedRank], layout: Layout) -> bool:
    """Whether calls or the configuration say of all these exchanges that they are of groups of experts."""
    groups = [set(layout.members[label]) for label in layout.along(Axis.EXPERT)]
    return all(any(group >= set(each.mesh.members) for group in groups) for each in found)


def _lines(rates: LinkRates) -> Mapping[int, float]:
    """What the NIC of each rank can send, from above: the rate of its line, else all of its links at their best at once."""
    sent = {nic.rank: sum(link.rate for link in rates.nics if link.sender == nic.rank) for nic in rates.captures}
    lines = {rank: nic.line_rate or sent[nic.rank] for nic in rates.captures for rank in nic.ranks}
    return {rank: rate for rank, rate in lines.items() if rate > 0}


def _finding(found: Sequence[LoadedRank], confidence: Confidence) -> Finding:
    ranks = tuple(sorted({each.rank for each in found}))
    others = {rank for each in found for rank in each.mesh.members} - set(ranks)
    return Finding(
        ranks=ranks,
        cause=Cause.EXPERT_IMBALANCE,
        stage=StageRef(component=Component.COMPUTE),
        belief=Belief.BEHIND_AND_BUSY,
        confidence=confidence,
        evidence=tuple(_evidence(found)),
        granularity=Granularity.RANK,
        members=Members.EACH,
        anomaly=Anomaly.FAIL_SLOW,
        resource=Resource(peer_ranks=tuple(sorted(others))),
        impact=Impact(None, round(max(each.share for each in found), 3), None, "arrival"),
        next_steps=(
            "check the tokens of each expert, the balancing loss and the capacity factor: no node is at fault by this",
            "replacing these nodes does not help: the load goes with the experts",
        ),
    )


def _evidence(found: Sequence[LoadedRank]) -> Iterator[Evidence]:
    for each in sorted(found, key=lambda each: (-each.share, each.rank))[:_SHOWN]:
        whose = f"the exchange among {ranks_text(each.mesh.members)} falls on rank {each.rank}"
        before = f", {each.past:.2f} times at the begin of the captures" if each.past == each.past else ""
        yield Evidence(
            f"{each.load:.2f} times an even share of {whose}{before}; "
            f"its NIC needs {100 * each.share:.0f} % of the time, or more, for what is beyond that",
            each.mesh.source.get(each.rank),
        )
    if len(found) > 1:
        yield Evidence(f"so it is in {counted(len({each.mesh.members for each in found}), 'exchange')} of different ranks")
    yield Evidence("an exchange that is uneven by design leaves the same evidence", None, supports=False)


def _clears(loads: ExchangeLoads, roster: Roster) -> str | None:
    """Only where the exchanges of every rank were seen to be even."""
    seen = {rank for mesh in loads for rank in mesh.members}
    if not seen or not set(roster.ranks) <= seen or any(float(mesh.newest.max()) >= EVEN for mesh in loads):
        return None
    return f"{counted(len(loads), 'exchange')} of {counted(len(seen), 'rank')} are even within {100 * (EVEN - 1):.0f} %"


RULE = Rule(
    code="FX182",
    name="expert-imbalance",
    seed="Pulse section 7.2.4 (uneven routing is no fault)",
    needs=(Need(NicCaptures, "NIC epochs", "only captures of their NICs show what ranks exchange"),),
    thresholds=(
        Threshold("least_load", 1.4, "times an even share: balanced routing wavers by a tenth over many exchanges"),
        Threshold("least_cost", 0.02, "of the time, for what is beyond an even share, where it was even before"),
        Threshold("least_cost_lasting", 0.05, "of the time, where it was never seen to be even"),
    ),
    concludes="The ranks on whose experts more tokens fall: uneven routing, no fault of a node.",
    evaluate=_evaluate,
    clears=_clears,
)
