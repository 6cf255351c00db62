"""Whose a queue pair of a capture is, where only its other end states it: the peer of the one is the rank of the other."""

from __future__ import annotations

from forensics.case.database import Connection, has_rows

# What the description of a capture says of its host holds for all of its queue pairs. A number that leads to two ranks, one
# after the other, is of neither.
_FAR_ENDS = """
UPDATE queue_pairs SET host = s.host FROM sources s
WHERE queue_pairs.host IS NULL AND s.source_id = queue_pairs.source_id AND s.kind = 'nic_epochs';
UPDATE queue_pairs SET rank = far.rank FROM (
    SELECT remote_nic AS gid, try_cast(remote_queue_pair AS BIGINT) AS number, min(peer) AS rank FROM queue_pairs
    WHERE peer IS NOT NULL AND communicator IS NULL GROUP BY ALL HAVING count(DISTINCT peer) = 1
) far, sources s
WHERE queue_pairs.rank IS NULL AND s.source_id = queue_pairs.source_id AND s.rank IS NULL AND s.kind = 'nic_epochs'
    AND queue_pairs.gid = far.gid AND queue_pairs.number = far.number
"""


def name_far_ends(connection: Connection) -> None:
    """Fill ranks and hosts of queue pairs of captures."""
    if has_rows(connection, "captures"):
        connection.execute(_FAR_ENDS)
