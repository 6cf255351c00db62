"""Write findings and verdict into the case, so that it is complete and can be queried."""

from __future__ import annotations

from duckdb import DuckDBPyConnection

from forensics.model import Verdict
from forensics.report import json


def record(connection: DuckDBPyConnection, verdict: Verdict) -> None:
    """Replace the case's `findings`, `evidence` and `verdict` rows by those of `verdict`."""
    for table in ("findings", "evidence", "verdict"):
        connection.execute(f"DELETE FROM {table}")
    for number, suspect in enumerate(verdict.suspects):
        connection.execute(
            "INSERT INTO findings VALUES (?, ?, 'root', ?, ?, ?, ?, ?)",
            [
                number,
                " ".join(suspect.rules),
                list(suspect.ranks),
                suspect.stage.name,
                suspect.cause,
                suspect.confidence,
                1.0 / (number + 1),
            ],
        )
        for position, evidence in enumerate(suspect.evidence):
            connection.execute(
                "INSERT INTO evidence VALUES (?, ?, ?, ?, ?)",
                [number, position, evidence.supports, evidence.statement, evidence.source],
            )
    connection.execute("INSERT INTO verdict VALUES (?, ?)", [verdict.outcome, json.render(verdict).decode()])
