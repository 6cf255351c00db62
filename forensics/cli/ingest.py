"""`forensics ingest`: normalise sources into a case that can be queried."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from forensics.cli import budget, inputs
from forensics.cli.progress import reading
from forensics.errors import ExitCode, ForensicsError
from forensics.report.plain import plain

if TYPE_CHECKING:
    from duckdb import DuckDBPyConnection


def ingest(
    paths: Annotated[
        list[Path], typer.Argument(help="A bundle, a directory, or loose files as they were found.", callback=inputs.copied)
    ],
    output: Annotated[Path, typer.Option("--output", "-o", help="DuckDB file to write.")] = Path("case.duckdb"),
    force: Annotated[bool, typer.Option("--force", help="Replace an existing file.")] = False,
    limit: budget.Text = "",
    scheduler: Annotated[
        str | None,
        typer.Option(metavar="ADDRESS", help="Read on a Dask cluster that sees the files: tcp://HOST:8786 of its scheduler."),
    ] = None,
) -> None:
    """Read sources into a case file and say what was understood.

    Example: forensics ingest bundle.tar -o case.duckdb; forensics query case.duckdb "SELECT * FROM operations LIMIT 5"
    """
    from forensics.case.build import open_case

    if output.exists() and not force:
        raise ForensicsError(f"{output} exists; --force replaces it", ExitCode.USAGE)
    unfinished = output.with_name(f".{output.name}.partial")
    unfinished.unlink(missing_ok=True)
    try:
        with budget.allowed(limit), reading() as progress:
            connection = open_case(_seen(paths, scheduler), unfinished, progress, scheduler=scheduler)
        _report(connection)
        connection.close()
        unfinished.replace(output)
    finally:
        unfinished.unlink(missing_ok=True)


def _seen(paths: list[Path], scheduler: str | None) -> list[Path]:
    """The paths as workers elsewhere open them."""
    return paths if scheduler is None else [path.absolute() for path in paths]


def _report(connection: DuckDBPyConnection) -> None:
    """Say what was understood, and warn of what was not."""
    rows = connection.execute(
        "SELECT coalesce(kind, 'not recognised'), status, count(*), sum(rows) FROM sources GROUP BY ALL ORDER BY ALL"
    ).fetchall()
    for kind, status, files, facts in rows:
        typer.echo(f"{kind}\t{status}\t{files} files\t{facts} facts")
    for path, locator, message in connection.execute(
        "SELECT path, locator, message FROM ingest_warnings ORDER BY ALL"
    ).fetchall():
        typer.echo(f"warning: {plain(path or 'input')}{'#' + locator if locator else ''}: {plain(message)}", err=True)
