"""The stage of training that a communicator's traffic belongs to, as far as its calls tell.

Messages run along a pipeline: towards later members they carry activations (forward), towards earlier ones gradients
(backward). Members of one group that have the same place in different pipelines reduce gradients when they do so seldom
against the messages (data parallel), and work on one layer when they do so often (tensor parallel: forward or backward).
Where one call sends to several ranks it is an exchange of equals (tokens that go to experts), and no pipeline.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field

from duckdb import DuckDBPyConnection

from forensics.model import Component, StageName, StageRef
from forensics.rules.reductions.network.exchanges import EXCHANGES

_REDUCTIONS = frozenset({"all_reduce", "reduce_scatter"})


@dataclass(frozen=True, slots=True)
class FlowStages:
    """What communicators are for: places in pipelines, data-parallel groups with the bytes of their largest reduction."""

    places: Mapping[tuple[str, int], int] = field(default_factory=dict)
    gradients: Mapping[str, int] = field(default_factory=dict)
    _of_rank: dict[int, frozenset[int]] = field(init=False, repr=False, compare=False, default_factory=dict)

    def __post_init__(self) -> None:
        for (_, rank), place in self.places.items():
            self._of_rank[rank] = self._of_rank.get(rank, frozenset()) | {place}

    def stage(self, communicator: str, kind: str, sender: int, receiver: int) -> StageRef:
        """Stage of a flow; unknown where the calls do not tell."""
        name, direction = StageName.UNKNOWN, None
        if kind == "p2p":
            one, two = self.places.get((communicator, sender)), self.places.get((communicator, receiver))
            if one is not None and two is not None:
                name, direction = (StageName.FORWARD, "forward") if two > one else (StageName.BACKWARD, "backward")
        elif kind in _REDUCTIONS and communicator in self.gradients:
            name, direction = StageName.BACKWARD, "backward"
        operation = "send" if kind == "p2p" else kind
        return StageRef(name, Component.COMMUNICATION, direction, operation, communicator)

    def alike(self, ranks: Collection[int]) -> bool:
        """Whether ranks do the same work: the same place in pipelines, or there are none."""
        return len({self._of_rank.get(rank, frozenset()) for rank in ranks}) == 1

    def sends_both_ways(self, rank: int) -> bool:
        """Whether a rank has neighbours on both sides of its pipeline, so that what it sends on tells forward from backward."""
        own = [(label, place) for (label, each), place in self.places.items() if each == rank]
        return any(0 < place < max(p for (name, _), p in self.places.items() if name == label) for label, place in own)


_CALLS = f"""
WITH {EXCHANGES}
SELECT communicator, rank, bool_or(is_p2p AND communicator NOT IN (FROM exchanges)), count(*),
       max(bytes) FILTER (kind IN ('all_reduce', 'reduce_scatter'))
FROM operations WHERE list_contains($sources, source_id) AND communicator IS NOT NULL GROUP BY communicator, rank
"""


def flow_stages(connection: DuckDBPyConnection, sources: Collection[int]) -> FlowStages:
    """Tell pipelines and data-parallel groups from the calls of the given logs."""
    calls = connection.execute(_CALLS, {"sources": sorted(sources)}).fetchall()
    members: dict[str, dict[int, int]] = defaultdict(dict)
    for label, position, rank in connection.execute("SELECT communicator, position, rank FROM members").fetchall():
        members[label][rank] = position
    pipelines = {label for label, _, paired, _, _ in calls if paired}
    places = {(label, rank): place for label in pipelines for rank, place in members[label].items()}
    lanes = {rank: (label, place) for (label, rank), place in places.items()}
    messages = {rank: count for label, rank, paired, count, _ in calls if paired}
    found: dict[str, int] = {}
    for label, rank, paired, count, reduced in calls:
        if paired or not reduced or not _side_by_side(members[label], lanes):
            continue
        if 2 * count <= messages.get(rank, 0):
            found[label] = max(found.get(label, 0), reduced)
    return FlowStages(places, found)


def _side_by_side(members: Mapping[int, int], lanes: Mapping[int, tuple[str, int]]) -> bool:
    """Whether all members have the same place, each in a pipeline of its own."""
    found = [lanes[rank] for rank in members if rank in lanes]
    return len(found) == len(members) > 1 and len({place for _, place in found}) == 1 and len(set(found)) == len(found)
