"""NICs whose ports send far more than the ranks on them: what is not theirs fills the line while they send.

A port counts all that it sends, work requests what the ranks send. How much of their work falls between the two reads of the
counters is not known: in any time lies one step more than fits into it, at most. A part of the line that others take matters
where the ranks and the others together fill it: then the line has no more for the ranks.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from math import floor
from statistics import median
from typing import NewType

import networkx as nx
from duckdb import DuckDBPyConnection

from forensics.rules.reductions.hardware.state import Port, ports_read_twice
from forensics.rules.reductions.interface import reduction
from forensics.rules.reductions.network.line_uses import LineUse, LineUses
from forensics.rules.reductions.network.recorded_uses import RecordedUses
from forensics.rules.reductions.ranks.nic_users import NicUsers
from forensics.rules.reductions.steps.times import StepTimes

# Counters of data count words of four bytes (InfiniBand architecture, PortXmitData); RoCE ports have the same unit.
_WORD = 4
# Of the line: less is a file system or a monitor.
_LEAST_OF_OTHERS = 0.2
# Of the line, what ranks and others send together where it is full: headers and turns take the rest.
_FULL = 0.8
# Of what others leave on the average, and the rate of the ranks is a bound from above: counters of another unit, or reads of
# another moment, would show more.
_MOST_OF_REST, _MOST_OF_LINE = 1.5, 1.1
# The newest steps: ports are read after the end of the logs.
_NEWEST = 5
# Times: by as much steps of a sound job differ, in length and in what they send.
_IRREGULAR = 1.1
# Of what the least full of the ports sends that are shared for certain, and times what ranks send that have no others beside.
_AS_FULL, _TIMES_USUAL = 0.9, 2.0
# Times the rate of a NIC that others share: so much faster are those that nobody does.
_FASTER = 1.33


NicOfHost = tuple[str, str]
"""The host and the name of a NIC."""


@dataclass(frozen=True, slots=True)
class SharedNic:
    """A NIC of `ranks` whose line others share: they send `others` bytes a second at least of `sent`, over `seconds`.

    `use` is what the ranks send; None where too few samples of theirs are left. `quiet` is what ports of a host with rings to
    this one send at most, where `use` is by recorders alone.
    """

    host: str
    nic: str
    ranks: tuple[int, ...]
    line_rate: float
    others: float
    sent: float
    seconds: float
    source: str
    use: LineUse | None = None
    quiet: float | None = None

    @property
    def lost(self) -> float:
        """Share of the time that its ranks would not need at the rate of the line, as far as that is known."""
        return self.use.lost if self.use else 0.0


SharedNics = NewType("SharedNics", tuple[SharedNic, ...])
"""NICs that others share with the ranks, by host and name."""
PortsReadTwice = NewType("PortsReadTwice", tuple[Port, ...])
"""Ports whose counters were read more than once."""


@reduction
def ports_of_hosts(connection: DuckDBPyConnection) -> PortsReadTwice:
    """Read what the ports of all hosts carried between two reads."""
    return PortsReadTwice(ports_read_twice(connection))


@reduction
def shared_nics(uses: LineUses, ports: PortsReadTwice, users: NicUsers, steps: StepTimes, recorded: RecordedUses) -> SharedNics:
    """Hold what each port sent against what its ranks may have sent in that time."""
    read = {(port.host, port.nic): port for port in ports if port.seconds}
    known = {(use.host, use.nic): use for use in uses if use.part is not None and (use.host, use.nic) in read}
    step_s = median(steps.length[-_NEWEST:].tolist()) / 1e9 if steps.length.size else 0.0
    most = _most_by_host(read)
    full = [nic for at, use in known.items() if (nic := _full(use, read[at], step_s, most)) is not None]
    # A host whose counters fit what one NIC gets has the same unit and moment for all of its ports.
    hosts = {nic.host for nic in full if nic.use and nic.use.rate <= _MOST_OF_REST * (nic.line_rate - nic.others)}
    shared = _alone([nic for nic in full if nic.host in hosts], [use for at, use in known.items()], read)
    shared += _beside_shared(shared, known, read)
    shared += _as_full(
        shared, [port for at, port in sorted(read.items()) if at not in known and at in users.by_nic], read, users
    )
    logged = {use.host for use in uses}
    left = [use for use in recorded if use.host not in logged]
    shared += _beside_quiet(left, read)
    return SharedNics(tuple(shared) if _explains(shared, [*uses, *left], recorded) else ())


def _full(use: LineUse, port: Port, step_s: float, most: Mapping[str, float]) -> SharedNic | None:
    """A NIC whose line is full with what others send, by the counters of its port.

    What of that the ranks sent meanwhile is their mean, or what a host that they exchange data with sent at `most`.
    """
    line, usual, sent = use.line_rate or 0.0, use.rate * use.busy_most, sent_by(port)
    others = sent - min(use.rate, _most_of_ranks(usual, step_s, port.seconds) if step_s else use.rate)
    own = min(usual, min((most[peer] for peer in use.peers if peer in most), default=usual))
    if others < _LEAST_OF_OTHERS * line or sent > _MOST_OF_LINE * line or use.rate + sent - own < _FULL * line:
        return None
    return SharedNic(use.host, use.nic, use.ranks, line, others, sent, port.seconds, port.source, use)


def _most_of_ranks(usual: float, step_s: float, seconds: float) -> float:
    """Bytes a second that ranks send at most in a time, of which each moment of a step comes once in each step."""
    whole = 1 + floor(seconds * _IRREGULAR / step_s)
    return usual * min(1 + step_s / seconds, whole * _IRREGULAR * step_s / seconds)


def _most_by_host(read: Mapping[NicOfHost, Port]) -> Mapping[str, float]:
    """What a port of each host sends at most."""
    most: dict[str, float] = defaultdict(float)
    for (host, _), port in read.items():
        most[host] = max(most[host], sent_by(port))
    return most


def _alone(shared: Sequence[SharedNic], known: Sequence[LineUse], read: Mapping[NicOfHost, Port]) -> list[SharedNic]:
    """Those that send more than the NICs of their rings that nobody shares.

    Data goes round a ring: what the job sends over one NIC of it goes over all others. Where a port beside it is as full by the
    job alone, as its ranks show, so may this one be: the log of its ranks then tells less than they send.
    """
    beside = nx.Graph([((use.host, use.nic), other) for use in known for other in use.reached])
    left = {(nic.host, nic.nic): nic for nic in shared}
    reached = [(use.host, use.nic) for use in known if (use.host, use.nic) not in left]
    while reached:
        at = reached.pop()
        ring = [each for each in beside.adj.get(at, ()) if each in left and sent_by(read[at]) >= _AS_FULL * left[each].sent]
        for each in ring:
            del left[each]
        reached += ring
    return _above_their_rings(left, beside, {(use.host, use.nic): use for use in known}, read)


def _above_their_rings(
    left: Mapping[NicOfHost, SharedNic], beside: nx.Graph, known: Mapping[NicOfHost, LineUse], read: Mapping[NicOfHost, Port]
) -> list[SharedNic]:  # fmt: skip
    """Those that send more than some NIC of their rings, by as much as matters.

    Where all ports of a ring send alike, what the logs of the ranks do not show of it may be the job's as well.
    """
    rings = nx.Graph(beside.edges)
    rings.add_edges_from((at, other) for at in left if at not in beside for other in read if other[0] in known[at].peers)
    least: dict[NicOfHost, float] = {}
    for together in nx.connected_components(rings.subgraph(left)):
        around = {other for at in together for other in rings.adj[at] if other in read}
        least |= dict.fromkeys(together, min((sent_by(read[at]) for at in around), default=0.0))
    return [nic for at, nic in left.items() if nic.sent - least.get(at, 0.0) >= _LEAST_OF_OTHERS * nic.line_rate]


def _beside_shared(
    shared: Sequence[SharedNic], known: Mapping[NicOfHost, LineUse], read: Mapping[NicOfHost, Port]
) -> list[SharedNic]:  # fmt: skip
    """NICs beside shared ones of their host, as full as these, that send so much more than all others of their rings.

    What ranks get is a bound from above, and may leave room for all that the port sends.
    """
    named, found = {(nic.host, nic.nic) for nic in shared}, []
    least = {nic.host: min(each.sent for each in shared if each.host == nic.host) for nic in shared}
    for at in sorted(known.keys() - named):
        use, port, ring = known[at], read[at], [sent_by(read[other]) for other in known[at].reached if other in read]
        line, others = use.line_rate or 0.0, sent_by(port) - max(ring, default=sent_by(port))
        is_full = _AS_FULL * least.get(use.host, float("inf")) <= sent_by(port) <= _MOST_OF_LINE * line
        if is_full and others >= _LEAST_OF_OTHERS * line:
            found.append(SharedNic(*at, use.ranks, line, others, sent_by(port), port.seconds, port.source, use))
    return found


def _beside_quiet(recorded: Sequence[LineUse], read: Mapping[NicOfHost, Port]) -> list[SharedNic]:
    """NICs of hosts that send over all of them while all ports of a host in their rings are quiet: that is not the job's.

    One NIC alone may be for storage, and no rank has it.
    """
    most = _most_by_host(read)
    found = {(use.host, use.nic): _full_at_rest(use, read.get((use.host, use.nic)), most) for use in recorded}
    open_ = {host for (host, _), nic in found.items() if nic is None}
    return [nic for nic in found.values() if nic is not None and nic.host not in open_]


def _full_at_rest(use: LineUse, port: Port | None, most: Mapping[str, float]) -> SharedNic | None:
    """A NIC whose line is full with what others send and what calls of the ranks get, neither less nor more."""
    line, quiet = use.line_rate or 0.0, min((most[peer] for peer in use.peers if peer in most), default=None)
    if port is None or quiet is None:
        return None
    others = sent_by(port) - quiet
    if others < _LEAST_OF_OTHERS * line or not _FULL * line <= use.rate + others <= _MOST_OF_LINE * line:
        return None
    return SharedNic(use.host, use.nic, use.ranks, line, others, sent_by(port), port.seconds, port.source, use, quiet)


def _as_full(
    shared: Sequence[SharedNic], unknown: Sequence[Port], read: Mapping[NicOfHost, Port], users: NicUsers
) -> list[SharedNic]:
    """NICs of which too little is known of what their ranks send, and whose ports are as full as those that others share.

    Ports of the job that are not so full show what ranks send in that time.
    """
    least, line = min((_AS_FULL * nic.sent for nic in shared), default=0.0), min((nic.line_rate for nic in shared), default=0.0)
    usual = max((sent for at, port in read.items() if at in users.by_nic and (sent := sent_by(port)) < least), default=None)
    if usual is None:
        return []
    found = [(port, sent_by(port) - _TIMES_USUAL * usual) for port in unknown if least <= sent_by(port) <= _MOST_OF_LINE * line]
    return [
        SharedNic(
            port.host, port.nic, users.by_nic[port.host, port.nic], line, others, sent_by(port), port.seconds, port.source
        )
        for port, others in found
        if others >= _LEAST_OF_OTHERS * line
    ]


def sent_by(port: Port) -> float:
    """Bytes a second that a port sent between the two reads of its counters."""
    return port.grown.get("port_xmit_data", 0) * _WORD / port.seconds


def _explains(shared: Collection[SharedNic], uses: Sequence[LineUse], recorded: Sequence[LineUse]) -> bool:
    """Whether all NICs that have no traffic with a shared one are faster, as far as there are any.

    What recorders show of a host goes first: what a log with few samples shows may be far from it.
    """
    stated = {use.host: use.part or 0.0 for use in recorded}
    hosts = {nic.host for nic in shared}
    most = max((min(nic.use.part or 0.0, stated.get(nic.host, 1.0)) for nic in shared if nic.use), default=0.0)
    return all(stated.get(use.host, use.part or 0.0) >= _FASTER * most for use in beyond(uses, hosts))


def beyond(uses: Sequence[LineUse], hosts: Collection[str]) -> Iterator[LineUse]:
    """NICs of other hosts with a known line that send to none of some hosts."""
    for use in uses:
        if use.part is not None and use.host not in hosts and use.peers and not set(use.peers) & set(hosts):
            yield use
