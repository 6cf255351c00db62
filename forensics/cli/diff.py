"""`forensics diff`: what changed between two runs or two incidents."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from forensics.cli import budget, inputs
from forensics.cli.progress import reading
from forensics.cli.terminal import write
from forensics.errors import ExitCode, ForensicsError

if TYPE_CHECKING:
    from forensics.case.comparable import Comparable
    from forensics.model import Verdict


def diff(
    before: Annotated[
        Path,
        typer.Argument(help="A: a bundle, a case, a directory or a file, such as of the good run.", callback=inputs.copied_one),
    ],
    after: Annotated[
        Path, typer.Argument(help="B: the same of the bad run, or of another incident.", callback=inputs.copied_one)
    ],
    output: Annotated[Path | None, typer.Option("--output", "-o", help="Write the report to a file.")] = None,
    form: Annotated[str, typer.Option("--format", help="text or json.")] = "text",
    limit: budget.Text = "",
) -> None:
    """Show what changed from A to B: verdict, versions, environment, configuration, hosts, layout, speed, counters, events.

    What only one of the two has read is listed as not compared. Exit codes: 0 compared, 2 usage, 3 unreadable.

    Example: forensics diff good.tar bad.tar
    """
    import json

    from forensics.report.difference import difference, document, render

    if form not in ("text", "json"):
        raise ForensicsError(f"--format {form}: choose text or json", ExitCode.USAGE)
    with budget.allowed(limit):
        (old, first), (new, second) = _case(before), _case(after)
    found = difference(old, new, (first, second))
    write(json.dumps(document(found), indent=2) if form == "json" else render(found), output)


def _case(path: Path) -> tuple[Comparable, Verdict]:
    from forensics.case.build import open_case
    from forensics.case.comparable import comparable
    from forensics.rules.diagnosis import diagnose

    with reading() as progress:
        connection = open_case([path], None, progress)
    try:
        return comparable(connection), diagnose(connection)
    finally:
        connection.close()
