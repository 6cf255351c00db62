"""What the two forms of an NCCL RAS report share: the words of NCCL, and rows of `ras_ranks` and `ras_reports`."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from forensics.ingest.interface import Batch

IN_PROGRESS = 7
"""ncclInProgress: an initialisation or a non-blocking call that is still going on; not an error."""

_CAPITAL = re.compile(r"(?<=[a-z])(?=[A-Z])")
_COLUMNS = (
    "locator", "communicator", "secondary", "size", "comm_rank", "ranks", "address", "pid", "device", "kind", "launched",
    "status", "init_state", "async_error",
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Group:
    """One communicator of a report: `hash` as 16 hexadecimal digits, `size` its number of ranks where it is stated."""

    hash: str | None = None
    secondary: str | None = None
    size: int | None = None


NO_GROUP = Group()


@dataclass(slots=True)
class Rows:
    """Rows of `ras_ranks`, column by column; `snapshot` is the number of the query."""

    snapshot: int
    _columns: dict[str, list[Any]] = field(default_factory=lambda: {name: [] for name in _COLUMNS})

    def add(self, group: Group, locator: str, **facts: Any) -> None:
        """One row; facts that are not given are null, a row stands for one rank unless `ranks` says otherwise."""
        row = {"locator": locator, "communicator": group.hash, "secondary": group.secondary, "size": group.size, "ranks": 1}
        row |= facts
        for name, column in self._columns.items():
            column.append(row.get(name))

    def batches(self) -> Iterator[Batch]:
        """The rows, when there are any."""
        count = len(self._columns["locator"])
        if count:
            yield Batch("ras_ranks", {**self._columns, "snapshot": [self.snapshot] * count})


def report(snapshot: int, **facts: Any) -> Batch:
    """The row of `ras_reports` for one report."""
    return Batch("ras_reports", {"snapshot": [snapshot], **{name: [value] for name, value in facts.items()}})


def kind_of(name: str) -> str:
    """`AllReduce` as `all_reduce`."""
    return _CAPITAL.sub("_", name).lower()


def hash_of(digits: str) -> str | None:
    """A communicator hash as 16 digits: the JSON form writes it with `0x` and without leading zeros."""
    plain = digits.strip().lower().removeprefix("0x")
    return plain.zfill(16) if 0 < len(plain) <= 16 and set(plain) <= set("0123456789abcdef") else None
