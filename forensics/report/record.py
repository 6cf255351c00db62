"""Write hypotheses and verdict into the case, so that it is complete and can be queried."""

from __future__ import annotations

from duckdb import DuckDBPyConnection

from forensics.model import Assessment, Verdict
from forensics.report import json


def record(connection: DuckDBPyConnection, verdict: Verdict) -> None:
    """Replace the case's `findings`, `evidence` and `verdict` rows by those of `verdict`."""
    for table in ("findings", "evidence", "verdict"):
        connection.execute(f"DELETE FROM {table}")
    for number, each in enumerate(verdict.assessments):
        _record(connection, number, each)
    connection.execute("INSERT INTO verdict VALUES (?, ?)", [verdict.outcome, json.render(verdict).decode()])


def _record(connection: DuckDBPyConnection, number: int, each: Assessment) -> None:
    observed = each.explains + each.leaves
    share = each.explains / observed if observed else None
    row = [number, " ".join(each.rules), "root", list(each.ranks), each.stage, each.cause, each.confidence, share]
    connection.execute(
        "INSERT INTO findings VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
        [*row, each.explains, each.leaves, each.fault, each.withheld],
    )
    for position, evidence in enumerate(each.evidence):
        connection.execute(
            "INSERT INTO evidence VALUES (?, ?, ?, ?, ?)",
            [number, position, evidence.supports, evidence.statement, evidence.source],
        )
