"""NICs whose ports send far more than the ranks on them: what is not theirs fills the line while they send.

A port counts all that it sends, work requests what the ranks send. How much of their work falls between the two reads of the
counters is not known: in any time lies one step more than fits into it, at most. A part of the line that others take matters
where the ranks and the others together fill it: then the line has no more for the ranks.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from statistics import median
from typing import NewType

from duckdb import DuckDBPyConnection

from forensics.rules.reductions.hardware.state import Port, ports_read_twice
from forensics.rules.reductions.interface import reduction
from forensics.rules.reductions.network.line_uses import LineUse, LineUses
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
# Times the rate of a NIC that others share: so much faster are those that nobody does.
_FASTER = 1.33


@dataclass(frozen=True, slots=True)
class SharedNic:
    """A NIC whose line others share: they send `others` bytes a second at least, what the ranks send while they have work is
    `use.rate`, `sent` is all that the port sent, over `seconds`."""

    use: LineUse
    others: float
    sent: float
    seconds: float
    source: str


SharedNics = NewType("SharedNics", tuple[SharedNic, ...])
"""NICs that others share with the ranks, by host and name."""
PortsReadTwice = NewType("PortsReadTwice", tuple[Port, ...])
"""Ports whose counters were read more than once."""


@reduction
def ports_of_hosts(connection: DuckDBPyConnection) -> PortsReadTwice:
    """Read what the ports of all hosts carried between two reads."""
    return PortsReadTwice(ports_read_twice(connection))


@reduction
def shared_nics(uses: LineUses, ports: PortsReadTwice, steps: StepTimes) -> SharedNics:
    """Hold what each port sent against what its ranks may have sent in that time."""
    read = {(port.host, port.nic): port for port in ports}
    found = [(use, read[use.host, use.nic]) for use in uses if use.part is not None and (use.host, use.nic) in read]
    step_s = median(steps.length[-_NEWEST:].tolist()) / 1e9 if steps.length.size else 0.0
    full = [nic for use, port in found if (nic := _full(use, port, step_s)) is not None]
    # A host whose counters fit what one NIC gets has the same unit and moment for all of its ports.
    hosts = {nic.use.host for nic in full if nic.use.rate <= _MOST_OF_REST * ((nic.use.line_rate or 0.0) - nic.others)}
    shared = [nic for nic in full if nic.use.host in hosts]
    return SharedNics(tuple(shared) if _explains(shared, uses) else ())


def _full(use: LineUse, port: Port, step_s: float) -> SharedNic | None:
    """A NIC whose line is full with what others send, by the counters of its port."""
    line, usual = use.line_rate or 0.0, use.rate * use.busy_most
    sent = port.grown.get("port_xmit_data", 0) * _WORD / port.seconds if port.seconds else 0.0
    own = min(use.rate, usual * (1 + step_s / port.seconds)) if step_s and port.seconds else use.rate
    others = sent - own
    if others < _LEAST_OF_OTHERS * line or sent > _MOST_OF_LINE * line or use.rate + sent - usual < _FULL * line:
        return None
    return SharedNic(use, others, sent, port.seconds, port.source)


def _explains(shared: Collection[SharedNic], uses: Sequence[LineUse]) -> bool:
    """Whether all NICs that have no traffic with a shared one are faster, as far as there are any."""
    hosts = {nic.use.host for nic in shared}
    most = max((nic.use.part or 0.0 for nic in shared), default=0.0)
    return all((use.part or 0.0) >= _FASTER * most for use in beyond(uses, hosts))


def beyond(uses: Sequence[LineUse], hosts: Collection[str]) -> Iterator[LineUse]:
    """NICs of other hosts with a known line that send to none of some hosts."""
    for use in uses:
        if use.part is not None and use.host not in hosts and use.peers and not set(use.peers) & set(hosts):
            yield use
