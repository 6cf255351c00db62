"""Hosts whose links are slow because others send over all of their NICs too, by captures of the NICs and counters of the ports.

What ranks move over each NIC is in its capture, what the port sends in all in its counters. Where ranks of all hosts move about
the same, and all ports of a few hosts send more than any port of the others, the rest is not the ranks' (Mycroft section 7.1).
Links are slow by that where each slow one has an end on such a host: the line has no more for them.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import NewType

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
    StageRef,
)
from forensics.rules.reductions.epochs.judged import JudgedLink
from forensics.rules.reductions.epochs.slow_links import JudgedLinks
from forensics.rules.reductions.hardware.causes import Hardware, Oddity
from forensics.rules.reductions.interface import reduction
from forensics.rules.reductions.network.captured_uses import CapturedUses
from forensics.rules.reductions.network.line_uses import LineUse
from forensics.rules.reductions.network.other_traffic import PortsReadTwice, sent_by
from forensics.rules.reductions.ranks.roster import Roster
from forensics.rules.reductions.text.evidence_text import counted, ranks_text

# Of the line: what all ports of such a host send more than any port of the others.
_LEAST_OF_OTHERS = 0.1
# Times what the ranks of others move over a NIC: more is work of their own.
_ALIKE = 1.25
# NICs of a host; of one alone any fault of it would say the same. Of all hosts that others send from.
_LEAST_NICS, _MOST_HOSTS = 2, 0.5
# Statements of counters that are shown.
_SHOWN = 3


@dataclass(frozen=True, slots=True)
class CrowdedHost:
    """A host with all of its `ranks`: each of its `nics` ports sends `sent` bytes a second at least, others `quiet` at most.

    Its ranks move `own` over a NIC, those of other hosts about the same; `source` is of one of its ports.
    """

    host: str
    ranks: tuple[int, ...]
    nics: int
    sent: float
    quiet: float
    own: float
    line: float
    source: str


CrowdedHosts = NewType("CrowdedHosts", tuple[CrowdedHost, ...])
"""The hosts that account for all slow links by it, by name; none where one of these has no end there."""


@dataclass(frozen=True, slots=True)
class _Nic:
    """What the port of a NIC sends and what its ranks do, of a line that is known."""

    use: LineUse
    sent: float
    source: str

    @property
    def own(self) -> float:
        return self.use.rate * self.use.busy


@reduction
def crowded_hosts(ports: PortsReadTwice, captured: CapturedUses, judged: JudgedLinks, roster: Roster) -> CrowdedHosts:
    """Part hosts by what their ports send, and ask whether all slow links touch those that send more."""
    slow = [link for link in judged if link.is_slow]
    sent = {(port.host, port.nic): (sent_by(port), port.source) for port in ports if port.seconds}
    hosts: dict[str, list[_Nic]] = defaultdict(list)
    for use in captured if slow else ():
        if (use.host, use.nic) in sent and use.line_rate:
            hosts[use.host].append(_Nic(use, *sent[use.host, use.nic]))
    found = tuple(_crowded(hosts, roster))
    return CrowdedHosts(found if _explains([each.host for each in found], slow, roster) else ())


def _crowded(hosts: Mapping[str, Sequence[_Nic]], roster: Roster) -> Iterator[CrowdedHost]:
    """Those with most on their ports, up to the first one after which all others have plainly less."""
    ordered = sorted(hosts, key=lambda host: (-min(nic.sent for nic in hosts[host]), host))
    most = int(_MOST_HOSTS * len(ordered))
    for count in range(1, most + 1):
        crowded = [nic for host in ordered[:count] for nic in hosts[host]]
        others = [nic for host in ordered[count:] for nic in hosts[host]]
        quiet, own = max(nic.sent for nic in others), min(nic.own for nic in others)
        if all(nic.sent - quiet >= _LEAST_OF_OTHERS * (nic.use.line_rate or 0.0) for nic in crowded):
            if max(nic.own for nic in crowded) <= _ALIKE * own:
                yield from (_host(host, hosts[host], quiet, roster) for host in sorted(ordered[:count]))
            return


def _host(host: str, nics: Sequence[_Nic], quiet: float, roster: Roster) -> CrowdedHost:
    ranks = tuple(rank for rank in sorted(roster.ranks) if roster.host_of(rank) == host)
    least = min(nics, key=lambda nic: (nic.sent, nic.use.nic))
    own, line = max(nic.own for nic in nics), least.use.line_rate or 0.0
    return CrowdedHost(host, ranks, len(nics), least.sent, quiet, own, line, least.source)


def _explains(hosts: Sequence[str], slow: Sequence[JudgedLink], roster: Roster) -> bool:
    """Whether each slow link has an end on one of the hosts, and each of these has slow links on several NICs."""
    ends = [{roster.host_of(rank) for rank in link.ends} for link in slow]
    own = [{rank for link in slow for rank in link.ends if roster.host_of(rank) == host} for host in hosts]
    return bool(hosts) and all(not each.isdisjoint(hosts) for each in ends) and all(len(each) >= _LEAST_NICS for each in own)


def finding_of_crowded(crowded: CrowdedHosts, rates: Iterable[Evidence], hardware: Hardware, impact: Impact) -> Finding:
    """Hosts over whose NICs others send too, which accounts for all slow links, whose `rates` are shown."""
    ranks = tuple(sorted(rank for each in crowded for rank in each.ranks))
    signs = (sign for rank in ranks for sign in hardware.signs.get(rank, ()) if sign.kind is Oddity.CONGESTED)
    marks = [Evidence(sign.statement, sign.source) for sign in signs]
    return Finding(
        ranks=ranks,
        cause=Cause.NETWORK_CONGESTION,
        stage=StageRef(component=Component.COMMUNICATION),
        belief=Belief.BEHIND_AND_BUSY,
        confidence=Confidence.LIKELY,
        evidence=(*map(_text, crowded), *rates, Evidence("all slow links have an end there"), *marks[:_SHOWN]),
        granularity=Granularity.HOST if len(crowded) == 1 else Granularity.LINK,
        anomaly=Anomaly.FAIL_SLOW,
        mechanism=Mechanism("slow_flow", "local"),
        impact=impact,
        next_steps=(
            f"find out what else sends over the NICs of {ranks_text(ranks)}: storage, another job, a bandwidth test",
            "check what the switches report of congestion on these ports",
        ),
    )


def _text(each: CrowdedHost) -> Evidence:
    ports = f"each of {counted(each.nics, 'port')} of {each.host} sends {each.sent / 1e9:.1f} GB/s at least"
    others = f"{each.quiet / 1e9:.1f} at most on other hosts, whose ranks move as much over a NIC ({each.own / 1e9:.1f} GB/s)"
    return Evidence(f"{ports}, {others}", each.source)
