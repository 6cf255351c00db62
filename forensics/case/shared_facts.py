"""Tables whose rows are named by their content: whichever artefacts bring a row, a case keeps it once."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from forensics.ingest._shared.packed import PackedBatch, pack
from forensics.ingest.interface import Batch

SHARED = {"frames": "frame", "call_paths": "call_path"}
"""Each such table, with the column that is the hash of a row's content."""


@dataclass(slots=True)
class Met:
    """The rows of shared tables that were met so far."""

    _keys: dict[str, set[int]] = field(default_factory=lambda: {table: set() for table in SHARED})
    _newest: dict[str, Batch | PackedBatch] = field(default_factory=dict)

    def without_known(self, batches: Sequence[Batch | PackedBatch]) -> list[Batch | PackedBatch]:
        """The batches, those of shared tables with only the rows that no batch before them had, and not one again."""
        new = [batch for batch in batches if self._newest.get(batch.table) is not batch]
        self._newest |= {batch.table: batch for batch in new if batch.table in SHARED}
        return [self.fresh(batch) if batch.table in SHARED else batch for batch in new]

    def fresh(self, batch: Batch | PackedBatch) -> PackedBatch:
        """A batch of a shared table with only the rows that no batch before it had; rows of one call path come together."""
        packed = {name: pack(values, "BIGINT") for name, values in batch.columns.items()}
        keys: list[int] = packed[SHARED[batch.table]].expanded().tolist()
        known = self._keys[batch.table]
        new = set(keys) - known
        rows = [index for index, key in enumerate(keys) if key in new] if new else []
        known |= new
        columns: dict[str, Any] = {name: column.taken(rows) for name, column in packed.items()}
        return PackedBatch(batch.table, columns)
