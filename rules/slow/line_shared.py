"""Traffic that is not the job's fills the lines of NICs while ranks send over them, and the job loses time to it."""

from __future__ import annotations

from collections import defaultdict
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
    Mechanism,
    Resource,
    StageRef,
)
from forensics.rules.interface import Need, Rule, Threshold, Thresholds
from forensics.rules.reductions.hardware.causes import Hardware, Oddity
from forensics.rules.reductions.network.line_uses import LineUses
from forensics.rules.reductions.network.other_traffic import PortsReadTwice, SharedNic, SharedNics
from forensics.rules.reductions.progress.liveness import Liveness
from forensics.rules.reductions.ranks.nic_users import NicUsers
from forensics.rules.reductions.ranks.roster import Roster
from forensics.rules.reductions.ranks.shim_logs import WorkRequestLogs
from forensics.rules.reductions.text.blocked_ranks import blocked_ranks
from forensics.rules.reductions.text.evidence_text import counted, ranks_text

_SHOWN = 3


def _evaluate(
    roster: Roster, liveness: Liveness, ports: PortsReadTwice, shared: SharedNics, users: NicUsers, hardware: Hardware,
    thresholds: Thresholds,
) -> Iterator[Finding]:  # fmt: skip
    known = [nic for nic in shared if nic.lost >= thresholds["least_lost"]]
    # What ranks get is a bound from above: beside one that surely loses, so do those whose lines are as full.
    losing = {nic.host for nic in known}
    stated = [nic for nic in shared if nic.use is None or nic.host in losing]
    hosts = {nic.host for nic in shared}
    if not known or not liveness.may_move or hosts >= {port.host for port in ports}:
        return  # where the lines of all hosts are full, what is the network's and what others' is not stated
    ranks = users.of({rank for nic in stated for rank in nic.ranks})
    yield _finding(ranks, stated, hardware)
    reached = {peer for nic in stated if nic.use for peer in nic.use.peers}
    if victims := {rank for rank in roster.ranks if roster.host_of(rank) in reached} - set(ranks):
        yield blocked_ranks(victims)


def _finding(ranks: tuple[int, ...], shared: Sequence[SharedNic], hardware: Hardware) -> Finding:
    ordered = sorted(shared, key=lambda nic: (-nic.lost, nic.host, nic.nic))
    worst = ordered[0]
    signs = (sign for rank in ranks for sign in hardware.signs.get(rank, ()) if sign.kind is Oddity.CONGESTED)
    marks = [Evidence(sign.statement, sign.source) for sign in signs]
    return Finding(
        ranks=ranks,
        cause=Cause.NETWORK_CONGESTION,
        stage=StageRef(component=Component.COMMUNICATION),
        belief=Belief.BEHIND_AND_BUSY,
        confidence=Confidence.SUSPECT if all(nic.quiet is not None for nic in shared) else Confidence.LIKELY,
        evidence=(*map(_evidence, ordered[:_SHOWN]), *_in_all(ordered), *marks[:_SHOWN]),
        granularity=Granularity.NIC,
        anomaly=Anomaly.FAIL_SLOW,
        resource=Resource(nic=worst.nic if len(shared) == 1 else None),
        mechanism=Mechanism("slow_flow", "local"),
        impact=Impact(None, round(worst.lost, 3), None, "arrival"),
        next_steps=(
            f"find out what else sends over the NICs of {ranks_text(ranks)}: storage, another job, a bandwidth test",
            "check what the switches report of congestion on these ports",
        ),
    )


def _evidence(nic: SharedNic) -> Evidence:
    if nic.use and nic.quiet is not None:
        return Evidence(
            f"port of NIC {nic.nic} of {nic.host} sends {nic.sent / 1e9:.1f} of {nic.line_rate / 1e9:.1f} GB/s over "
            f"{nic.seconds:.1f} s, ports of a host in its rings {nic.quiet / 1e9:.1f} GB/s at most; collectives of "
            f"{ranks_text(nic.ranks)} move {nic.use.rate / 1e9:.1f} GB/s on each NIC, {100 * nic.use.busy:.0f} % of the time",
            nic.source,
        )
    get = "too few samples are left to show what these get"
    if nic.use:
        get = f"which get {nic.use.rate / 1e9:.1f} GB/s while they have work, {100 * nic.use.busy:.0f} % of the time"
    return Evidence(
        f"port of NIC {nic.nic} of {nic.host} sends {nic.sent / 1e9:.1f} of {nic.line_rate / 1e9:.1f} GB/s over "
        f"{nic.seconds:.1f} s, at least {nic.others / 1e9:.1f} GB/s of it not from {ranks_text(nic.ranks)}, {get}",
        nic.source,
    )


def _in_all(shared: Sequence[SharedNic]) -> Iterator[Evidence]:
    by_host: Mapping[str, list[SharedNic]] = defaultdict(list)
    for nic in shared:
        by_host[nic.host].append(nic)
    if len(shared) > _SHOWN:
        found = "; ".join(f"{host}: {', '.join(nic.nic for nic in nics)}" for host, nics in sorted(by_host.items()))
        yield Evidence(f"so it is on {counted(len(shared), 'NIC')} ({found})")


def _clears(uses: LineUses, ports: PortsReadTwice, shared: SharedNics) -> str | None:
    """Only where the port of each NIC with work was read, and carries little beside it."""
    read = {(port.host, port.nic) for port in ports}
    known = [use for use in uses if use.part is not None and (use.host, use.nic) in read]
    if shared or not known or len(known) < len(uses):
        return None
    return f"ports of {counted(len(known), 'NIC')} do not send so much beside the job that their lines are full"


RULE = Rule(
    code="FX184",
    name="line-shared",
    seed="Mycroft section 7.1 (background traffic) and Pulse table 4 (network congestion)",
    needs=(
        Need(WorkRequestLogs, "work_requests", "what ranks send of all that a port sends is seen in verbs only"),
        Need(PortsReadTwice, "port counters", "only counters of a port, read twice, show what it sends in all"),
    ),
    thresholds=(Threshold("least_lost", 0.05, "of the time, not needed at the rate of the line: less delays nobody"),),
    concludes="The NICs whose lines others fill while ranks of a moving job send over them.",
    evaluate=_evaluate,
    clears=_clears,
)
