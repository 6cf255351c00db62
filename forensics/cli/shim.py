"""`forensics shim`: start a job under the collector, and look at the logs it writes."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from forensics.errors import ExitCode, ForensicsError

if TYPE_CHECKING:
    from forensics.shim.launch import Choices
    from forensics.shim.status import LogStatus

app = typer.Typer(
    help="The collector inside the ranks: switch it on, read its logs.",
    epilog="Example: forensics shim run -- torchrun --nproc-per-node 8 train.py; forensics shim status",
    no_args_is_help=True,
)

Folder = Annotated[Path | None, typer.Option("--dir", help="Folder of the logs (default: /dev/shm/forensics-UID).")]
JobName = Annotated[str | None, typer.Option("--job", help="Name of the job, a folder below it (default: by the launcher).")]
Size = Annotated[int | None, typer.Option("--bytes", min=1 << 20, max=256 << 20, help="Size of a log (default: 8388608).")]
Preload = Annotated[bool, typer.Option("--preload/--no-preload", help="Hook the NCCL functions and verbs (LD_PRELOAD).")]
Profiler = Annotated[bool, typer.Option("--profiler/--no-profiler", help="Be NCCL's profiler plugin (NCCL 2.23 and newer).")]
Library = Annotated[Path | None, typer.Option("--library", help="Another copy of libforensics_shim.so.", exists=True)]
Form = Annotated[str, typer.Option("--format", help="shell, json, docker or slurm.")]


def _choices(
    folder: Path | None, job: str | None, size: int | None, preload: bool, profiler: bool, library: Path | None
) -> Choices:
    from forensics.shim.launch import Choices

    return Choices(folder, job, size, preload, profiler, library)


@app.command()
def env(
    folder: Folder = None,
    job: JobName = None,
    size: Size = None,
    preload: Preload = True,
    profiler: Profiler = True,
    library: Library = None,
    form: Form = "shell",
) -> None:
    """Print the variables to start a job with.

    Example: eval "$(forensics shim env)"; torchrun train.py
    """
    from forensics.shim.launch import FORMATS, variables, written

    if form not in FORMATS:
        raise ForensicsError(f"--format {form}: choose one of {', '.join(FORMATS)}", ExitCode.USAGE)
    typer.echo(written(variables(_choices(folder, job, size, preload, profiler, library), os.environ), form))


@app.command(context_settings={"allow_interspersed_args": False, "ignore_unknown_options": True})
def run(
    command: Annotated[list[str], typer.Argument(help="The program and its arguments, behind --.")],
    folder: Folder = None,
    job: JobName = None,
    size: Size = None,
    preload: Preload = True,
    profiler: Profiler = True,
    library: Library = None,
) -> None:
    """Start a program with the collector loaded; it takes the place of this one.

    Example: forensics shim run -- torchrun --nproc-per-node 8 train.py
    """
    from forensics.shim.launch import variables

    found = variables(_choices(folder, job, size, preload, profiler, library), os.environ)
    sys.stdout.flush()
    try:
        os.execvpe(command[0], command, {**os.environ, **found})
    except OSError as error:
        raise ForensicsError(f"{command[0]}: {error.strerror}", ExitCode.USAGE) from error


@app.command()
def status(
    place: Annotated[Path | None, typer.Argument(help="Folder of logs, or one log (default: /dev/shm/forensics-UID).")] = None,
    form: Annotated[str, typer.Option("--format", help="text or json.")] = "text",
) -> None:
    """Say what the logs of living or dead processes tell: hooks, last operation of each communicator, losses.

    Example: forensics shim status /dev/shm/forensics-1000
    """
    from forensics.shim.status import log_files, log_folders, statuses

    if form not in ("text", "json"):
        raise ForensicsError(f"--format {form}: choose text or json", ExitCode.USAGE)
    places = [place] if place is not None else log_folders(os.environ)
    missing = [where for where in places if not where.exists()]
    if missing:
        raise ForensicsError(f"{missing[0]}: no such file or folder: no process has made a log here", ExitCode.UNREADABLE)
    found = list(statuses([path for where in places for path in log_files(where)]))
    if form == "json":
        _as_json(found)
    else:
        _as_text(found, places)


def _as_json(found: list[LogStatus]) -> None:
    import json
    from dataclasses import asdict

    typer.echo(json.dumps({"schema": "forensics.shim_status/1", "logs": [asdict(one) for one in found]}, indent=2))


def _as_text(found: list[LogStatus], places: list[Path]) -> None:
    from forensics.report.plain import plain

    if not found:
        typer.echo(f"no log in {', '.join(map(str, places))}")
    for line in (line for one in found for line in _lines(one)):
        typer.echo(plain(line))


def _lines(one: LogStatus) -> list[str]:
    if one.pid is None:
        return [f"{one.path}: {one.problem}"]
    alive = {True: "alive", False: "no such process", None: "of another host or namespace"}[one.alive]
    rank = "?" if one.rank is None else str(one.rank)
    beat = "" if one.beat_age_s is None else f", last heartbeat {one.beat_age_s:.0f} s ago"
    hooks = ", ".join(f"{hook} {'called' if hook in one.called else 'hooked, not called'}" for hook in one.hooked) or "none"
    lines = [
        f"rank {rank}  host {one.host}  pid {one.pid} ({alive})  {one.state or 'unknown state'}{beat}",
        f"  hooks: {hooks}; records overwritten or dropped {one.lost}, torn {one.torn}; {one.path}",
    ]
    lines += [f"  problem: {one.problem}"] if one.problem else []
    for comm in one.communicators:
        last = f"last {comm.last_kind or 'operation'} {comm.operations}" if comm.operations else "no operation"
        done = "" if comm.finished is None else f", {comm.finished} finished"
        inside = f", INSIDE {comm.inside}" if comm.inside else ""
        lines.append(f"  {comm.communicator}  rank {comm.group_rank} of {comm.size}  {comm.state}  {last}{done}{inside}")
    return lines
