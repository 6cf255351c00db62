"""What each NIC moved at most over some large transfer without a pause, by the epochs in which completions came.

All that a NIC sent over the work of its busiest queue pair is a bound from above, and sound jobs whose collectives share NICs
come to six tenths of a line by it. What a NIC moved at a stretch is a bound from below: sound ones reach eight tenths and more.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from statistics import median
from typing import Any, NewType

import numpy as np
import numpy.typing as npt
from duckdb import DuckDBPyConnection

from forensics.rules.reductions.interface import reduction
from forensics.rules.reductions.network.line_uses import LineUses, most_of_lines, whole
from forensics.rules.reductions.ranks.shim_logs import ShimLogs, source_ids

# Bytes of a transfer: requests that complete together are a small part of it.
_LEAST_BYTES = 64 << 20
# Epochs without a completion: at a third of a line requests of 1 MB are as far apart.
_MOST_PAUSE = 5
# Of the length of an epoch, which each log tells by a clock of its own: others do not count alike.
_SAME_LENGTH = 1.01

LinePeaks = NewType("LinePeaks", Mapping[tuple[str, str], float])
"""Bytes per second of each NIC, by host and name, where its newest epochs hold a transfer as large as that; of a job that would
win time at the rate of its lines by work requests, else empty."""

Way = tuple[str, str, str]
"""Host and NIC that send, and the address of the NIC that receives."""
Columns = Mapping[str, npt.NDArray[Any]]

_CELLS = """
WITH senders AS (
    SELECT DISTINCT q.source_id, q.queue_pair, coalesce(q.host, s.host) AS host, q.nic, {there} AS there
    FROM queue_pairs q JOIN sources s USING (source_id)
    WHERE list_contains($sources, q.source_id) AND q.nic IS NOT NULL AND coalesce(q.direction, 'send') = 'send'
        AND coalesce(q.host, s.host) IS NOT NULL
), cells AS (
    SELECT p.host, p.nic, p.there, c.epoch_ns,
           e.first_epoch + generate_subscripts(e.values, 1) - 1 AS epoch, unnest(e.values) AS bytes
    FROM captures c JOIN nic_epochs e USING (source_id, capture_id)
    JOIN senders p ON p.source_id = e.source_id AND p.queue_pair = e.queue_pair
    WHERE c.nic IS NULL AND c.epoch_ns > 0 AND e.direction = 'send' AND e.first_epoch BETWEEN 0 AND 1::BIGINT << 60
)
SELECT dense_rank() OVER (ORDER BY host, nic, there) AS number, host, nic, there, epoch, sum(bytes)::DOUBLE AS bytes,
       min(epoch_ns) AS shortest, max(epoch_ns) AS longest
FROM cells WHERE bytes > 0 GROUP BY host, nic, there, epoch ORDER BY host, nic, there, epoch
"""


@reduction
def line_peaks(connection: DuckDBPyConnection, logs: ShimLogs, uses: LineUses) -> LinePeaks:
    """Read the newest epochs of the logs, where work requests leave open whether lines are full.

    Queue pairs that take turns bound the rate of their NIC so far from above that even half of a line may look like a full one.
    """
    if most_of_lines(uses) is None:
        return LinePeaks({})
    found = _peaks(connection, logs, "''")
    return LinePeaks({(host, nic): peak for (host, nic, _), peak in found})


def peaks_of_ways(connection: DuckDBPyConnection, logs: ShimLogs) -> Mapping[Way, float]:
    """The same from NIC to NIC: all that goes this way, of whichever ranks."""
    return dict(_peaks(connection, logs, "coalesce(q.remote_nic, '')"))


def at_a_stretch(peaks: LinePeaks, uses: LineUses) -> tuple[float, ...]:
    """The part of its lines that NICs of each host reach (median); empty where that of a host is not known."""
    seen = [use for use in uses if use.line_rate and (use.host, use.nic) in peaks]
    parts = {host: [peaks[host, use.nic] / (use.line_rate or 1.0) for use in nics] for host, nics in whole(seen).items()}
    return tuple(median(found) for found in parts.values()) if parts.keys() >= {use.host for use in uses} else ()


def _peaks(connection: DuckDBPyConnection, logs: ShimLogs, there: str) -> Iterator[tuple[Way, float]]:
    """NIC by NIC, and by what is `there` at the other end."""
    columns = connection.execute(_CELLS.format(there=there), {"sources": sorted(source_ids(logs))}).fetchnumpy()
    edges = np.flatnonzero(np.diff(columns["number"], prepend=0, append=0))
    for begin, end in zip(edges[:-1].tolist(), edges[1:].tolist(), strict=True):
        rows = {name: column[begin:end] for name, column in columns.items()}
        length = float(rows["longest"].max())
        found = max(_runs(rows), default=0.0) if length <= _SAME_LENGTH * rows["shortest"].min() else 0.0
        if found > 0:
            yield (str(rows["host"][0]), str(rows["nic"][0]), str(rows["there"][0])), found / length * 1e9


def _runs(rows: Columns) -> Iterator[float]:
    """Bytes an epoch of each stretch without a pause that is large enough, at most."""
    edges = np.flatnonzero(np.diff(rows["epoch"]) > _MOST_PAUSE) + 1
    for epoch, moved in zip(np.split(rows["epoch"], edges), np.split(rows["bytes"], edges), strict=True):
        total = np.cumsum(moved)
        first = np.searchsorted(total, total - _LEAST_BYTES, side="right") - 1
        last = np.flatnonzero(first >= 0)
        if len(last):
            # What completes in the last epoch may have moved in any of those before.
            sent = total[last] - total[first[last]] - moved[last]
            yield float((sent / (epoch[last] - epoch[first[last]])).max())
