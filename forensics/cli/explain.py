"""`forensics explain`: the page of a rule."""

from __future__ import annotations

from typing import Annotated

import typer

from forensics.errors import ExitCode, ForensicsError


def explain(code: Annotated[str, typer.Argument(help="Code or name of a rule, as a report shows it.")]) -> None:
    """Print the page of a rule: what it finds, what it needs, its thresholds, what it is confused with.

    Example: forensics explain FX110
    """
    from forensics.rules.engine import discover, find, page

    rule = find(code)
    if rule is None:
        known = ", ".join(found.code for found in discover())
        raise ForensicsError(f"no rule {code!r}; there are {known}", ExitCode.USAGE)
    typer.echo(page(rule).rstrip("\n"))
