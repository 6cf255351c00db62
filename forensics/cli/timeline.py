"""`forensics timeline`: the time around the stall as a small trace for Perfetto."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from forensics.cli import budget, inputs
from forensics.cli.progress import reading
from forensics.cli.terminal import save
from forensics.errors import ExitCode, ForensicsError

_SECOND = 1_000_000_000


def timeline(
    paths: Annotated[list[Path], typer.Argument(help="A bundle, a case, a directory or loose files.", callback=inputs.copied)],
    output: Annotated[Path, typer.Option("--output", "-o", help="JSON file to write; open it in ui.perfetto.dev.")],
    ranks: Annotated[
        str | None, typer.Option("--ranks", help="Ranks to show, 0-3,7 (default: suspects, victims and others, 32 in all).")
    ] = None,
    before: Annotated[float, typer.Option(min=0.0, max=86_400.0, help="Seconds before the stall.")] = 10.0,
    after: Annotated[float, typer.Option(min=0.0, max=86_400.0, help="Seconds from the begin of the stall on.")] = 30.0,
    most: Annotated[int, typer.Option("--max-events", min=100, max=1_000_000, help="Events at most.")] = 50_000,
    limit: budget.Text = "",
) -> None:
    """Write the time around the stall as a trace: a process a rank, arrows from those waited for to those that wait.

    Example: forensics timeline bundle.tar -o stall.json
    """
    from forensics.case.build import open_case
    from forensics.report import trace, trace_window
    from forensics.rules.diagnosis import diagnose

    asked = _asked(ranks)
    with budget.allowed(limit):
        with reading() as progress:
            connection = open_case(paths, None, progress)
        verdict = diagnose(connection)
        clocks = trace_window.alignment(connection)
        span = trace_window.window(connection, verdict, clocks, int(before * _SECOND), int(after * _SECOND))
        shown = trace_window.ranks_shown(connection, verdict, asked)
        if span is None or not shown:
            why = "none of these ranks" if asked is not None and not shown else _UNDATED
            raise ForensicsError(why, ExitCode.UNREADABLE)
        content = trace.render(connection, verdict, shown, span, clocks, most)
    connection.close()
    save(output, content)
    length = (span.end_ns - span.begin_ns) / _SECOND
    typer.echo(f"wrote {output} ({len(content) // 1024} KiB): {len(shown)} ranks, {length:.1f} s; open it in ui.perfetto.dev")


_UNDATED = "nothing in this input is dated: a timeline shows calls of Flight Recorder dumps, collector logs or traces"


def _asked(ranks: str | None) -> frozenset[int] | None:
    from forensics.rank_ranges import parse_ranks

    if ranks is None:
        return None
    try:
        return parse_ranks(ranks)
    except ValueError as error:
        raise ForensicsError(f"--ranks: {error}", ExitCode.USAGE) from error
