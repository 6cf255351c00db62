"""`forensics verify`: whether a bundle is what was collected."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from forensics.cli import budget, inputs
from forensics.errors import ExitCode, ForensicsError


def verify(
    bundle: Annotated[Path, typer.Argument(help="A bundle, as a file or as a directory.", callback=inputs.copied_one)],
    strict: Annotated[bool, typer.Option("--strict", help="Exit 5 for gaps of the collection, too.")] = False,
    form: Annotated[str, typer.Option("--format", help="text or json.")] = "text",
    limit: budget.Text = "",
) -> None:
    """Check the checksums of a bundle, the form of its manifest, and whether all that it names is there.

    An error is damage: changed, cut, missing or foreign members. A gap is what the collection itself says it could not take.
    Exit codes: 0 whole, 3 unreadable, 5 errors found (with --strict: gaps too).

    Example: forensics verify bundle.tar
    """
    import json
    from dataclasses import asdict

    from forensics.bundle.reader import open_bundle
    from forensics.bundle.verification import Weight
    from forensics.bundle.verification import verify as check
    from forensics.report.plain import plain

    if form not in ("text", "json"):
        raise ForensicsError(f"--format {form}: choose text or json", ExitCode.USAGE)
    with budget.allowed(limit):
        opened = open_bundle([bundle])
        found = check(opened)
    errors = sum(1 for one in found if one.weight is Weight.ERROR)
    if form == "json":
        rows = [asdict(one) for one in found]
        typer.echo(json.dumps({"schema": "forensics.verification/1", "sha256": opened.sha256, "findings": rows}, indent=2))
    else:
        for one in found:
            typer.echo(plain(f"{one.weight.value:<6}{one.path or bundle}: {one.message}"))
        typer.echo(f"{len(opened.artefacts)} members, {errors} errors, {len(found) - errors} gaps, sha256 {opened.sha256}")
    if errors or (strict and found):
        raise typer.Exit(ExitCode.PARTIAL)
