"""The calls of each rank as columns, in the order in which its host made them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
from duckdb import DuckDBPyConnection

Ints = npt.NDArray[np.int64]
Flags = npt.NDArray[np.bool_]

UNKNOWN = np.iinfo(np.int64).min
"""What stands where the source told nothing."""

# Where a rank left a dump, its calls are those of the dump: numbers and order of a shim log cannot be compared with them.
_CALLS = f"""
WITH size AS (SELECT communicator, count(*) AS members FROM members GROUP BY communicator)
SELECT o.rank, o.communicator, o.kind, coalesce(z.members, 0) AS members,
       coalesce(o.is_p2p, false) OR o.kind IN ('send', 'recv') AS is_message, o.kind LIKE '%send%' AS is_send,
       CAST(coalesce(p.rank, -1) AS BIGINT) AS peer, coalesce(o.sequence, {UNKNOWN}) AS sequence,
       coalesce(o.call_path, {UNKNOWN}) AS call_path, o.call_order, o.source_id, o.locator,
       hash(o.communicator, o.kind, o.input_sizes, o.count, p.rank)::UBIGINT AS token,
       coalesce(o.enqueued_ns, {UNKNOWN}) AS enqueued_ns, coalesce(o.device_end_ns, {UNKNOWN}) AS end_ns,
       coalesce(o.duration_ns, {UNKNOWN}) AS duration_ns, o.state = 'done' AS done
FROM ordered_call o LEFT JOIN size z USING (communicator)
LEFT JOIN members p ON p.communicator = o.communicator AND p.position = o.peer
WHERE NOT o.closes AND o.communicator IS NOT NULL AND o.rank IN (SELECT rank FROM wanted_ranks)
QUALIFY o.family = min(o.family) OVER (PARTITION BY o.rank)
ORDER BY o.rank, o.call_order, o.record_id, o.locator
"""


@dataclass(frozen=True, slots=True)
class Record:
    """Calls of one rank in the order of its host: one value a call in each column.

    `token` is the same for calls of one kind, size and peer in one communicator, whose members `members` counts. `peer` is a
    global rank (-1: none, or not known). Times are ns on the clock of the rank's host, `UNKNOWN` where the source has none.
    """

    rank: int
    communicator: npt.NDArray[Any]
    kind: npt.NDArray[Any]
    members: Ints
    is_message: Flags
    is_send: Flags
    peer: Ints
    sequence: Ints
    call_path: Ints
    call_order: Ints
    source_id: Ints
    locator: Ints
    token: Ints
    enqueued_ns: Ints
    end_ns: Ints
    duration_ns: Ints
    done: Flags

    def __len__(self) -> int:
        return len(self.token)

    def issued(self, communicator: str, sequence: int) -> int | None:
        """Place of the call with a number in a communicator; None where the record does not hold it."""
        found = np.flatnonzero((self.communicator == communicator) & (self.sequence == sequence))
        return int(found[-1]) if len(found) else None


def records(connection: DuckDBPyConnection, ranks: Iterable[int]) -> Mapping[int, Record]:
    """The newest record of each of some ranks; ranks without one are left out."""
    connection.register("wanted_ranks", {"rank": np.array(sorted(set(ranks)), dtype=np.int64)})
    columns = connection.execute(_CALLS).fetchnumpy()
    connection.unregister("wanted_ranks")
    of = columns.pop("rank")
    columns["token"] = np.unique(columns["token"], return_inverse=True)[1].astype(np.int64)
    bounds = np.flatnonzero(np.diff(of, prepend=UNKNOWN))
    parts = zip(bounds.tolist(), [*bounds[1:].tolist(), len(of)], strict=True)
    return {
        int(of[begin]): Record(int(of[begin]), **{name: np.asarray(column[begin:end]) for name, column in columns.items()})
        for begin, end in parts
    }
