"""`forensics evaluate`: how often the verdict is right, over simulated jobs drawn from a seed, beside published figures."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from forensics.cli.diagnose import Format
from forensics.cli.progress import counting
from forensics.cli.terminal import write, write_pieces
from forensics.cores import usable_cores
from forensics.errors import ExitCode, ForensicsError

if TYPE_CHECKING:
    from forensics.fixtures.suites.interface import Suite
    from forensics.fixtures.suites.tables import Results


def evaluate(
    suites: Annotated[
        list[str] | None,
        typer.Argument(help="hang slowdown ccl nic several frontier accumulation sharding healthy live (all)."),
    ] = None,
    seed: Annotated[int, typer.Option(min=0, help="Decides every case: another seed is another exam.")] = 0,
    cases: Annotated[int | None, typer.Option(min=1, help="Cases of each suite.")] = None,
    quick: Annotated[bool, typer.Option("--quick", help="A handful of cases, about half a minute on two cores.")] = False,
    full: Annotated[bool, typer.Option("--full", help="As many cases as the suites are meant to have; takes hours.")] = False,
    form: Annotated[Format, typer.Option("--format", "-f", help="Format of the result.")] = Format.TEXT,
    field: Annotated[
        bool, typer.Option("--field", help="Judge each case in three field forms too: as people hand evidence over.")
    ] = False,
    output: Annotated[Path | None, typer.Option("--output", "-o", help="Write the result to a file.")] = None,
    workers: Annotated[int | None, typer.Option(min=1, help="Cases at a time (default: one for each core).")] = None,
    scheduler: Annotated[
        str | None, typer.Option(metavar="ADDRESS", help="Run the cases on a Dask cluster: tcp://HOST:8786 of its scheduler.")
    ] = None,
    resume: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Keep each case there when it ended; those that it has are not run.")
    ] = None,
    replay: Annotated[str | None, typer.Option(help="SUITE:SEED:NUMBER: run this case again and show all of it.")] = None,
    keep: Annotated[Path | None, typer.Option(help="With --replay: leave bundle.tar and truth.json in this folder.")] = None,
) -> None:
    """Evaluate the rules on simulated jobs: cases, scores, published figures, and the methods of the papers' comparisons.

    Each case is diagnosed from its bundle alone. What was not found is listed with the command that runs the case again.

    Example: forensics evaluate hang healthy --seed 3 --cases 20 --resume exam.jsonl
    """
    if replay:
        _replay(replay, keep, field)
        return
    if keep or (quick and full) or (scheduler and workers):
        message = "--keep goes with --replay, --quick not with --full, and --workers not with --scheduler"
        raise ForensicsError(message, ExitCode.USAGE)
    from forensics.fixtures.suites import exam
    from forensics.fixtures.suites.registry import chosen
    from forensics.fixtures.suites.results import opened

    found = chosen(suites or [])
    listed = exam.listed(found, seed, [_count(suite, cases, quick, full) for suite in found])
    where = exam.Where(workers or usable_cores(), scheduler)
    with opened(resume, in_field=field) as rows:
        with counting("cases", "MofNCompleteColumn", "TimeRemainingColumn") as advance:
            report = lambda done, total: advance(completed=done, total=total)  # noqa: E731
            results = exam.run(listed, rows, where, report, in_field=field)
        chosen_cases = f" --cases {cases}" if cases else " --quick" if quick else " --full" if full else ""
        command = " ".join(["forensics evaluate", *(suites or []), f"--seed {seed}"]) + chosen_cases
        _show(results, seed, form, command + (" --field" if field else ""), output)


def _count(suite: Suite, cases: int | None, quick: bool, full: bool) -> int:
    if suite.missing():
        return 0
    return cases or (suite.quick if quick else suite.full if full else suite.standard)


def _show(results: Results, seed: int, form: Format, command: str, output: Path | None) -> None:
    from forensics.fixtures.suites import documents, tables

    if form is Format.MARKDOWN:
        write(tables.markdown(results, command), output)
    elif form is Format.TEXT:
        write(tables.text(results), output)
    else:
        write_pieces(documents.pieces(results, seed), output)


def _json(found: Any) -> str:
    import json

    return json.dumps(found, indent=1) + "\n"


def _replay(text: str, keep: Path | None, field: bool) -> None:
    from dataclasses import asdict

    from forensics.fixtures.suites.interface import Case
    from forensics.fixtures.suites.registry import chosen
    from forensics.fixtures.suites.running import run_case

    case = Case.parse(text)
    suite = chosen([case.suite])[0]
    if suite.missing():
        raise ForensicsError(f"{suite.name}: {suite.missing()}", ExitCode.USAGE)
    if keep:
        keep.mkdir(parents=True, exist_ok=True)
        if (keep / "bundle.tar").exists():
            raise ForensicsError(f"{keep / 'bundle.tar'} exists", ExitCode.USAGE)
    row = run_case(case, keep, in_field=field)
    typer.echo(_json({**asdict(row), "case": str(case)}).rstrip("\n"))
    if keep:
        typer.echo(f"kept {keep / 'bundle.tar'}, next: forensics diagnose {keep / 'bundle.tar'}", err=True)
