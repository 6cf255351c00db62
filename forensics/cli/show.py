"""`forensics show`: open the place that a line of evidence names."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from forensics.cli import inputs
from forensics.errors import ExitCode, ForensicsError


def show(
    bundle: Annotated[Path, typer.Argument(help="A bundle, a directory or a file.", callback=inputs.copied_one)],
    source: Annotated[
        str | None, typer.Argument(help="Source of an evidence line, PATH#LOCATOR; without it, list the artefacts.")
    ] = None,
) -> None:
    """Show the artefact, or the entry, thread or line of it, that a report points at.

    Example: forensics show bundle.tar 'ranks/2/fr/0.json#entry=41'
    """
    from forensics.bundle.reader import open_bundle
    from forensics.case.sections import with_sections
    from forensics.ingest.excerpt import excerpt
    from forensics.ingest.interface import Problem
    from forensics.report.plain import plain

    opened = open_bundle([bundle])
    if source is None:
        for artefact in opened.artefacts:
            typer.echo(f"{artefact.stored_bytes:>12}  {plain(artefact.path)}")
        return
    path, locator = _parted(source)
    pasted = with_sections(opened.artefacts) if opened.kind == "files" else ()
    found = next((artefact for artefact in (*opened.artefacts, *pasted) if artefact.path == path), None)
    if found is None:
        raise ForensicsError(f"{bundle} has no artefact {path!r}; `forensics show {bundle}` lists them", ExitCode.USAGE)
    if found.summary is not None:
        raise ForensicsError(f"{path}: only a summary of it is there, in {found.summary}: `forensics query` shows its rows")
    text = excerpt(found, locator)
    if isinstance(text, Problem):
        raise ForensicsError(f"{path}: {text.message}", ExitCode.UNREADABLE)
    for line in text.split("\n"):
        typer.echo(plain(line))


def _parted(source: str) -> tuple[str, str | None]:
    """Split PATH#LOCATOR; a locator has the form `word=number`, a duplicate member's name ends in `#2`."""
    path, mark, locator = source.rpartition("#")
    return (path, locator) if mark and "=" in locator else (source, None)
