"""Times in which chunks were ready, credit was given, and nobody handed them to the NIC: proxies that did not run.

A sender notes chunks that its GPU has filled as waiting for credit until its proxy hands them over; the receiver notes buffers
that it has offered as waiting for the wire. Both at once, in the same flow, is neither side's GPU, nor a receiver that offers
nothing (Mycroft section 7.1, delay in NCCL's proxy). The first chunks of a flow may wait for the sender's GPU and the last ones
for the receiver's, and what is on its way is at the sender's NIC: what these took is left out. A network plugin that takes few
chunks at a time keeps the others waiting too, with its NIC at work all along: a pause is as long as chunks waited and the NIC
surely had none of them, had it had them one after the other. While the flow waited for its GPU the NIC had none either, and
nobody paused. Lengths on two clocks are compared, never their times.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass

from duckdb import DuckDBPyConnection

# Of the largest pause of a rank: what is smaller is its echo on another link.
_TRIFLE = 0.1


@dataclass(frozen=True, slots=True)
class Pauses:
    """Pauses of one link: in `paused` of `operations` operations, `typical_ns` and `lost_ns` (sum), `share` of the time.

    `unsent_ns` is the sum over all operations with what the GPUs may have taken left in.
    """

    sender: int
    receiver: int
    communicator: str
    kind: str
    operations: int
    paused: int
    typical_ns: float
    lost_ns: float
    share: float
    unsent_ns: float
    source: str


_PAUSES = """
WITH matched AS (
    SELECT s.rank, s.other, s.communicator, s.kind, s.number, max(least(s.credit_ns, r.wire_ns - s.nic_ns)) AS unsent,
           max(least(
               s.credit_ns - r.consume_ns, r.wire_ns - s.nic_ns - s.gpu_ns, s.credit_ns - s.nic_ns * (s.buffers - 1)
           )) AS pause,
           min(s.start_ns) AS start_ns, max(s.end_ns) AS end_ns, arg_max(s.source_id, s.credit_ns) AS source_id,
           arg_max(s.locator, s.credit_ns) AS locator
    FROM ended_flows s JOIN ended_flows r
        ON r.communicator = s.communicator AND r.kind = s.kind AND r.number = s.number AND r.channel = s.channel
        AND r.rank = s.other AND r.other = s.rank
    WHERE s.sends AND NOT r.sends AND s.nic_ns IS NOT NULL GROUP BY s.rank, s.other, s.communicator, s.kind, s.number
), links AS (
    SELECT m.rank, other, arg_max(communicator, pause) AS communicator, arg_max(m.kind, pause) AS kind, count(*) AS operations,
           count(*) FILTER (pause >= $least) AS paused, coalesce(median(pause) FILTER (pause >= $least), 0) AS typical,
           coalesce(sum(pause) FILTER (pause >= $least), 0) AS lost, sum(unsent) AS unsent, max(end_ns) - min(start_ns) AS span,
           arg_max(s.path || '#entry=' || m.locator, pause) AS source
    FROM matched m JOIN sources s USING (source_id) GROUP BY m.rank, other
)
SELECT rank, other, communicator, kind, operations, paused, typical, lost, lost / greatest(span, 1), unsent, source
FROM links WHERE unsent >= $least ORDER BY rank, other
"""


def pauses(connection: DuckDBPyConnection, least_ns: int) -> Mapping[tuple[int, int], Pauses]:
    """Links of `ended_flows` with pauses of at least `least_ns` in all, by sender and receiver."""
    rows = connection.execute(_PAUSES, {"least": least_ns}).fetchall()
    found = {(row[0], row[1]): Pauses(*row) for row in rows}
    return _own(found)


def _own(found: Mapping[tuple[int, int], Pauses]) -> Mapping[tuple[int, int], Pauses]:
    """Leave out what is a trifle against the longest pauses of the same ranks."""
    most: dict[int, float] = defaultdict(float)
    for link, each in found.items():
        for rank in link:
            most[rank] = max(most[rank], each.unsent_ns)
    return {link: each for link, each in found.items() if each.unsent_ns >= _TRIFLE * max(most[rank] for rank in link)}
