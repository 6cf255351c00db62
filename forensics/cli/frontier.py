"""`forensics frontier`: where the time of the steps went, by rank and stage."""

from __future__ import annotations

import os
from enum import StrEnum
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from forensics.cli import inputs
from forensics.cli.progress import reading
from forensics.cli.terminal import columns, save, write
from forensics.errors import ExitCode, ForensicsError

if TYPE_CHECKING:
    from forensics.model import Verdict


class Form(StrEnum):
    """Forms of the output."""

    TEXT = "text"
    JSON = "json"
    SVG = "svg"


def frontier(
    paths: Annotated[
        list[Path],
        typer.Argument(help="Recorded stages or traces: a folder, a bundle, files, a packet.", callback=inputs.copied),
    ],
    form: Annotated[Form, typer.Option("--format", "-f", help="text, json, or svg (a heatmap).")] = Form.TEXT,
    output: Annotated[Path | None, typer.Option("--output", "-o", help="Write to a file.")] = None,
    packet: Annotated[
        Path | None, typer.Option(help="Also write the stages of all ranks into one small file to attach.")
    ] = None,
    packet_steps: Annotated[int, typer.Option(help="Newest steps of each rank that go into the packet.")] = 120,
    names: Annotated[Path | None, typer.Option(help="TOML file with names of stages (see docs/frontier.md).")] = None,
    thresholds: Annotated[Path | None, typer.Option(help="TOML file that overrides thresholds of rules.")] = None,
    all_ranks: Annotated[bool, typer.Option("--all-ranks", help="Never shorten lists of ranks.")] = False,
) -> None:
    """Account for the time of training steps: by stage exactly, and which rank the group lost time to.

    Example: forensics frontier stages/ --packet job.stages.gz
    """
    if names is not None:
        os.environ["FORENSICS_STAGE_NAMES"] = str(names.resolve())
    from forensics.case.build import open_case
    from forensics.report.packet import write_packet
    from forensics.rules.diagnosis import diagnose
    from forensics.rules.engine import read_thresholds

    overrides = read_thresholds(thresholds) if thresholds else {}
    with reading() as progress:
        connection = open_case(paths, None, progress)
    verdict = diagnose(connection, overrides)
    if not verdict.frontier:
        raise ForensicsError(
            "no stages of steps in this input (see docs/frontier.md for how to record them)", ExitCode.UNREADABLE
        )
    if packet is not None:
        save(packet, write_packet(connection, packet_steps))
    connection.close()
    write(_render(verdict, form, output, all_ranks), output)


def _render(verdict: Verdict, form: Form, output: Path | None, all_ranks: bool) -> str:
    import orjson

    from forensics.report import frontier as windows
    from forensics.report import frontier_svg, outline, text

    if form is Form.JSON:
        return orjson.dumps(windows.document(verdict.frontier), option=orjson.OPT_INDENT_2).decode()
    if form is Form.SVG:
        return frontier_svg.render(verdict.frontier)
    sections = [part for part in outline.sections(verdict, all_ranks) if part.title == "STAGES"]
    warnings = [part for part in outline.sections(verdict, all_ranks) if part.title == "COULD NOT BE READ"]
    return "\n".join(
        "\n".join((part.title, *chain.from_iterable(text.body(part, columns(output))))) for part in (*sections, *warnings)
    )
