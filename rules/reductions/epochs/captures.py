"""Which captures of NICs there are, whose NICs they are of, and who is at the other end of each queue pair (Pulse section 5.1).

The rank of a capture is what its description says, else the one whose shim log has queue pairs on that NIC; of several that
have it together the lowest one stands for the NIC, and each queue pair is of the one whose log has it. The other
end of a queue pair is found by the address and number that both ends tell, in captures and shim logs alike, or is what a map of
queue pairs says of this one (by host, NIC and number); a queue pair without one is foreign: storage, or another job. Epochs
that a shim derives from completions are no captures of a NIC and are left out.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, NewType

from duckdb import DuckDBPyConnection

from forensics.case.database import rows_of
from forensics.rules.reductions.interface import reduction
from forensics.rules.reductions.ranks.nic_users import CapturedUsers

# Years of epochs: what says that it captured more is damaged.
_MOST_EPOCHS = 1 << 48


@dataclass(frozen=True, slots=True)
class NicCapture:
    """One capture of the NIC of a rank; `epoch_ns` in ns, `first` and `epochs` in epochs (None not stated).

    `line_rate` is what its port can move (bytes per second, None not known). `clock` says to what the numbers of its epochs
    belong; only those of `realtime` can be laid beside those of other hosts. `whole` is one of which nothing was lost: what
    it does not tell of did not happen. `ranks` are all that have the NIC, `rank` the first of them: it stands for the NIC.
    """

    source_id: int
    capture_id: int
    path: str
    rank: int
    host: str | None
    nic: str
    epoch_ns: int
    first: int | None = None
    epochs: int | None = None
    clock: str | None = None
    line_rate: float | None = None
    whole: bool = True
    ranks: tuple[int, ...] = ()

    @property
    def is_dated(self) -> bool:
        """Whether it says, in possible numbers, which epochs it covers: then one without bytes is known to be so."""
        return self.first is not None and 0 < (self.epochs or 0) < _MOST_EPOCHS


NicCaptures = NewType("NicCaptures", tuple[NicCapture, ...])
"""Captures of NICs of which the rank is known, by rank and path."""

_CAPTURES = """
WITH rates AS (
    SELECT host, parent, max(rate_bytes_per_s) AS rate FROM devices WHERE kind = 'port' GROUP BY host, parent
)
SELECT c.source_id, c.capture_id, s.path, s.rank, coalesce(c.host, s.host), c.nic, c.epoch_ns,
       c.first_epoch, c.epochs, c.clock, coalesce(nullif(greatest(c.line_bytes_per_s, 0), 0), r.rate),
       s.status = 'ok' AND c.lost IS NULL
FROM captures c JOIN sources s USING (source_id)
LEFT JOIN rates r ON r.host = coalesce(c.host, s.host) AND r.parent = c.nic
WHERE c.nic IS NOT NULL AND c.epoch_ns > 0 ORDER BY s.path, c.capture_id
"""

_PEERS = """
WITH ends AS (
    SELECT DISTINCT q.source_id, q.queue_pair, coalesce(q.rank, s.rank) AS rank, q.peer, q.gid, q.number, q.remote_nic,
           try_cast(q.remote_queue_pair AS BIGINT) AS remote, coalesce(q.host, s.host) AS host, q.nic,
           coalesce(q.generation, 1) AS generation,
           s.kind = 'nic_epochs' AND q.source_id NOT IN (SELECT source_id FROM captures) AS is_map
    FROM queue_pairs q JOIN sources s USING (source_id)
), mapped AS (
    SELECT host, nic, number, generation, any_value(rank) AS rank, any_value(peer) AS peer, any_value(gid) AS gid,
           any_value(remote_nic) AS remote_nic, any_value(remote) AS remote
    FROM ends WHERE is_map GROUP BY ALL HAVING count(DISTINCT rank) <= 1 AND count(DISTINCT peer) <= 1
), crossed AS (
    SELECT unnest($hosts::VARCHAR[]) AS host, unnest($nics::VARCHAR[]) AS nic, unnest($ranks::INTEGER[]) AS stands
), known AS (
    SELECT e.source_id, e.queue_pair, coalesce(c.stands, e.rank, m.rank) AS rank, c.stands, coalesce(e.peer, m.peer) AS peer,
           coalesce(e.rank, m.rank) AS user,
           coalesce(e.gid, m.gid) AS gid, e.number, coalesce(e.remote_nic, m.remote_nic) AS remote_nic,
           coalesce(e.remote, m.remote) AS remote
    FROM ends e LEFT JOIN mapped m ON m.host = e.host AND m.nic = e.nic AND m.number = e.number AND m.generation = e.generation
    LEFT JOIN crossed c ON c.host = e.host AND c.nic = e.nic
), between AS (
    SELECT user, peer, min(stands) AS stands FROM known
    WHERE user IS NOT NULL AND peer IS NOT NULL GROUP BY user, peer HAVING count(DISTINCT coalesce(stands, -1)) = 1
), found AS (
    SELECT a.source_id, a.queue_pair, coalesce(b.stands, f.stands, a.peer, b.rank) AS peer
    FROM known a LEFT JOIN known b ON b.gid = a.remote_nic AND b.number = a.remote AND b.rank IS DISTINCT FROM a.rank
    LEFT JOIN between f ON f.user = a.peer AND f.peer = a.user
), standing AS (
    SELECT each[1] AS rank, each[2] AS first FROM (SELECT unnest($standing::INTEGER[][]) AS each)
), peers AS (
    SELECT source_id, queue_pair, min(peer) AS peer FROM found LEFT JOIN standing ON rank = peer
    WHERE peer IS NOT NULL GROUP BY source_id, queue_pair HAVING count(DISTINCT coalesce(first, peer)) = 1
), owners AS (
    SELECT a.source_id, a.queue_pair, min(coalesce(a.rank, o.rank)) AS own
    FROM known a LEFT JOIN known o ON a.rank IS NULL AND o.gid = a.gid AND o.number = a.number AND o.rank IS NOT NULL
    GROUP BY a.source_id, a.queue_pair
)
SELECT source_id, queue_pair, own, peer FROM peers JOIN owners USING (source_id, queue_pair)
"""

PEERS_TABLE = "queue_pair_peers"
"""Columns source_id, queue_pair, own (the rank that has it, null not known) and peer (the rank at the other end): those of
which one other end is known."""


@reduction
def nic_captures(connection: DuckDBPyConnection, users: CapturedUsers) -> NicCaptures:
    """All captures of NICs of ranks."""
    found = (capture for row in rows_of(connection, "captures", _CAPTURES) if (capture := _capture(users, *row)) is not None)
    return NicCaptures(tuple(sorted(found, key=lambda each: (each.rank, each.path, each.capture_id))))


def _capture(users: CapturedUsers, source: int, number: int, path: str, rank: int | None, *rest: Any) -> NicCapture | None:
    host, nic, *_ = rest
    ranks = users.of([rank]) if rank is not None else users.by_nic.get((host, nic), ())
    return replace(NicCapture(source, number, path, ranks[0], *rest), ranks=ranks) if ranks else None


def name_peers(connection: DuckDBPyConnection, users: CapturedUsers) -> None:
    """Make the table of peers for the queries that follow."""
    standing = [[rank, users.first(rank)] for rank in sorted(users.shared)]
    crossed = [(*nic, users.by_nic[nic][0]) for nic in sorted(users.crossed) if nic in users.by_nic]
    hosts, nics, ranks = (list(each) for each in zip(*crossed, strict=True)) if crossed else ([], [], [])
    asked = {"standing": standing, "hosts": hosts, "nics": nics, "ranks": ranks}
    connection.execute(f"CREATE OR REPLACE TEMP TABLE {PEERS_TABLE} AS {_PEERS}", asked)
