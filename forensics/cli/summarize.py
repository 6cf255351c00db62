"""`forensics summarize`: one small file, for a fleet, of what lies on a node."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from forensics.cli import inputs
from forensics.errors import ExitCode, ForensicsError

_SHOWN = 20


def summarize(
    paths: Annotated[
        list[Path], typer.Argument(help="Dumps, stages, stacks, logs of NCCL calls, or bundles.", callback=inputs.copied)
    ],
    output: Annotated[Path, typer.Option("-o", "--output", help="Summary to write; several are joined by concatenation.")],
    short: Annotated[
        bool,
        typer.Option("--short", help="Only the end of the calls of ranks whose steps are recorded: for many thousand ranks."),
    ] = False,
    force: Annotated[bool, typer.Option("--force", help="Replace an existing summary.")] = False,
) -> None:
    """Keep the rows of dumps, stages, stacks and logs of NCCL calls: small enough to ship from every node of a fleet.

    A short summary can name a rank, with less confidence, that a longer record of calls does not single out.

    Exit codes: 0 written, 2 usage, 3 unreadable, 6 nothing of it can be summarised.

    Example: forensics summarize /scratch/job/stages /tmp/nccl_trace_rank_* -o node1.summary; forensics diagnose *.summary
    """
    from forensics.case.summaries.writing import write_summary

    if output.exists() and not force:
        raise ForensicsError(f"{output} exists; --force replaces it", ExitCode.USAGE)
    written, left = write_summary(paths, output, short)
    if left:
        more = f" and {len(left) - _SHOWN} more" if len(left) > _SHOWN else ""
        typer.echo(f"not in the summary: {', '.join(left[:_SHOWN])}{more}", err=True)
    if not written:
        output.unlink()
        raise ForensicsError("nothing of it can be summarised", ExitCode.NOTHING_COLLECTED)
    typer.echo(f"{output}: {written} sections, {output.stat().st_size} bytes")
