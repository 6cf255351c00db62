"""`forensics diagnose`: from whatever survived to one ranked verdict."""

from __future__ import annotations

from enum import StrEnum
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, NamedTuple

import typer

from forensics.cli import budget, inputs
from forensics.cli.progress import reading
from forensics.cli.terminal import colours, columns, write
from forensics.errors import ExitCode, ForensicsError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from duckdb import DuckDBPyConnection

    from forensics.model import Verdict
    from forensics.report.rates import RateCurves
    from forensics.rules.engine import Overrides


class Format(StrEnum):
    """Forms of the report."""

    TEXT = "text"
    JSON = "json"
    MARKDOWN = "markdown"
    HTML = "html"
    JSONL = "jsonl"
    SARIF = "sarif"
    SVG = "svg"


Evidence = Annotated[
    list[Path],
    typer.Argument(
        help="A bundle, a case, a directory, loose files, or - for a log on standard input.", callback=inputs.copied
    ),
]
Configuration = Annotated[
    Path | None,
    typer.Option(help="Configuration of the training (JSON, TOML, YAML, log or start script): sizes of groups, microbatches."),
]
Baseline = Annotated[
    Path | None,
    typer.Option(
        help="A bundle or case of the same job when it was good: how long its steps took.", callback=inputs.copied_one
    ),
]

VERDICT_LINES = 3


class Extent(NamedTuple):
    """How much of the verdict is shown."""

    all_ranks: bool
    why: bool
    verbose: bool
    quiet: bool


class _Asked(NamedTuple):
    """What a diagnosis is made from; `is_whole`: nothing of the evidence is left out."""

    paths: Sequence[Path]
    names: Mapping[Path, str]
    case: Path | None
    overrides: Overrides
    config: Path | None
    is_whole: bool


def diagnose(
    paths: Evidence,
    form: Annotated[
        Format,
        typer.Option(
            "--format", "-f", help="Form of the report; html is one page, svg the passes of a pipeline, or who waits."
        ),
    ] = Format.TEXT,
    output: Annotated[Path | None, typer.Option("--output", "-o", help="Write the report to a file.")] = None,
    case: Annotated[Path | None, typer.Option("--case", help="Keep the store in this DuckDB file (see `query`).")] = None,
    thresholds: Annotated[Path | None, typer.Option(help="TOML file that overrides thresholds of rules.")] = None,
    config: Configuration = None,
    baseline: Baseline = None,
    width: Annotated[int | None, typer.Option(help="Columns of the text report (default: the terminal's, else 100).")] = None,
    all_ranks: Annotated[bool, typer.Option("--all-ranks", help="Never shorten lists of ranks.")] = False,
    max_bytes: Annotated[
        int | None, typer.Option(help="Cut the markdown report to this size, least important parts first, for trackers.")
    ] = None,
    why: Annotated[
        bool, typer.Option("--why", help="Show what was observed, and what every hypothesis explains and leaves.")
    ] = False,
    verbose: Annotated[
        bool, typer.Option("--verbose", "-v", help="Show timeline, ruled out, not evaluated and coverage as well.")
    ] = False,
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="Show the three lines of the verdict only.")] = False,
    limit: budget.Text = "",
    full: Annotated[
        bool, typer.Option("--full", help="Read all of large logs and dumps; of a job that halted their end is read else.")
    ] = False,
    exit_code: Annotated[
        bool, typer.Option("--exit-code", help="Exit 10: culprit named, 11: suspects only, 12: no hang seen.")
    ] = False,
) -> None:
    """Diagnose a hung or slow job: which rank, which training stage, why, with evidence.

    Example: forensics diagnose bundle.tar --format markdown -o ticket.md, or kubectl logs POD | forensics diagnose -
    """
    from forensics.report.record import record
    from forensics.rules.engine import read_thresholds

    if max_bytes is not None and form is not Format.MARKDOWN:
        raise ForensicsError(f"--max-bytes is for --format markdown; {form} is not cut", ExitCode.USAGE)
    overrides = read_thresholds(thresholds) if thresholds else {}
    with budget.allowed(limit):
        with inputs.with_standard_input(paths) as (found, names):
            # A case that is kept holds everything.
            asked = _Asked(found, names, case, overrides, config, is_whole=full or case is not None)
            connection, verdict = _diagnosed(asked)
        verdict = verdict if baseline is None else _against(connection, verdict, baseline)
    record(connection, verdict)
    shows_rates = form is Format.HTML or (form is Format.TEXT and not quiet)
    curves = _curves(connection, verdict, form is Format.HTML) if shows_rates else None
    connection.close()
    shown = _render(verdict, form, Extent(all_ranks, why, verbose, quiet), width, max_bytes, output, curves)
    write(shown, output)
    raise typer.Exit(_code(verdict, exit_code))


def _diagnosed(asked: _Asked) -> tuple[DuckDBPyConnection, Verdict]:
    """The case and its verdict: by the ends of large histories where they suffice, else by all of them."""
    from forensics.case.build import open_case
    from forensics.case.configuration import add_configuration
    from forensics.rules.diagnosis import diagnose as decide
    from forensics.rules.history import history_needed, is_enough

    judge = None if asked.is_whole else partial(history_needed, overrides=asked.overrides)
    with reading() as progress:
        connection = open_case(asked.paths, asked.case, progress, asked.names, judge=judge)
    if asked.config is not None:
        add_configuration(connection, asked.config)
    verdict = decide(connection, asked.overrides)
    if asked.is_whole or is_enough(connection, verdict):
        return connection, verdict
    connection.close()
    return _diagnosed(asked._replace(is_whole=True))


def _against(connection: DuckDBPyConnection, verdict: Verdict, baseline: Path) -> Verdict:
    """The verdict held against a good run of the same job."""
    from forensics.case.build import open_case
    from forensics.rules.baseline import against, paced
    from forensics.rules.diagnosis import diagnose as decide

    with reading() as progress:
        good = open_case([baseline], None, progress)
    try:
        return against(verdict, paced(connection), decide(good), paced(good))
    finally:
        good.close()


def _render(
    verdict: Verdict,
    form: Format,
    extent: Extent,
    width: int | None,
    max_bytes: int | None,
    output: Path | None,
    curves: RateCurves | None,
) -> str:
    from forensics.report import json, jsonl, markdown, sarif, text
    from forensics.report.page import document
    from forensics.report.rates import NO_CURVES

    if form is Format.JSON:
        return json.render(verdict).decode()
    if form is Format.JSONL:
        return jsonl.render(verdict).decode()
    if form is Format.SARIF:
        return sarif.render(verdict).decode()
    if form is Format.MARKDOWN:
        return markdown.render(verdict, max_bytes, extent.all_ranks, extent.why)
    if form is Format.SVG:
        return _drawn(verdict)
    rates = curves or NO_CURVES
    if form is Format.HTML:
        return document.render(verdict, rates, extent.all_ranks)
    wide, colour = width or columns(output), colours(output)
    shown = text.render(verdict, wide, colour, extent.all_ranks, extent.why, extent.verbose, rates)
    return "\n".join(shown.splitlines()[:VERDICT_LINES]) if extent.quiet else shown


def _curves(connection: DuckDBPyConnection, verdict: Verdict, with_operators: bool) -> RateCurves:
    """What NICs sent and received, those of the suspects first."""
    from forensics.report.rates import rate_curves
    from forensics.rules.engine import supply_of
    from forensics.rules.reductions.epochs.operators import NicOperators

    operators = supply_of(connection).get(NicOperators) if with_operators else None
    return rate_curves(connection, {rank for suspect in verdict.suspects for rank in suspect.ranks}, operators)


def _drawn(verdict: Verdict) -> str:
    """The critical path of the slowest step, else the incomplete graph of a pipeline that stopped, else who waits for whom."""
    from forensics.report import drawing, halt_svg, path_svg, wait_graph

    path, graph = verdict.critical_path, verdict.incomplete_graph
    passes = path_svg.drawn(path) if path else halt_svg.drawn(graph) if graph else None
    found = passes or wait_graph.drawn(verdict)
    if found is None:
        raise ForensicsError("nothing to draw: no rank is known to wait, and no pass was dated", ExitCode.INSUFFICIENT)
    return drawing.alone(found)


def _code(verdict: Verdict, wanted: bool) -> ExitCode:
    from forensics.model import Outcome
    from forensics.rules.diagnosis import culprit_named

    if verdict.outcome is Outcome.INCONCLUSIVE:
        return ExitCode.INSUFFICIENT
    if not wanted:
        return ExitCode.ANALYSED
    if verdict.outcome is Outcome.HEALTHY:
        return ExitCode.NO_HANG
    return ExitCode.CULPRIT if culprit_named(verdict.suspects) else ExitCode.SUSPECTS
