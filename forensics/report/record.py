"""Write hypotheses and verdict into the case, so that it is complete and can be queried."""

from __future__ import annotations

from duckdb import DuckDBPyConnection

from forensics.case.database import insert_rows
from forensics.model import Assessment, AxisRow, Verdict
from forensics.report import json


def record(connection: DuckDBPyConnection, verdict: Verdict) -> None:
    """Replace the case's `findings`, `evidence`, `communicator_roles` and `verdict` rows by those of `verdict`."""
    for table in ("findings", "evidence", "communicator_roles", "verdict"):
        connection.execute(f"DELETE FROM {table}")
    for number, each in enumerate(verdict.assessments):
        _record(connection, number, each)
    rows = [(label, row.axis, row.method, row.confidence) for row in _axes(verdict) for label in row.communicators]
    insert_rows(connection, "communicator_roles", "communicator role method confidence", sorted(rows))
    connection.execute("INSERT INTO verdict VALUES (?, ?)", [verdict.outcome, json.render(verdict).decode()])


def _axes(verdict: Verdict) -> tuple[AxisRow, ...]:
    return verdict.layout.axes if verdict.layout else ()


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
