"""How fast the NIC serves each queue pair while it has work, against queue pairs of the same use (VenusTrace section 3.2.2).

The rate is bytes completed over time with signaled requests in flight: idle time does not count, and nobody's lateness does.
Queue pairs whose requests are of about the same size are compared; those that carry credits are left out.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from statistics import NormalDist
from typing import Any

import numpy as np
from duckdb import DuckDBPyConnection

# VenusTrace's window: the rate of fewer requests says little.
_LEAST_REQUESTS = 64
# Below this a request is latency, not bandwidth; NCCL's credits have 64 bytes or less.
_LEAST_BYTES = 512
_LEAST_SPREADS = 3
# That one of all pairs is so slow by chance.
_MOST_CHANCE = 0.01
# Of fewer others, two slow ones among them make the spread.
_LEAST_OTHERS = 8
# MAD of a normal distribution to its sigma.
_SIGMA = 1.4826


@dataclass(frozen=True, slots=True)
class PairRate:
    """One queue pair of `rank` to `peer` (None unknown) while it had work; `excess_ns` is busy time beyond what the peers need.

    `rate` and `usual_rate` are bytes a second, the latter the median of `peers` other pairs of ranks, whose rates `spread` by
    so many doublings (one robust sigma); `share` is the excess in the time between the first sample and the last.
    """

    rank: int
    peer: int | None
    name: str
    nic: str | None
    port: int | None
    requests: int
    rate: float
    usual_rate: float
    peers: int
    excess_ns: float
    share: float
    source: str
    spread: float = 0.0

    @property
    def slowdown(self) -> float:
        """How many times slower than usual."""
        return self.usual_rate / self.rate

    @property
    def stands_out(self) -> bool:
        """Whether it is slower than sound pairs of so wide a spread are by themselves (Pulse section 6.2: 3 MAD).

        Of many pairs the slowest one is further from the others by chance.
        """
        of_many = NormalDist().inv_cdf(1 - _MOST_CHANCE / (self.peers + 1))
        return bool(np.log2(self.slowdown) > max(_LEAST_SPREADS, of_many) * self.spread)


# Differences between samples: the counters may have begun at different times.
_RATES = """
WITH ends AS (
    SELECT q.source_id, q.queue_pair, any_value(o.rank) AS peer
    FROM queue_pairs q JOIN queue_pairs o
        ON o.gid = q.remote_nic AND o.number = try_cast(q.remote_queue_pair AS BIGINT)
    WHERE list_contains($sources, q.source_id) AND list_contains($sources, o.source_id)
    GROUP BY q.source_id, q.queue_pair HAVING count(DISTINCT o.rank) = 1
), spans AS (
    SELECT source_id, queue_pair, rank, max(time_ns) - min(time_ns) AS span,
           max(completed) - min(completed) AS requests, max(completed_bytes) - min(completed_bytes) AS bytes,
           max(busy_ns) - min(busy_ns) AS busy, max(locator) AS locator
    FROM wr_samples WHERE list_contains($sources, source_id) AND rank IS NOT NULL AND queue_pair IS NOT NULL
        AND error_status IS NULL
    GROUP BY source_id, queue_pair, rank
)
SELECT w.rank, e.peer, w.queue_pair, q.nic, q.port, w.requests, w.bytes, w.busy, w.span,
       s.path || '#entry=' || w.locator
FROM spans w JOIN sources s USING (source_id)
JOIN queue_pairs q ON q.source_id = w.source_id AND q.queue_pair = w.queue_pair
LEFT JOIN ends e ON e.source_id = w.source_id AND e.queue_pair = w.queue_pair
WHERE w.requests >= $requests AND w.busy > 0 AND w.bytes >= $bytes * w.requests ORDER BY ALL
"""


def pair_rates(connection: DuckDBPyConnection, sources: Collection[int]) -> tuple[PairRate, ...]:
    """Queue pairs of the given logs that have others to be compared with, in rank order."""
    asked = {"sources": sorted(sources), "requests": _LEAST_REQUESTS, "bytes": _LEAST_BYTES}
    alike: dict[int, list[tuple[Any, ...]]] = defaultdict(list)
    for row in connection.execute(_RATES, asked).fetchall():
        alike[round(2 * np.log2(row[6] / row[5]))].append(row)
    return tuple(
        sorted((found for rows in alike.values() for found in _compared(rows)), key=lambda pair: (pair.rank, pair.name))
    )


def _compared(rows: Sequence[tuple[Any, ...]]) -> list[PairRate]:
    rates: dict[tuple[int, int | None], list[float]] = defaultdict(list)
    for rank, peer, *_, count, busy, _, _ in rows:
        rates[rank, peer].append(count / busy * 1e9)
    usual = {link: float(np.median(found)) for link, found in rates.items()}
    ranked = np.sort(np.fromiter(usual.values(), float))
    return [_pair(row, usual, ranked) for row in rows if len(usual) > 1]


def _pair(row: tuple[Any, ...], usual: Mapping[tuple[int, int | None], float], ranked: Any) -> PairRate:
    rank, peer, name, nic, port, requests, count, busy, span, source = row
    others = np.delete(ranked, np.searchsorted(ranked, usual[rank, peer]))
    rate, expected = count / busy * 1e9, float(np.median(others))
    excess = max(0.0, busy - count / expected * 1e9)
    share = excess / max(span, busy, 1)
    spread = _SIGMA * float(np.median(np.abs(np.log2(others / expected)))) if len(others) >= _LEAST_OTHERS else 0.0
    return PairRate(rank, peer, name, nic, port, requests, rate, expected, len(others), excess, share, source, spread)
