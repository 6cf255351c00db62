"""Reads bytes the way a case does, and gives the rows back by table."""

from __future__ import annotations

import io
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from forensics.bundle.artefact import Artefact
from forensics.ingest import SNIFF_BYTES, choose
from forensics.ingest._job_logs.reading import rows as job_log_rows
from forensics.ingest.interface import Batch, Identity, Item, Problem

SAMPLES = Path(__file__).parents[3] / "fixtures" / "samples"


class Result:
    """What an ingester gave."""

    def __init__(self, ingester: str, items: Sequence[Item]) -> None:
        self.ingester = ingester
        self.problems = [item for item in items if isinstance(item, Problem)]
        self.identities = [item for item in items if isinstance(item, Identity)]
        self._batches = [item for item in items if isinstance(item, Batch)]

    def rows(self, table: str) -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = []
        for batch in self._batches:
            if batch.table == table:
                columns = batch.columns.values()
                found += [dict(zip(batch.columns, row, strict=True)) for row in zip(*columns, strict=True)]
        return found

    def row(self, table: str, **where: Any) -> dict[str, Any]:
        (found,) = [row for row in self.rows(table) if all(row[key] == value for key, value in where.items())]
        return found

    def config(self) -> dict[str, str]:
        return {row["key"]: row["value"] for row in self.rows("job_config")}

    def stack(self, call_path: int) -> list[tuple[str, str, int | None]]:
        frames = {row["frame"]: (row["name"], row["filename"], row["line"]) for row in self.rows("frames")}
        rows = [row for row in self.rows("call_paths") if row["call_path"] == call_path]
        return [frames[row["frame"]] for row in sorted(rows, key=lambda row: int(row["depth"]))]


def read(content: bytes, path: str = "file", **known: Any) -> Result:
    """Read bytes as a file of this path, by the ingester that is chosen for them."""
    artefact = Artefact(path, len(content), lambda: io.BytesIO(content), **known)
    ingester = choose(content[:SNIFF_BYTES], path)
    assert ingester is not None, "no ingester knows this"
    found = list(ingester.rows(artefact))
    if ingester.rows is job_log_rows:
        assert found == list(job_log_rows(artefact, is_selective=False)), "lines were passed over that mean something"
    return Result(ingester.name, found)


def sample(name: str, **known: Any) -> Result:
    """Read a file of fixtures/samples."""
    return read((SAMPLES / name).read_bytes(), name, **known)
