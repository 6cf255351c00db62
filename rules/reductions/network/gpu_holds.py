"""Ranks whose GPU takes chunks that have arrived later than the GPUs of ranks with the same part in the same operation.

What a chunk waits for its receiver's GPU has two causes: the GPU itself, and a way out of the rank that is full, for a kernel
of a ring takes a chunk in when it can pass one on. So what the rank's own sends waited for credit and at the NIC is taken off;
in a tree, that of the branch that waited longest. The first rank of a chain of slow ones is left, and not its successors.
Where the ways out of its peers were full and its own was not, it waited no longer than they: only what it took longer with what
is taken off, and without, is its own.
Ranks at the same place in communicators of one structure make the same calls; the same call, by its number, is compared, so
that what holds up all of them (work that the kernels overlap with) is no difference (Mycroft section 5.2: each component should
finish within expected execution time; section 8, case one). Where too few ranks have a place in common, those of rings are
compared over all places: each passes on what it gets, whichever place it has. Of two members a ring is not told from a tree.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt
from duckdb import DuckDBPyConnection

from forensics.rules.reductions.network.channel_flows import turn
from forensics.rules.reductions.network.exchanges import EXCHANGE

# Ranks that make the same call, beside the one: fewer do not say what is usual.
_LEAST_PEERS = 3
_LEAST_CALLS = 5
_RECURRENCE = 0.8
# Calls that are under way at once may be late for one reason, which does not come again: a host that stops for a moment.
_LEAST_MOMENTS = 3
# Of ranks with the same part, as many may be slow before nobody can say what is usual.
_MOST_OUTLIERS = 0.25
LEAST_SHARE_HELD = 0.03
"""Of the time, lost to a GPU that takes chunks late inside operations: less accuses nobody."""
# Collectives whose members all send as much, and the place of ranks that are compared over all places.
_OF_RINGS, _ANY = ("all_reduce", "all_gather", "reduce_scatter"), -1
# A call is slow when the GPU took its peers' time once more on top.
_SLOW_EXCESS = 1.0


@dataclass(frozen=True, slots=True)
class GpuHold:
    """A rank in the calls of one structure since it began to be slow: in `slow` of `calls`.

    `typical_ns` is the median of what its GPU took beyond its peers, `usual_ns` what chunks waited for the GPUs of `peers`
    ranks with the same part; `lost_ns` is the sum beyond that, `share` of the time that the calls span; `had_onset` says that
    calls before were not slow. `channel` is the one that is slow where its others are as fast as those of the peers. Compared
    over all places of rings (`of_rings`) it may be late to the calls by work that its place has and others have not.
    """

    rank: int
    communicator: str
    kind: str
    members: tuple[int, ...]
    calls: int
    slow: int
    peers: int
    usual_ns: float
    typical_ns: float
    lost_ns: float
    share: float
    since_ns: int
    had_onset: bool
    channel: int | None
    source: str
    of_rings: bool = False


_HELD = f"""
WITH onward AS (
    SELECT source_id, communicator, kind, number, channel, max(coalesce(credit_ns, 0) + coalesce(nic_ns, 0)) AS blocked_ns,
           count(DISTINCT other) AS others
    FROM ended_flows WHERE sends GROUP BY ALL
), own AS (
    SELECT r.kind, r.size, r.total, round(log2(greatest(r.bytes, 1))) AS scale, r.position, r.number, r.communicator, r.rank,
           max(r.consume_ns) AS waited, max(r.consume_ns - coalesce(s.blocked_ns, 0)) AS held,
           min(r.consume_ns - coalesce(s.blocked_ns, 0)) AS least, count(DISTINCT r.channel) AS channels,
           arg_max(r.channel, r.consume_ns - coalesce(s.blocked_ns, 0)) AS channel,
           min(r.start_ns) AS start_ns, max(r.end_ns) AS end_ns, any_value(r.source_id) AS source_id, min(r.locator) AS locator,
           any_value(r.kind IN {_OF_RINGS} AND r.size > 2) AND count(DISTINCT r.other) = 1 AND max(s.others) = 1 AS in_ring
    FROM ended_flows r LEFT JOIN onward s
        ON s.source_id = r.source_id AND s.communicator = r.communicator AND s.kind = r.kind
        AND s.number = r.number AND s.channel = r.channel
    WHERE NOT r.sends AND r.kind NOT IN ('p2p', '{EXCHANGE}') AND r.consume_ns IS NOT NULL AND r.number IS NOT NULL GROUP BY ALL
), placed AS (
    SELECT * REPLACE (CASE WHEN in_ring AND count(*) OVER place <= $peers THEN {_ANY} ELSE position END AS position)
    FROM own WINDOW place AS (PARTITION BY kind, size, total, scale, position, number)
), compared AS (
    SELECT *, least(held - median(held) OVER call, waited - median(waited) OVER call) AS excess,
           least - median(least) OVER call AS others, median(waited) OVER call AS usual, count(*) OVER call AS present
    FROM placed WINDOW call AS (PARTITION BY kind, size, total, scale, position, number)
)
SELECT c.kind, c.size, c.total, c.scale, c.position, c.communicator, c.rank, list(excess ORDER BY end_ns),
       list(usual ORDER BY end_ns), list(start_ns ORDER BY end_ns), list(end_ns ORDER BY end_ns),
       list(CASE WHEN channels > 1 AND others < excess / 2 THEN channel END ORDER BY end_ns), min(present) - 1,
       (SELECT list(DISTINCT m.rank ORDER BY m.rank) FROM ended_flows m WHERE m.communicator = c.communicator),
       any_value(s.path) || '#entry=' || arg_max(c.locator, excess)
FROM compared c JOIN sources s USING (source_id) WHERE present > $peers
GROUP BY c.kind, c.size, c.total, c.scale, c.position, c.communicator, c.rank ORDER BY ALL
"""


def gpu_holds(connection: DuckDBPyConnection) -> tuple[GpuHold, ...]:
    """Ranks of `ended_flows` whose GPUs are slow call after call, those that lose most first; none where many are."""
    alike: dict[tuple[object, ...], list[GpuHold | None]] = defaultdict(list)
    for kind, size, total, scale, place, label, rank, *columns in connection.execute(_HELD, {"peers": _LEAST_PEERS}).fetchall():
        hold = _hold(rank, label, kind, *columns)
        alike[kind, size, total, scale, place].append(hold and replace(hold, of_rings=place == _ANY))
    found = (hold for holds in alike.values() for hold in _outliers(holds))
    return tuple(sorted(found, key=lambda hold: (-hold.lost_ns, hold.rank, hold.kind)))


def _outliers(holds: Sequence[GpuHold | None]) -> Iterator[GpuHold]:
    slow = [hold for hold in holds if hold is not None]
    if len(slow) <= max(1.0, _MOST_OUTLIERS * len(holds)):
        yield from slow


def _hold(
    rank: int, label: str, kind: str, excess: Sequence[float], usual: Sequence[float], starts: Sequence[int],
    ends: Sequence[int], channels: Sequence[int | None], peers: int, members: Sequence[int], source: str,
) -> GpuHold | None:  # fmt: skip
    """One rank in the calls of one structure; None when it is as fast as its peers, or was slow too seldom."""
    over, expected = np.array(excess, float), np.maximum(np.array(usual, float), 1.0)
    slow: npt.NDArray[np.bool_] = over >= _SLOW_EXCESS * expected
    first = turn(slow)
    if slow[first:].sum() < _LEAST_CALLS or slow[first:].mean() < _RECURRENCE:
        return None
    if _moments(np.array(starts[first:])[slow[first:]], np.array(ends[first:])[slow[first:]]) < _LEAST_MOMENTS:
        return None
    lost = float(over[first:].sum())
    span = max(max(ends[first:]) - min(starts[first:]), 1)
    return GpuHold(
        rank, label, kind, tuple(members), len(over) - first, int(slow[first:].sum()), peers,
        float(np.median(expected[first:])), float(np.median(over[first:])), lost, lost / span,
        int(starts[first]), first > 0, _single(channels[first:], slow[first:]), source,
    )  # fmt: skip


def _moments(starts: npt.NDArray[np.int64], ends: npt.NDArray[np.int64]) -> int:
    """How many groups of calls there are of which none is under way while another group is."""
    order = np.argsort(starts, kind="stable")
    until = np.maximum.accumulate(ends[order])
    return 1 + int((starts[order][1:] > until[:-1]).sum())


def _single(channels: Sequence[int | None], slow: npt.NDArray[np.bool_]) -> int | None:
    """The channel that nearly all slow calls are slow in, alone."""
    found = [channel for channel, is_slow in zip(channels, slow, strict=True) if is_slow]
    most = max(set(found), key=lambda channel: (found.count(channel), -1 if channel is None else channel))
    return most if found.count(most) >= _RECURRENCE * len(found) else None
