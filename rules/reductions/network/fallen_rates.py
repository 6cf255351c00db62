"""Whether queue pairs move less while they have work than they did earlier in the same logs (Mycroft 4.3: throughput halves).

The rate of a queue pair depends on what else its NIC has to do, and recurs from step to step; so each is held against its own
past. Nothing has to be known of lines or slots. Logs of hosts are collected together: a moment is shown by how long before the
end of its log it was, and is the same for all of the job.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

import networkx as nx
import numpy as np
import numpy.typing as npt
from duckdb import DuckDBPyConnection

from forensics.rules.reductions.interface import reduction
from forensics.rules.reductions.network.line_uses import ENDS, LEAST_BYTES, LEAST_REQUESTS
from forensics.rules.reductions.ranks.shim_logs import ShimLogs, source_ids

Floats = npt.NDArray[np.float64]
HostLink = tuple[str, str | None]
"""The host that sends, and the one that gets it (None not known)."""

_PARTS = 16
"""Of the time of the longest log: a change is looked for at the edges between them."""
# Queue pairs with a past and a present; and what a request moves must stay about the same.
_FEWEST, _SAME_SIZE = 8, 1.25
# Of the queue pairs that show any change of the time: a later log begins nearer to its end.
_MANY = 0.4


@dataclass(frozen=True, slots=True)
class FallenRates:
    """How queue pairs changed `ago_ns` before the end of the logs: by way the part of their rate that they kept (median).

    Of each of `pairs` queue pairs both sides of the change are known; `before` and `after` are the medians of their rates (in
    bytes per second). `of_nics` is what NICs kept (median), each by all that it sent over the work of its busiest queue pair:
    sharing among more queue pairs leaves that as it was. `source` is a log. False where nothing has a past and a present.
    """

    ways: Mapping[HostLink, float]
    ago_ns: int = 0
    pairs: int = 0
    before: float = 0.0
    after: float = 0.0
    of_nics: float = 1.0
    source: str = ""

    def __bool__(self) -> bool:
        return bool(self.ways)

    @property
    def most(self) -> float:
        """The largest part that a way kept."""
        return max(self.ways.values(), default=1.0)

    @property
    def least(self) -> float:
        """The smallest one."""
        return min(self.ways.values(), default=1.0)

    def apart(self) -> int:
        """How many pairs of hosts have ways and no host in common."""
        known = nx.Graph([(here, there) for here, there in self.ways if there is not None and there != here])
        return len(nx.max_weight_matching(known, maxcardinality=True))


_MOVED = f"""
WITH spans AS (
    SELECT source_id, max(time_ns) AS until_ns FROM wr_samples WHERE list_contains($sources, source_id) GROUP BY source_id
), longest AS (
    SELECT greatest(max(until_ns - time_ns), {_PARTS}) // {_PARTS} + 1 AS part_ns FROM wr_samples JOIN spans USING (source_id)
), {ENDS}, steps AS (
    SELECT w.source_id, w.queue_pair, (p.until_ns - w.time_ns) // l.part_ns AS part, l.part_ns,
           w.completed - lag(w.completed) OVER earlier AS requests,
           w.completed_bytes - lag(w.completed_bytes) OVER earlier AS bytes, w.busy_ns - lag(w.busy_ns) OVER earlier AS busy
    FROM wr_samples w JOIN spans p USING (source_id), longest l
    WHERE w.rank IS NOT NULL AND w.queue_pair IS NOT NULL AND w.error_status IS NULL
    WINDOW earlier AS (PARTITION BY w.source_id, w.queue_pair ORDER BY w.time_ns)
)
SELECT t.source_id, t.queue_pair, coalesce(q.host, s.host), any_value(e.host), any_value(q.nic), t.part,
       any_value(t.part_ns), sum(t.requests), sum(t.bytes), sum(t.busy), any_value(s.path)
FROM steps t JOIN sources s USING (source_id) JOIN queue_pairs q ON q.source_id = t.source_id AND q.queue_pair = t.queue_pair
LEFT JOIN ends e ON e.source_id = t.source_id AND e.queue_pair = t.queue_pair
WHERE t.requests > 0 AND t.busy > 0 AND coalesce(q.direction, 'send') = 'send' AND coalesce(q.host, s.host) IS NOT NULL
GROUP BY t.source_id, t.queue_pair, coalesce(q.host, s.host), t.part ORDER BY ALL
"""


@dataclass(frozen=True, slots=True)
class _Pair:
    """Requests, bytes and ns of work of one queue pair, by part of the time, the newest first."""

    way: HostLink
    nic: str | None
    moved: Floats
    source: str

    @property
    def at(self) -> tuple[str, str | None]:
        """Its host and NIC."""
        return self.way[0], self.nic

    def split(self, part: int) -> Floats:
        """Requests, bytes and ns of work before a change and since (2 x 3)."""
        return np.stack([self.moved[:, part:].sum(1), self.moved[:, :part].sum(1)])

    def sides(self, part: int) -> Floats | None:
        """Bytes and ns of work before a change and since (2 x 2); None where one is not known, or requests became others."""
        found = self.split(part)
        requests, moved = found[:, 0], found[:, 1]
        if requests.min() < LEAST_REQUESTS or (moved / requests).min() < LEAST_BYTES:
            return None
        sizes = moved / requests
        return None if sizes.max() > _SAME_SIZE * sizes.min() else found[:, 1:]


@reduction
def fallen_rates(connection: DuckDBPyConnection, logs: ShimLogs) -> FallenRates:
    """The change that most of the job's queue pairs show most plainly."""
    rows = connection.execute(_MOVED, {"sources": sorted(source_ids(logs))}).fetchall() if logs else []
    pairs: dict[tuple[int, str], _Pair] = {}
    for source, name, here, there, nic, part, _, requests, moved, busy, path in rows:
        pair = pairs.setdefault((source, name), _Pair((here, there), nic, np.zeros((3, _PARTS)), path))
        pair.moved[:, int(part)] = float(requests), float(moved), float(busy)
    length = int(rows[0][6]) if rows else 0
    found = [each for part in range(1, _PARTS) if (each := _at(tuple(pairs.values()), part, length))]
    most = max((each.pairs for each in found), default=0)
    many = [each for each in found if each.pairs >= _MANY * most]
    return min(many, key=lambda each: (each.most, each.ago_ns), default=FallenRates({}))


def _at(pairs: Sequence[_Pair], part: int, part_ns: int) -> FallenRates:
    """What changed at the edge of a part."""
    stated = [(pair, sides) for pair in pairs if (sides := pair.sides(part)) is not None]
    if len(stated) < _FEWEST:
        return FallenRates({})
    rates = np.array([sides[:, 0] / sides[:, 1] * 1e9 for _, sides in stated])
    kept = rates[:, 1] / rates[:, 0]
    ways = defaultdict[HostLink, list[float]](list)
    for (pair, _), part_kept in zip(stated, kept.tolist(), strict=True):
        ways[pair.way].append(part_kept)
    before, after = np.median(rates, axis=0).tolist()
    of_ways = {way: float(np.median(parts)) for way, parts in sorted(ways.items(), key=repr)}
    of_nics = float(np.median(_of_nics(pairs, {pair.at for pair, _ in stated}, part)))
    return FallenRates(of_ways, part * part_ns, len(stated), before, after, of_nics, stated[0][0].source)


def _of_nics(pairs: Sequence[_Pair], nics: Collection[tuple[str, str | None]], part: int) -> list[float]:
    """What each of some NICs kept of all that it sent over the work of its busiest queue pair."""
    moved = defaultdict[tuple[str, str | None], list[Floats]](list)
    for pair in pairs:
        moved[pair.at].append(pair.split(part)[:, 1:])
    bounds = [
        np.sum(moved[nic], axis=0)[:, 0] / np.maximum(np.max(moved[nic], axis=0)[:, 1], 1.0) for nic in sorted(nics, key=repr)
    ]
    return [float(since / was) if was else 1.0 for was, since in bounds]
