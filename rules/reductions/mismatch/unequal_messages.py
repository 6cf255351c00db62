"""Messages of which one end sends more or less than the other takes: neither end gets through, whatever the network does.

Ends are paired by their number in the pair, which logs of the calls have (a recorder has the sum of an exchange alone, and sums
of uneven splits differ between members of a sound one). In a group of sends and receives one rank with other splits than its
peers is an end of every pair that does not fit.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from duckdb import DuckDBPyConnection

from forensics.case.database import rows_of

# Only the first of each pair that does not fit, where nothing behind it was done at either end.
_UNEQUAL = """
WITH messages AS (
    SELECT c.communicator, c.rank, p.rank AS peer, c.kind = 'send' AS is_send, c.pair_number, c.sequence, c.bytes, c.state,
           c.enqueued_ns, c.source_id, c.locator,
           max(c.pair_number) FILTER (c.state = 'done') OVER (PARTITION BY c.communicator, c.rank, c.kind, c.peer) AS done
    FROM latest_call c JOIN members p ON p.communicator = c.communicator AND p.position = c.peer
    WHERE c.family = 'shim' AND c.kind IN ('send', 'recv') AND c.pair_number IS NOT NULL AND c.bytes IS NOT NULL
)
SELECT s.communicator, s.rank, s.peer, s.sequence, r.sequence, s.bytes, r.bytes, s.state, s.enqueued_ns, a.path, s.locator,
       r.enqueued_ns, b.path, r.locator
FROM messages s JOIN messages r
    ON r.communicator = s.communicator AND r.rank = s.peer AND r.peer = s.rank AND r.pair_number = s.pair_number
JOIN sources a ON a.source_id = s.source_id JOIN sources b ON b.source_id = r.source_id
WHERE s.is_send AND NOT r.is_send AND s.bytes <> r.bytes
    AND coalesce(s.done, 0) < s.pair_number AND coalesce(r.done, 0) < r.pair_number
QUALIFY 1 = row_number() OVER (PARTITION BY s.communicator, s.rank, s.peer ORDER BY s.pair_number)
ORDER BY ALL
"""


@dataclass(frozen=True, slots=True)
class Unequal:
    """One message: its ends, its number among the calls of either in the communicator, and what each end says (bytes)."""

    communicator: str
    sender: int
    receiver: int
    sequences: tuple[int, int]
    sent: int
    taken: int
    state: str
    enqueued_ns: tuple[int | None, int | None]
    sources: tuple[str, str]

    @property
    def ends(self) -> tuple[int, int]:
        """Sender and receiver."""
        return self.sender, self.receiver

    def text(self, rank: int) -> str:
        """The message as one of its ends has it."""
        if rank == self.sender:
            return f"{self.sent} bytes to rank {self.receiver}, which takes {self.taken}"
        return f"{self.taken} bytes from rank {self.sender}, which sends {self.sent}"


def unequal_messages(connection: DuckDBPyConnection) -> Mapping[str, Sequence[Unequal]]:
    """Messages that do not fit, by communicator: the first of each pair of ranks."""
    found: dict[str, list[Unequal]] = {}
    for message in _read(connection):
        found.setdefault(message.communicator, []).append(message)
    return found


def odd_ones(messages: Sequence[Unequal]) -> tuple[int, ...]:
    """The rank that is an end of all of several messages, whose other ends differ; nobody where that is no one rank."""
    common = set.intersection(*({*message.ends} for message in messages))
    return tuple(common) if len(common) == 1 else ()


def _read(connection: DuckDBPyConnection) -> Iterator[Unequal]:
    for row in rows_of(connection, "operations", _UNEQUAL, kinds=("send", "recv")):
        label, sender, receiver, first, second, sent, taken, state, sent_ns, path, locator, taken_ns, other, place = row
        yield Unequal(
            label, sender, receiver, (first, second), sent, taken, state, (sent_ns, taken_ns),
            (f"{path}#entry={locator}", f"{other}#entry={place}"),
        )  # fmt: skip
