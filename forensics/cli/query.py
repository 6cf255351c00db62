"""`forensics query`: SQL on the facts of a case."""

from __future__ import annotations

import csv
import io
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any

import typer

from forensics.cli import inputs
from forensics.errors import ExitCode, ForensicsError


class Rows(StrEnum):
    """Forms of a result."""

    TABLE = "table"
    CSV = "csv"
    JSON = "json"


def query(
    case: Annotated[Path, typer.Argument(help="A case file, or anything `diagnose` takes.", callback=inputs.copied_one)],
    sql: Annotated[str, typer.Argument(help="One SQL statement; tables and columns are in docs/case.md.")],
    form: Annotated[Rows, typer.Option("--format", "-f", help="Form of the result.")] = Rows.TABLE,
) -> None:
    """Run SQL on the facts of a case.

    Example: forensics query case.duckdb "SELECT rank, max(sequence) FROM operations GROUP BY rank"
    """
    import duckdb

    from forensics.case.build import open_case

    if not sql.strip(" ;\n\t"):
        raise ForensicsError("SQL: there is no statement", ExitCode.USAGE)
    connection = open_case([case])
    try:
        cursor = connection.execute(sql)
        names = [column[0] for column in cursor.description or ()]
        rows = cursor.fetchall()
    except duckdb.Error as error:
        raise ForensicsError(f"SQL: {error}", ExitCode.USAGE) from error
    typer.echo(_FORMS[form](names, rows).rstrip("\n"))


def _table(names: list[str], rows: list[tuple[Any, ...]]) -> str:
    from forensics.report.plain import plain

    cells = [names, *[[plain("" if value is None else str(value)) for value in row] for row in rows]]
    widths = [max(len(row[i]) for row in cells) for i in range(len(names))]
    return "\n".join("  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in cells)


def _csv(names: list[str], rows: list[tuple[Any, ...]]) -> str:
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerows([names, *rows])
    return text.getvalue()


def _json(names: list[str], rows: list[tuple[Any, ...]]) -> str:
    import orjson

    return orjson.dumps([dict(zip(names, row, strict=True)) for row in rows], default=str, option=orjson.OPT_INDENT_2).decode()


_FORMS = {Rows.TABLE: _table, Rows.CSV: _csv, Rows.JSON: _json}
