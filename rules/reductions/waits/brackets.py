"""The stage of a host that is between two collectives: that of both, when they belong to one."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NewType

from duckdb import DuckDBPyConnection

from forensics.model import StageName
from forensics.rules.reductions.calls.shim_calls import Calls
from forensics.rules.reductions.interface import reduction
from forensics.rules.reductions.stacks.call_paths import call_paths
from forensics.rules.reductions.stacks.recorded_stages import stage_of_path
from forensics.rules.reductions.waits.graph import WaitGraph

StagesBetween = NewType("StagesBetween", Mapping[int, StageName])
"""The stage that the calls around a rank tell of it, where they agree."""

MOST_RANKS = 8
"""A job of which more ranks are awaited has no place that is worth telling."""

_LAST = """
SELECT communicator, sequence, call_path FROM operations
WHERE rank = $rank AND communicator IS NOT NULL AND sequence IS NOT NULL AND NOT coalesce(is_p2p, false)
ORDER BY snapshot DESC, coalesce(record_id, locator) DESC LIMIT 1
"""

# What each peer called after the operation that the rank called last.
_NEXT = """
WITH same AS (
    SELECT rank, snapshot, max(coalesce(record_id, locator)) AS place FROM operations
    WHERE communicator = $communicator AND sequence = $sequence AND rank <> $rank AND NOT coalesce(is_p2p, false)
    GROUP BY rank, snapshot
)
SELECT DISTINCT arg_min(o.call_path, coalesce(o.record_id, o.locator))
FROM operations o JOIN same USING (rank, snapshot)
WHERE coalesce(o.record_id, o.locator) > same.place AND o.communicator IS NOT NULL AND NOT coalesce(o.is_p2p, false)
GROUP BY o.rank, o.snapshot
"""


@reduction
def stages_between(calls: Calls, graph: WaitGraph) -> StagesBetween:
    """For each rank at the end of waits the stage of its last collective, where its peers' next ones all belong to that stage.

    Peers of that collective go on in step with it only when they do the same work: otherwise what they call next differs, and
    nothing is stated. So it is when the two stages differ: the host may be in either, or between (VenusTrace section 3.3 places
    a rank by the calls around it).
    """
    ranks = {rank for root in graph.roots for rank in root.ranks}
    found = {rank: _between(calls.connection, rank) for rank in sorted(ranks)} if len(ranks) <= MOST_RANKS else {}
    return StagesBetween({rank: stage for rank, stage in found.items() if stage is not StageName.UNKNOWN})


def _between(connection: DuckDBPyConnection, rank: int) -> StageName:
    last = connection.execute(_LAST, {"rank": rank}).fetchall()
    if not last:
        return StageName.UNKNOWN
    communicator, sequence, own = last[0]
    place = {"communicator": communicator, "sequence": sequence, "rank": rank}
    following = [path for (path,) in connection.execute(_NEXT, place).fetchall()]
    paths = call_paths(connection, [path for path in (own, *following) if path is not None])
    if not following or not {own, *following} <= paths.keys():
        return StageName.UNKNOWN
    stages = {stage_of_path(path) for path in paths.values()}
    return stages.pop() if len(stages) == 1 else StageName.UNKNOWN
