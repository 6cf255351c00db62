"""In which order a rank used its communicators before, and whether its last call broke that habit."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass

from duckdb import DuckDBPyConnection

from forensics.rules.reductions.calls.shim_calls import Calls
from forensics.rules.reductions.interface import reduction
from forensics.rules.reductions.waits.graph import RootKind, WaitGraph

_CIRCLES = (RootKind.CYCLE, RootKind.ENTANGLED)


@dataclass(frozen=True, slots=True)
class CallOrder:
    """Ranks of circles of waits by the order of their last call: `broke` one that they always had, or `kept` it."""

    broke: frozenset[int] = frozenset()
    kept: frozenset[int] = frozenset()


_ORDER = """
SELECT communicator || ' ' || kind || ' ' || coalesce(input_sizes, ''), communicator, state
FROM latest_call WHERE rank = $rank AND communicator IS NOT NULL AND NOT coalesce(is_p2p, false)
    AND family = (SELECT min(family) FROM latest_call WHERE rank = $rank)
ORDER BY record_id, locator
"""


@reduction
def call_order(calls: Calls, graph: WaitGraph) -> CallOrder:
    """Ranks whose pending call never followed the call before it, although something else usually does; and those of which
    it came after that call as it did earlier in the run.
    """
    ranks = sorted({rank for root in graph.roots if root.kind in _CIRCLES for rank in root.ranks})
    followed = {rank: _followed(calls.connection, rank) for rank in ranks}
    return CallOrder(
        frozenset(rank for rank, usual in followed.items() if usual is False),
        frozenset(rank for rank, usual in followed.items() if usual),
    )


def _followed(connection: DuckDBPyConnection, rank: int) -> bool | None:
    """Whether the first pending call has followed the same predecessor before; None when the predecessor is new."""
    calls = connection.execute(_ORDER, {"rank": rank}).fetchall()
    pending = next((i for i, (_, _, state) in enumerate(calls) if state != "done"), None)
    if not pending:
        return None
    before, now = calls[pending - 1], calls[pending]
    followers = Counter(calls[i + 1][1] for i in range(pending - 1) if calls[i][0] == before[0])
    return now[1] in followers if followers else None
