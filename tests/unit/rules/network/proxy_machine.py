"""One collective over proxies, step by step, written from NCCL's description and nothing of this repository's simulator.

Kernels take and make steps in program order, at most eight ahead of what the proxy has sent. The proxy of a sender hands a
step to the NIC when its GPU has made it and the receiver has offered a buffer; the NIC completes it when it lies in the memory
of the receiver. The proxy of a receiver offers buffers, sees what arrived, and sees what its GPU took. Members of one host pass
steps on without a proxy. Whatever is ready to move moves, in a drawn order, until nothing does.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial

SLOTS = 8


@dataclass(slots=True)
class Link:
    """One channel of one direction between two members; `crosses` hosts or not. Steps counted from 0."""

    sender: int
    receiver: int
    channel: int
    crosses: bool
    total: int = 0
    made: int = 0
    taken: int = 0
    posted: int = 0
    ready: int = 0
    passed: int = 0
    done: int = 0
    landed: int = 0
    acknowledged: int = 0
    seen_credit: int = 0
    offered: int = 0
    arrived: int = 0
    consumed: int = 0

    @property
    def send_is_open(self) -> bool:
        return self.done < self.total

    @property
    def receive_is_open(self) -> bool:
        return self.consumed < self.total


@dataclass(frozen=True, slots=True)
class Fault:
    """What stops after `after` moves of the whole collective: of a rank its `kernel`, `receives` or `proxy`; of a pair of ranks
    the `data` that the first sends to the second, or the `credits` for it; `nic` is both ways of one rank with everybody."""

    kind: str
    ranks: tuple[int, ...]
    after: int
    channel: int | None = None


@dataclass(slots=True)
class Machine:
    """Members on hosts of `per_host`, ways between them, and what each thread block of each member still has to do."""

    members: int
    per_host: int
    ways: list[Link] = field(default_factory=list)
    blocks: list[tuple[int, list[tuple[list[Link], list[Link]]]]] = field(default_factory=list)
    moves: int = 0

    def way(self, sender: int, receiver: int, channel: int) -> Link:
        found = [way for way in self.ways if (way.sender, way.receiver, way.channel) == (sender, receiver, channel)]
        if not found:
            found = [Link(sender, receiver, channel, sender // self.per_host != receiver // self.per_host)]
            self.ways += found
        return found[0]

    def add(self, member: int, actions: Sequence[tuple[list[Link], list[Link]]]) -> None:
        for _, sends in actions:
            for way in sends:
                way.total += 1
        self.blocks.append((member, list(actions)))


def ring(members: int, per_host: int, channels: int, loops: int, kind: str = "all_reduce") -> Machine:
    """A ring; each channel leaves a host at another member, as rings of several NICs do."""
    machine = Machine(members, per_host)
    for channel in range(channels):
        order = [
            host * per_host + (place + channel) % per_host for host in range(members // per_host) for place in range(per_host)
        ]
        for place, member in enumerate(order):
            before = machine.way(order[place - 1], member, channel)
            behind = machine.way(member, order[(place + 1) % members], channel)
            passes = (2 * members - 3) if kind == "all_reduce" else members - 2
            once = [([], [behind]), *[([before], [behind])] * passes, ([before], [])]
            machine.add(member, once * loops)
    return machine


def tree(members: int, per_host: int, channels: int, loops: int) -> Machine:
    """Reduced to the root and sent back by another thread block; a chain inside hosts, every second channel mirrored."""
    machine = Machine(members, per_host)
    hosts = members // per_host
    for channel in range(channels):
        parents = dict(_parents(hosts, per_host, mirrored=bool(channel % 2)))
        below: dict[int, list[int]] = {member: [] for member in range(members)}
        for child, parent in parents.items():
            below[parent].append(child)
        for member in range(members):
            up = [machine.way(child, member, channel) for child in below[member]]
            down = [machine.way(member, child, channel) for child in below[member]]
            if member not in parents:
                machine.add(member, [(up, down)] * loops)
                continue
            parent = parents[member]
            machine.add(member, [(up, [machine.way(member, parent, channel)])] * loops)
            machine.add(member, [([machine.way(parent, member, channel)], down)] * loops)
    return machine


def _parents(hosts: int, per_host: int, *, mirrored: bool) -> Iterator[tuple[int, int]]:
    """A binary tree over the first members of hosts, and a chain behind each of them."""
    order = list(reversed(range(hosts))) if mirrored else list(range(hosts))
    for place, host in enumerate(order):
        if place:
            yield host * per_host, order[(place - 1) // 2] * per_host
        for member in range(host * per_host + 1, (host + 1) * per_host):
            yield member, member - 1


def exchange(members: int, per_host: int, loops: int) -> Machine:
    """Everybody sends to everybody, each pair in a thread block of its own."""
    machine = Machine(members, per_host)
    for sender in range(members):
        for receiver in range(members):
            if sender != receiver:
                way = machine.way(sender, receiver, 0)
                machine.add(sender, [([], [way])] * loops)
                machine.blocks.append((receiver, [([way], [])] * loops))
    return machine


def run(machine: Machine, fault: Fault | None, seed: int) -> Machine:
    """Move until nothing can move any more; each sweep in another order."""
    drawn = random.Random(seed)
    movers: list[Callable[[Fault | None], int]] = [partial(_compute, block) for block in machine.blocks]
    movers += [partial(move, way) for way in machine.ways for move in (_send, _nic, _receive)]
    moved = 1
    while moved:
        moved = 0
        for move in drawn.sample(movers, len(movers)):
            step = move(fault if fault and machine.moves >= fault.after else None)
            moved += step
            machine.moves += step
    return machine


def _compute(block: tuple[int, list[tuple[list[Link], list[Link]]]], fault: Fault | None) -> int:
    """One action of a thread block: all that it receives is there, and all that it sends has a free slot."""
    member, actions = block
    if not actions:
        return 0
    receives, sends = actions[0]
    if fault and fault.kind == "kernel" and member in fault.ranks and _strikes(fault, [*receives, *sends]):
        return 0
    there = all((way.arrived if way.crosses else way.made) > way.taken for way in receives)
    room = all(way.made - (way.done if way.crosses else way.taken) < SLOTS for way in sends)
    if not there or not room:
        return 0
    for way in receives:
        way.taken += 1
    for way in sends:
        way.made += 1
    actions.pop(0)
    return 1


def _strikes(fault: Fault, ways: Sequence[Link]) -> bool:
    return fault.channel is None or any(way.channel == fault.channel for way in ways)


def _hit(fault: Fault | None, kind: str, way: Link, member: int) -> bool:
    if fault is None or fault.kind != kind or member not in fault.ranks:
        return False
    return _strikes(fault, [way])


def _between(fault: Fault | None, kinds: Sequence[str], sender: int, receiver: int, channel: int) -> bool:
    """Whether what goes from `sender` to `receiver` is lost."""
    if fault is None or (fault.channel is not None and fault.channel != channel):
        return False
    if fault.kind == "nic":
        return bool({sender, receiver} & set(fault.ranks))
    return fault.kind in kinds and fault.ranks == (sender, receiver)


def _send(way: Link, fault: Fault | None) -> int:
    """The proxy of the sender looks once."""
    if not way.crosses or _hit(fault, "proxy", way, way.sender):
        return 0
    before = (way.posted, way.ready, way.passed, way.done)
    lost = _between(fault, ("credits", "both"), way.sender, way.receiver, way.channel)
    way.seen_credit = way.seen_credit if lost else way.offered
    way.posted = max(way.posted, min(way.total, way.done + SLOTS))
    way.ready = max(way.ready, min(way.made, way.posted))
    way.passed += way.passed < min(way.ready, way.seen_credit)
    way.done += way.acknowledged > way.done
    return int(before != (way.posted, way.ready, way.passed, way.done))


def _nic(way: Link, fault: Fault | None) -> int:
    """One step on its way; it is acknowledged by the NIC of the receiver, whatever the receiver does."""
    if not way.crosses or way.landed >= way.passed:
        return 0
    if _between(fault, ("data", "both"), way.sender, way.receiver, way.channel):
        return 0
    way.landed += 1
    way.acknowledged += 1
    return 1


def _receive(way: Link, fault: Fault | None) -> int:
    """The proxy of the receiver looks once."""
    if not way.crosses or _hit(fault, "proxy", way, way.receiver):
        return 0
    before = (way.offered, way.arrived, way.consumed)
    if not _hit(fault, "receives", way, way.receiver):
        way.offered += way.offered < min(way.total, way.consumed + SLOTS)
    way.arrived += way.landed > way.arrived
    way.consumed = max(way.consumed, way.taken)
    return int(before != (way.offered, way.arrived, way.consumed))
