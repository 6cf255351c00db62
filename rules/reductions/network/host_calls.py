"""Devices that stand in a call inside their host because another device of it stands in front of that call.

No log of the library shows where such a call stands on the device, and one rank whose GPU does not move holds up all that share
its host in this way. It is the one that has the fewest of these calls before what it is stuck in: the others went through as
many and made a call more, which it does not come to.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from typing import NewType

from forensics.rules.reductions.calls.positions import Communicators
from forensics.rules.reductions.calls.shim_calls import Calls
from forensics.rules.reductions.interface import reduction
from forensics.rules.reductions.network.flow_ends import FlowState
from forensics.rules.reductions.network.flow_faults import FaultyFlows
from forensics.rules.reductions.ranks.roster import Roster

HeldInHosts = NewType("HeldInHosts", frozenset[int])
"""Ranks that hold up flows because their device waits for another rank of their host."""

_OF_GPU = frozenset({FlowState.GPU_NOT_READY, FlowState.NOT_CONSUMED})

# A call waits for what its rank launched before it: one that is done was behind all of these.
_MADE = """
WITH made AS (
    SELECT rank, communicator, sequence, state, coalesce(record_id, entered_ns, locator) AS place
    FROM {calls} WHERE list_contains($ranks, rank)
), done AS (
    SELECT rank, max(place) AS place FROM made WHERE state = 'done' GROUP BY rank
)
SELECT m.rank, m.communicator, coalesce(max(m.sequence) FILTER (m.place < s.place), 0),
       coalesce(max(m.sequence) FILTER (m.place < d.place), 0)
FROM made m JOIN (SELECT unnest($ranks) AS rank, unnest($places) AS place) s USING (rank) LEFT JOIN done d USING (rank)
WHERE list_contains($inside, m.communicator) GROUP BY m.rank, m.communicator
"""


@dataclass(frozen=True, slots=True)
class Made:
    """Calls of one communicator that a rank made before what it is stuck in, and before the last call that is done."""

    before_stuck: int
    before_done: int


@reduction
def held_in_hosts(calls: Calls, groups: Communicators, roster: Roster, faulty: FaultyFlows) -> HeldInHosts:
    """Holders of flows that wait inside their host, by logs of the library alone: dumps tell what a device is in."""
    stuck = _stuck(faulty)
    inside = sorted(group.label for group in groups if _is_inside(group.members, roster))
    if not calls.from_shim or len(stuck) < 2 or not inside:
        return HeldInHosts(frozenset())
    asked = {"ranks": list(stuck), "places": list(stuck.values()), "inside": inside}
    made: dict[str, dict[int, Made]] = {}
    for rank, label, *counts in calls.connection.execute(_MADE.format(calls=calls.table), asked).fetchall():
        made.setdefault(label, {})[rank] = Made(*counts)
    return HeldInHosts(frozenset(rank for known in made.values() for rank in behind_others(known)))


def behind_others(made: Mapping[int, Made]) -> Iterator[int]:
    """Ranks that wait for another one: it made fewer of the calls, and they were through as many as it made."""
    for rank, own in made.items():
        if any(each.before_stuck < own.before_stuck and own.before_done >= each.before_stuck for each in made.values()):
            yield rank


def _stuck(faulty: FaultyFlows) -> Mapping[int, int]:
    """Place of the first call that each holder is stuck in."""
    first: dict[int, int] = {}
    for flow in faulty:
        if flow.state in _OF_GPU and flow.holder is not None and (place := flow.order_at(flow.holder)) is not None:
            first[flow.holder] = min(first.get(flow.holder, place), place)
    return first


def _is_inside(members: Collection[int], roster: Roster) -> bool:
    hosts = {roster.host_of(member) for member in members}
    return len(members) > 1 and len(hosts) == 1 and None not in hosts
