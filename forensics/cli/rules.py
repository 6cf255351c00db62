"""`forensics rules`: the list of rules."""

from __future__ import annotations

import typer


def rules() -> None:
    """List all rules with what they conclude.

    Example: forensics rules
    """
    from forensics.rules.engine import discover

    for rule in discover():
        typer.echo(f"{rule.code}  {rule.name:<24}{rule.concludes}")
