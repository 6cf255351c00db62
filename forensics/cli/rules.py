"""`forensics rules`: the list of rules."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from forensics.errors import ExitCode, ForensicsError

if TYPE_CHECKING:
    from forensics.rules.interface import Rule


def rules(form: Annotated[str, typer.Option("--format", help="text or json.")] = "text") -> None:
    """List all rules with what they conclude, and whether they are stable or incubating.

    Only what a stable rule says may be confirmed.

    Example: forensics rules
    """
    from forensics.rules.engine import discover

    if form not in ("text", "json"):
        raise ForensicsError(f"--format {form}: choose text or json", ExitCode.USAGE)
    if form == "json":
        typer.echo(_json(discover()))
        return
    for rule in discover():
        typer.echo(f"{rule.code}  {rule.name:<24}{rule.maturity:<12}{rule.concludes}")


def _json(found: tuple[Rule, ...]) -> str:
    """All rules as one document."""
    import json

    rows = [
        {
            "code": rule.code,
            "name": rule.name,
            "maturity": rule.maturity,
            "concludes": rule.concludes,
            "needs": [need.kind for need in rule.needs],
            "thresholds": {threshold.name: threshold.default for threshold in rule.thresholds},
        }
        for rule in found
    ]
    return json.dumps({"schema": "forensics.rules/1", "rules": rows}, indent=2)
