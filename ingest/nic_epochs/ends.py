"""Queue pairs as rows of a table name them: whose they are, and what is at the other end."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from forensics.ingest.interface import Batch

LARGEST = (1 << 62) - 1
_NUMBERS = ("rank", "generation", "port", "remote_number", "peer")
_WORDS = ("host", "nic", "gid", "remote_gid")


@dataclass(frozen=True, slots=True)
class End:
    """A queue pair of a NIC."""

    host: str | None
    rank: int | None
    nic: str | None
    epoch_ns: int
    clock: str | None
    number: int
    generation: int | None
    port: int | None
    gid: str | None
    remote_gid: str | None
    remote_number: int | None
    peer: int | None

    @property
    def capture(self) -> tuple[str | None, str | None, int, str | None]:
        """What shows the captures of a file apart."""
        return self.host, self.nic, self.epoch_ns, self.clock

    @property
    def name(self) -> str:
        """As in the tables: device and number, with the generation above the first one."""
        again = f".{self.generation}" if (self.generation or 1) > 1 else ""
        return f"{self.nic or 'nic'}/{self.number}{again}"


def end_of(cells: Mapping[str, Any], number: int, epoch_ns: int = 0, clock: str | None = None) -> End:
    """The queue pair of a row, by the names of its columns."""
    rank, generation, port, remote, peer = (whole(cells.get(name)) for name in _NUMBERS)
    host, nic, gid, remote_gid = (word(cells.get(name)) for name in _WORDS)
    return End(host, rank, nic, epoch_ns, clock, number, generation, port, gid, remote_gid, remote, peer)


def names_of(ends: Sequence[End]) -> list[str]:
    """Names in one file: with the host where there are several."""
    several = len({each.host for each in ends}) > 1
    return [f"{end.host}:{end.name}" if several else end.name for end in ends]


def queue_pairs(ends: Sequence[End], names: Sequence[str]) -> Batch:
    """A row for each of them."""
    columns: dict[str, Sequence[Any]] = {
        "locator": list(range(len(ends))),
        "queue_pair": names,
        "nic": [end.nic for end in ends],
        "remote_queue_pair": [None if end.remote_number is None else str(end.remote_number) for end in ends],
        "remote_nic": [end.remote_gid for end in ends],
        "gid": [end.gid for end in ends],
        "number": [end.number for end in ends],
        "generation": [end.generation for end in ends],
        "port": [end.port for end in ends],
        "peer": [end.peer for end in ends],
    }
    if any(end.host for end in ends):
        columns["host"] = [end.host for end in ends]
    if any(end.rank is not None for end in ends):
        columns["rank"] = [end.rank for end in ends]
    return Batch("queue_pairs", columns)


def whole(value: Any) -> int | None:
    """A number that fits into a table; one of a CSV file is a text."""
    if isinstance(value, str):
        text = value.strip().strip('"')
        value = int(text) if text.removeprefix("-").isdecimal() and text.isascii() and len(text) < 20 else None
    return value if isinstance(value, int) and not isinstance(value, bool) and abs(value) <= LARGEST else None


def word(value: Any) -> str | None:
    """A text without the quotes of a CSV file; None without any."""
    text = value.strip().strip('"')[:256] if isinstance(value, str) else ""
    return text or None
