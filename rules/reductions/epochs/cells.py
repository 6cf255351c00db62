"""Cells of a capture as columns: how many bytes went to each peer in each epoch in which any did.

A cell with fewer bytes than a packet of data holds grants of buffers and acknowledgements, and tells nothing of a rate.
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
"""A packet of data, and the volume after which Pulse's NIC agent is told of traffic (appendix A)."""
DIRECTIONS = ("send", "recv")
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


# Two captures of one NIC may tell of the same epoch: the larger number is the one that lost nothing.
_CELLS = f"""
WITH wanted AS (SELECT unnest($sources) AS source_id, unnest($captures) AS capture_id), cells AS (
    SELECT p.peer, e.queue_pair, e.direction, e.first_epoch + generate_subscripts(e.values, 1) - 1 AS epoch,
           unnest(e.values) AS bytes
    FROM nic_epochs e JOIN wanted USING (source_id, capture_id) JOIN {PEERS_TABLE} p USING (source_id, queue_pair)
    WHERE p.peer <> $own
), once AS (
    SELECT peer, queue_pair, direction, epoch, max(bytes) AS bytes FROM cells WHERE bytes BETWEEN $least AND $most
    GROUP BY peer, queue_pair, direction, epoch
)
SELECT 2 * peer::BIGINT + CASE direction WHEN 'send' THEN 0 ELSE 1 END AS series, epoch, sum(bytes)::BIGINT AS bytes
FROM once GROUP BY series, epoch ORDER BY series, epoch
"""


def cells_by_peer(connection: DuckDBPyConnection, captures: Sequence[NicCapture]) -> Cells:
    """Cells of the captures of one NIC, queue pairs to one peer together; `name_peers` comes first.

    A series is twice the rank of the peer, and one more for what came from it. What stays on the same NIC is left out.
    """
    sources, numbers = [each.source_id for each in captures], [each.capture_id for each in captures]
    most = min(each.epoch_ns for each in captures) * FASTEST
    asked: Mapping[str, object] = {
        "sources": sources,
        "captures": numbers,
        "least": LEAST_BYTES,
        "most": most,
        "own": captures[0].rank,
    }
    found = connection.execute(_CELLS, asked).fetchnumpy()
    return Cells(*(np.asarray(found[name], np.int64) for name in ("series", "epoch", "bytes")))
