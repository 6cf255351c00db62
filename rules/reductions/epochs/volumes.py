"""Which calls the operators on a link are, by the bytes that each algorithm moves over it (Pulse section 5.1, appendix B).

In ring order every rank sends to its successor: an all_reduce of n bytes among s ranks 2 n (s - 1) / s, a reduce_scatter of n
and an all_gather to n bytes n (s - 1) / s, what goes from one to all or back n. In tree order an all_reduce moves n over each
edge in each direction, half of it in each of two trees. Between two hosts a group uses a NIC of each of its members there, or
each NIC that several have together: every one of them carries the same part. What a NIC counts lies above that: headers, grants
of buffers, and what was sent again. In which order a group moves its calls is shown by the peers that its NICs are active with.
PAT, NVLS, CollNet and SHARP move other volumes, or none between the NICs of ranks: no call is found for them.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from forensics.case.database import rows_of
from forensics.model import Component, Evidence, StageRef
from forensics.rules.reductions.calls.shim_calls import Calls
from forensics.rules.reductions.epochs.operators import NicOperators
from forensics.rules.reductions.epochs.patterns import Pattern, patterns
from forensics.rules.reductions.epochs.segments import DELTA_NS
from forensics.rules.reductions.interface import reduction
from forensics.rules.reductions.ranks.nic_users import CapturedUsers

Ends = tuple[int, int]
Floats = npt.NDArray[np.float64]

# Of the calculated volume: what a NIC counts at least and at most. Headers are 1.5 %.
_LEAST, _MOST = 0.995, 1.04
# Bytes of a call: less is what programs tell each other, and operators of many others add up to as much.
_LEAST_CALL = 1 << 20
# Calls of each member of a group, and of all that a link moved in whole operators what has the volume of a call.
_FEWEST, _LEAST_PART = 3, 0.4

_CALLS = """
SELECT communicator, kind, bytes, count(*) FROM operations
WHERE communicator IS NOT NULL AND bytes >= $least AND NOT coalesce(is_p2p, FALSE) GROUP BY ALL ORDER BY ALL
"""
_MEMBERS = "SELECT communicator, list(rank ORDER BY position) FROM members GROUP BY communicator ORDER BY communicator"


@dataclass(frozen=True, slots=True)
class LinkCall:
    """A call that operators on a link may be: `expected` and `measured` bytes of one (median), in this `algorithm` (ring or
    tree) among so many `members`; `bytes` is the size that each member gives, `operators` how many have its volume. `is_shown`:
    the peers that the NICs of the group are active with show this algorithm and no other."""

    communicator: str
    kind: str
    bytes: int
    members: int
    algorithm: str
    expected: float
    measured: float
    operators: int
    is_shown: bool = False


@dataclass(frozen=True, slots=True)
class LinkCalls:
    """By sender and receiver the calls whose volume the operators of the link have; none where nothing fits.

    `groups` are those of both ends that make large calls, whatever volume fits.
    """

    by_link: Mapping[Ends, tuple[LinkCall, ...]] = field(default_factory=dict)
    groups: Mapping[Ends, tuple[str, ...]] = field(default_factory=dict)

    def of(self, links: Sequence[Ends]) -> tuple[LinkCall, ...]:
        """Those of the first of these links whose kind all of them have; their communicators may differ."""
        kinds = [{each.kind for each in self.by_link.get(ends, ())} for ends in links]
        common = set[str].intersection(*kinds) if kinds else set[str]()
        return tuple(each for each in self.by_link.get(links[0], ()) if each.kind in common) if links else ()

    def may_be_joined(self, one: Ends, other: Ends) -> bool:
        """Whether some group makes large calls that move data over both links."""
        return not set(self.groups.get(one, ())).isdisjoint(self.groups.get(other, ()))

    def stage(self, links: Sequence[Ends]) -> StageRef:
        """Communication, with the operation and the communicator where all links tell the same one."""
        found = self.of(links)
        kinds = {each.kind for each in found}
        stated = [{each.communicator for each in self.by_link.get(ends, ())} for ends in links] if found else []
        labels = set[str].intersection(*stated) if stated else set[str]()
        return StageRef(
            component=Component.COMMUNICATION,
            operation=kinds.pop() if len(kinds) == 1 else None,
            communicator=labels.pop() if len(labels) == 1 else None,
        )

    def evidence(self, links: Sequence[Ends]) -> tuple[Evidence, ...]:
        """What the operators of these links are, in words; nothing where no call, or a call of several sizes, fits."""
        found = self.of(links)
        if not found or len({each.bytes for each in found}) > len({each.kind for each in found}):
            return ()
        one, kinds = found[0], sorted({each.kind for each in found})
        calls = f"{' or '.join(kinds)} of {one.communicator} ({one.bytes / 1e6:,.0f} MB of each of {one.members} ranks)"
        moved = f"operators of {one.measured / 1e6:,.0f} MB on a link are those of {calls}"
        shown = ", as the peers of each NIC show," if one.is_shown else ""
        return (Evidence(f"{moved}: in {one.algorithm} order{shown} {one.expected / 1e6:,.0f} MB and headers"),)


def volumes(kind: str, size: int, members: int) -> Iterator[tuple[str, float]]:
    """Bytes that a call moves over an edge of each algorithm, of all channels together; `size` is what each member gives."""
    part = (members - 1) / members
    if kind == "all_reduce":
        yield "ring", 2 * size * part
        yield "tree", float(size)
    elif kind in ("reduce_scatter", "_reduce_scatter_base", "reduce_scatter_tensor_coalesced"):
        yield "ring", size * part
    elif kind in ("all_gather", "_all_gather_base", "all_gather_into_tensor_coalesced"):
        yield "ring", size * (members - 1.0)
    elif kind in ("broadcast", "reduce"):
        yield "ring", float(size)


@reduction
def link_calls(calls: Calls, moved: NicOperators, users: CapturedUsers) -> LinkCalls:
    """Compare the operators of each link with what the calls of the groups of both its ends move over it."""
    groups = {label: tuple(ranks) for label, ranks in rows_of(calls.connection, "members", _MEMBERS)}
    made = defaultdict[str, list[tuple[str, int]]](list)
    for label, kind, size, often in calls.connection.execute(_CALLS, {"least": _LEAST_CALL}).fetchall():
        if often >= _FEWEST * len(groups.get(label, ())) > 0:
            made[label].append((kind, size))
    hosts = {rank: nic.capture.host for nic in moved for rank in nic.capture.ranks}
    found, joint = dict[Ends, tuple[LinkCall, ...]](), dict[Ends, tuple[str, ...]]()
    links = _whole(moved)
    orders = {label: _orders(links, groups[label]) for label in made}
    for ends, whole in links.items():
        joint[ends] = both = tuple(label for label in made if {*ends} <= {*groups[label]})
        ways = {label: _ways(groups[label], ends, hosts, users) for label in both}
        fitting = (
            _fitting(label, len(groups[label]), *call, ways[label], whole, orders[label])
            for label in both
            for call in made[label]
        )
        found[ends] = tuple(each for one in fitting for each in one)
    return LinkCalls({ends: each for ends, each in sorted(found.items()) if each}, joint)


def _whole(moved: NicOperators) -> Mapping[Ends, Floats]:
    """Bytes of the operators on each link that lie within the time looked at, as its sender tells them, else its receiver."""
    found: dict[Ends, Floats] = {}
    for direction in ("recv", "send"):
        for nic in moved:
            margin = DELTA_NS // nic.capture.epoch_ns
            for peer in (peer for peer in nic.peers if peer.direction == direction):
                within = (peer.begin > nic.first + margin) & (peer.end < nic.last - margin)
                ends = (peer.own, peer.peer) if direction == "send" else (peer.peer, peer.own)
                found[ends] = peer.bytes[within].astype(np.float64)
    return found


def _ways(members: Sequence[int], ends: Ends, hosts: Mapping[int, str | None], users: CapturedUsers) -> set[int]:
    """Over how many links a group may spread what goes between two hosts: its members on that of the sender, or their NICs."""
    here = [rank for rank in members if hosts.get(rank) is not None and hosts.get(rank) == hosts.get(ends[0])]
    return {max(len(here), 1), max(len({users.first(rank) for rank in here}), 1)}


def _orders(links: Mapping[Ends, Floats], members: Sequence[int]) -> frozenset[Pattern]:
    """What the peers show that the members are active with; what else these ranks move together is in it."""
    among = {*members}
    return patterns({ends: float(whole.sum()) for ends, whole in links.items() if among.issuperset(ends)})


def _fitting(
    label: str, members: int, kind: str, size: int, ways: set[int], whole: Floats, shown: frozenset[Pattern]
) -> Iterator[LinkCall]:
    """The call in each algorithm that peers show, or may have, in which a good part of what the link moved has its volume."""
    for algorithm, volume in ((name, volume) for name, volume in volumes(kind, size, members) if not shown or name in shown):
        for expected in sorted({volume / count for count in ways}):
            alike = whole[(whole >= _LEAST * expected) & (whole <= _MOST * expected)]
            if len(alike) and alike.sum() >= _LEAST_PART * whole.sum():
                yield LinkCall(
                    label, kind, size, members, algorithm, expected, float(np.median(alike)), len(alike), bool(shown)
                )
