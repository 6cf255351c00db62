"""Cells of a capture as columns: how many bytes went from each rank that has the NIC to each peer, in epochs in which any did.

A cell with fewer bytes than a packet of data holds grants of buffers and acknowledgements, and shows nothing of a rate.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
from duckdb import DuckDBPyConnection

from forensics.rules.reductions.epochs.captures import PEERS_TABLE, NicCapture

Ints = npt.NDArray[np.int64]
Bools = npt.NDArray[np.bool_]

LEAST_BYTES = 4096
"""A packet of data, and the volume after which Pulse's NIC agent is known of traffic (appendix A)."""
DIRECTIONS = ("send", "recv")
# Epochs for each cell: as many numbers are counted without a sort.
_DENSE = 4
FASTEST = 10_000
"""Bytes per ns: no NIC moves 10 TB/s, and what says so is damaged."""


@dataclass(frozen=True, slots=True)
class Cells:
    """Cells of one capture, ordered by series and epoch: `series` numbers what moved together, `epoch` and `bytes` of each.

    No series has an epoch twice. All three have the same length.
    """

    series: Ints
    epoch: Ints
    bytes: Ints

    def __len__(self) -> int:
        return len(self.series)


RANKS = 1 << 24
"""More than a job has: a series is shown by the numbers of two ranks."""

# Two captures of one NIC may tell of the same epoch: the larger number is the one that lost nothing.
_CELLS = f"""
WITH wanted AS (SELECT unnest($sources) AS source_id, unnest($captures) AS capture_id), cells AS (
    SELECT coalesce(p.own, $own) AS own, p.peer, e.queue_pair, e.direction,
           e.first_epoch + generate_subscripts(e.values, 1) - 1 AS epoch, unnest(e.values) AS bytes
    FROM nic_epochs e JOIN wanted USING (source_id, capture_id) JOIN {PEERS_TABLE} p USING (source_id, queue_pair)
    WHERE NOT list_contains($users, p.peer)
), once AS (
    SELECT own, peer, queue_pair, direction, epoch, max(bytes) AS bytes FROM cells WHERE bytes BETWEEN $least AND $most
    GROUP BY own, peer, queue_pair, direction, epoch
)
SELECT 2 * ({RANKS} * own::BIGINT + peer) + CASE direction WHEN 'send' THEN 0 ELSE 1 END AS series, epoch,
       sum(bytes)::BIGINT AS bytes
FROM once GROUP BY series, epoch ORDER BY series, epoch
"""


def cells_by_peer(connection: DuckDBPyConnection, captures: Sequence[NicCapture]) -> Cells:
    """Cells of the captures of one NIC, queue pairs between the same ranks together; `name_peers` comes first.

    `ends_of` shows the ranks and the direction of a series. What stays on the same NIC is left out.
    """
    sources, numbers = [each.source_id for each in captures], [each.capture_id for each in captures]
    most = min(each.epoch_ns for each in captures) * FASTEST
    asked: Mapping[str, object] = {
        "sources": sources,
        "captures": numbers,
        "least": LEAST_BYTES,
        "most": most,
        "own": captures[0].rank,
        "users": list(captures[0].ranks) or [captures[0].rank],
    }
    found = connection.execute(_CELLS, asked).fetchnumpy()
    return Cells(*(np.asarray(found[name], np.int64) for name in ("series", "epoch", "bytes")))


def ends_of(series: int) -> tuple[int, int, str]:
    """Of a series the rank that has the NIC, the one at the other end, and the direction."""
    ranks, way = divmod(series, len(DIRECTIONS))
    return *divmod(ranks, RANKS), DIRECTIONS[way]


def by_nic(cells: Cells, standing: Mapping[int, int], own: int) -> Cells:
    """The same with all ranks of a NIC together: `standing` is the rank that stands for each that shares one, `own` that of
    this NIC."""
    series, place = np.unique(cells.series, return_inverse=True)
    ends = [ends_of(each) for each in series.tolist()]
    of_nics = np.array([series_of(own, standing.get(peer, peer), way) for _, peer, way in ends], np.int64)
    if not len(cells) or (of_nics == series).all():
        return cells
    named = of_nics[place]
    order = np.lexsort((cells.epoch, named))
    named, epoch, moved = named[order], cells.epoch[order], cells.bytes[order]
    new = np.flatnonzero(np.append(True, (np.diff(named) != 0) | (np.diff(epoch) != 0)))
    return Cells(named[new], epoch[new], np.add.reduceat(moved, new))


def in_all(cells: Cells) -> Cells:
    """The same cells of one NIC, each with the bytes that all series of its direction moved in its epoch."""
    each = cells.series[np.flatnonzero(np.diff(cells.series, prepend=-1))]
    if len(each) <= len({*(each % len(DIRECTIONS)).tolist()}):
        return cells
    place = (cells.epoch - cells.epoch.min()) * len(DIRECTIONS) + cells.series % len(DIRECTIONS)
    if not 0 <= int(place.min()) <= int(place.max()) <= _DENSE * len(cells):  # long gaps, or numbers beyond all epochs
        place = np.unique(place, return_inverse=True)[1]
    total = np.bincount(place, weights=cells.bytes)
    return Cells(cells.series, cells.epoch, total[place].astype(np.int64))


def series_of(own: int, peer: int, direction: str) -> int:
    """The number of a series."""
    return len(DIRECTIONS) * (RANKS * own + peer) + DIRECTIONS.index(direction)
