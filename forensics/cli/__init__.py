"""The command line: one module for each command, imported when it runs."""

from __future__ import annotations

import gc
import inspect
import re
import sys
import tempfile
import traceback
from pathlib import Path
from typing import Annotated

import typer

from forensics import __version__
from forensics.cli import (
    collect,
    diagnose,
    diff,
    doctor,
    evaluate,
    explain,
    frontier,
    ingest,
    merge,
    nic_sample,
    query,
    recorder,
    redact,
    rules,
    shim,
    show,
    simulate,
    summarize,
    timeline,
    verify,
    watch,
)
from forensics.errors import ExitCode, ForensicsError

_OBJECTS_BEFORE_COLLECTION = 100_000


def _paragraphs(text: str) -> str:
    """The text without the line ends of its source: a terminal wraps each paragraph to its own width."""
    return re.sub(r"(?<!\n)\n(?!\n)", " ", inspect.cleandoc(text))


app = typer.Typer(
    name="forensics",
    help="Post-mortem forensics for hung or slow distributed training: which rank, which stage, why.",
    epilog="Example: forensics collect -o bundle.tar; forensics diagnose bundle.tar",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)
for command in (
    collect.collect,
    merge.merge,
    summarize.summarize,
    diagnose.diagnose,
    ingest.ingest,
    query.query,
    show.show,
    frontier.frontier,
    recorder.recorder,
    timeline.timeline,
    diff.diff,
    redact.redact,
    verify.verify,
    explain.explain,
    rules.rules,
    simulate.simulate,
    evaluate.evaluate,
    doctor.doctor,
    watch.watch,
    nic_sample.nic_sample,
):
    app.command(help=_paragraphs(command.__doc__ or ""))(command)
app.add_typer(shim.app, name="shim")


def _version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"forensics {__version__}")
        raise typer.Exit


@app.callback()
def options(
    version: Annotated[
        bool, typer.Option("--version", "-V", callback=_version, is_eager=True, help="Print the version.")
    ] = False,
) -> None:
    """Post-mortem forensics for hung or slow distributed training: which rank, which stage, why."""


def main() -> None:
    """Run the command line; errors of use are one line, internal ones leave a crash log and exit code 1."""
    # Nearly all that is made while modules are imported stays, and to look through it again and again takes a twentieth of it.
    gc.set_threshold(_OBJECTS_BEFORE_COLLECTION)
    try:
        app()
    except ForensicsError as error:
        typer.echo(f"forensics: {error.message}", err=True)
        sys.exit(error.code)
    except BrokenPipeError:
        sys.stderr.close()
        sys.exit(ExitCode.ANALYSED)
    except Exception:
        typer.echo(f"forensics: internal error, please report it with {_crash_log()}", err=True)
        sys.exit(ExitCode.INTERNAL)


def _crash_log() -> Path:
    """Write the traceback to a file: a terminal or a ticket must not show it (it may hold values of the job)."""
    with tempfile.NamedTemporaryFile("w", prefix="forensics-crash-", suffix=".log", delete=False, encoding="utf-8") as log:
        traceback.print_exc(file=log)
    return Path(log.name)
