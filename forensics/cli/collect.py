"""`forensics collect`: one command on the host of a stuck job, one bundle."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, NoReturn

import typer

from forensics.cli import whole_job
from forensics.cli.redact import MapFile, Names

if TYPE_CHECKING:
    from collections.abc import Callable

    from forensics.collect.cluster.session import WholeJob
    from forensics.collect.session import Options, Pack
    from forensics.collect.summary import Summary

NcclRas = Annotated[
    bool | None,
    typer.Option(
        "--nccl-ras/--no-nccl-ras",
        help="Ask NCCL's RAS service whatever its version, or never. Default: from NCCL 2.29.2 on only.",
        show_default=False,
    ),
]
AskSockets = Annotated[
    bool,
    typer.Option("--ask-sockets", help="Ask every UNIX socket of a rank for a worker server, not the configured one only."),
]
ThenDiagnose = Annotated[
    bool, typer.Option("--diagnose", help="Diagnose the bundle once it is written; the report goes to standard output.")
]
WhichJob = Annotated[str | None, typer.Option(help="Which job, where several run: scheduler id, run id, or MASTER_ADDR:PORT.")]
Strict = Annotated[
    bool, typer.Option("--strict", help="Exit 5 when something that exists could not be taken or a rank is dead.")
]
Redact = Annotated[
    bool, typer.Option("--redact", help="Make the bundle fit to be shared: no secrets in any file (see forensics redact).")
]


Output = Annotated[
    Path | None,
    typer.Option("-o", "--output", help="Bundle to write: .tar, .tar.gz or .tar.zst. Default: forensics-HOST-TIME.tar."),
]
Pids = Annotated[
    list[str] | None, typer.Option(help="Collect from these processes (PID[,PID], may be repeated) instead of searching.")
]
Ranks = Annotated[str | None, typer.Option(help="Collect from these ranks only, such as 0-3,7.")]
Interval = Annotated[float, typer.Option(min=0.0, help="About how many seconds lie between two samples (0.6 to 1.7 of it).")]
Samples = Annotated[int, typer.Option(min=1, max=100, help="Stack samples to take.")]
Deadline = Annotated[float, typer.Option(min=1.0, help="Seconds after which what is there is packed.")]
LogTail = Annotated[int, typer.Option(min=0, max=64, help="MiB kept of the end of each log, besides its first MiB.")]
FrPipe = Annotated[bool, typer.Option(help="Ask for a Flight Recorder dump through the job's named pipe.")]
HostOnly = Annotated[bool, typer.Option("--host-only", help="Collect the facts of the host without any rank.")]
Force = Annotated[bool, typer.Option("--force", help="Replace an existing bundle.")]


def collect(
    output: Output = None,
    pid: Pids = None,
    ranks: Ranks = None,
    job: WhichJob = None,
    interval: Interval = 1.0,
    samples: Samples = 6,
    deadline: Deadline = 120.0,
    log_tail: LogTail = 4,
    fr_pipe: FrPipe = True,
    nccl_ras: NcclRas = None,
    ask_sockets: AskSockets = False,
    host_only: HostOnly = False,
    force: Force = False,
    then_diagnose: ThenDiagnose = False,
    is_redacted: Redact = False,
    pseudonyms: Names = "",
    map_file: MapFile = None,
    strict: Strict = False,
    slurm: whole_job.Slurm = "",
    hosts: whole_job.Hosts = "",
    k8s: whole_job.K8s = "",
    local: whole_job.Local = False,
    namespace: whole_job.Namespace = "",
    container: whole_job.Container = "",
    remote_command: whole_job.RemoteCommand = "forensics",
    width: whole_job.Width = None,
    node_deadline: whole_job.NodeDeadline = None,
    global_deadline: whole_job.GlobalDeadline = 900.0,
    normalize: whole_job.Normalize = False,
    is_summary: whole_job.Summarize = False,
    send: whole_job.Send = "",
) -> None:
    """Collect a bundle on the host of a stuck job, or on all of them; the job is left as it is.

    Finds the ranks itself, takes their stacks, thread states, Flight Recorder and logs, and says what could not be had.
    As root it sees most. --slurm, --hosts, --k8s and --local start the same on each host and merge what comes. Exit codes:
    0 written, 5 partial (with --strict), 6 nothing collected, 7 no ranks found, 130 interrupted (the bundle is written all
    the same). With --diagnose, in place of 0: 4 where the bundle is not enough for any verdict.

    Example: forensics collect --diagnose, or forensics collect --hosts gpu[01-16] -o bundle.tar
    """
    from forensics.collect.cluster.gathering import Pace
    from forensics.collect.cluster.launchers import Places, usual_width
    from forensics.collect.session import Options
    from forensics.collect.target import Settings

    settings = Settings(
        interval, samples, log_tail=log_tail << 20, use_pipe=fr_pipe, ask_sockets=ask_sockets, nccl_ras=nccl_ras
    )
    pack = packing(is_redacted, pseudonyms, map_file, normalize, is_summary)
    asked = (_pids(pid), _ranks(ranks), job, deadline, host_only, bool(send))
    options = Options(output or _default_output(), force, *asked, settings, pack)
    if send:
        raise typer.Exit(whole_job.send(options, send, _run))
    if (places := Places(hosts, slurm, k8s, namespace, container, local)).any:
        pace = Pace(width or usual_width(places), node_deadline or deadline + 120, global_deadline)
        there = whole_job.There(remote_command, ranks, normalize, is_summary, is_redacted or bool(pseudonyms))
        _finish(whole_job.collect_from(places, there, options, pace), then_diagnose, strict)
    _finish(_collected_here(options, then_diagnose), then_diagnose, strict)


def _collected_here(options: Options, then_diagnose: bool) -> Summary:
    from forensics.errors import ExitCode

    try:
        summary = _run(options)
    except KeyboardInterrupt:
        typer.echo("stopped at once; what was collected is in the .partial directory beside the output", err=True)
        raise typer.Exit(ExitCode.INTERRUPTED) from None
    _tell(summary, then_diagnose)
    return summary


def _finish(written: Summary | WholeJob, then_diagnose: bool, strict: bool) -> NoReturn:
    code = written.exit_code(strict)
    raise typer.Exit(_diagnosed(written.output, code) if then_diagnose else code)


def packing(is_redacted: bool, kinds: str, map_file: Path | None, normalize: bool = False, is_summary: bool = False) -> Pack:
    """How the bundle is made of what was collected: as it is, without secrets and names, as columns or summaries, or both."""
    from forensics.cli.redact import read_names, write_map
    from forensics.collect.session import pack_directory

    names = read_names(kinds, map_file)
    shorter = _pack_shorter(normalize, is_summary)
    if not is_redacted and not kinds:
        return shorter or pack_directory

    def pack(directory: Path, output: Path, replaces: bool, owner: tuple[int, int] | None) -> int:
        from forensics.sharing.redacting import redact_bundle

        report = redact_bundle([directory], output, names, replace=replaces, owner=owner)
        write_map(names, map_file)
        for path, reason in report.left_out.items():
            typer.echo(f"left out: {path}: {reason}", err=True)
        return shorter(output, output, True, owner) if shorter else report.size

    return pack


def _pack_shorter(normalize: bool, is_summary: bool) -> Pack | None:
    """Pack with summaries or columns in place of raw artefacts, read where the data is, with columns of what has no summary."""

    def pack(source: Path, output: Path, replaces: bool, owner: tuple[int, int] | None) -> int:
        from forensics.case.shards.writing import write_normalized
        from forensics.case.summaries.writing import write_summarised

        size = write_summarised(source, output, replace=replaces, owner=owner) if is_summary else 0
        if not normalize:
            return size
        return write_normalized(output if is_summary else source, output, replace=replaces or is_summary, owner=owner)

    return pack if normalize or is_summary else None


def _diagnosed(bundle: Path, code: int) -> int:
    """The report of what was written; how the collection went decides the exit code, where it did not go well."""
    from forensics.cli.diagnose import diagnose
    from forensics.errors import ExitCode

    if code in (ExitCode.NOTHING_COLLECTED, ExitCode.NO_RANKS):
        return code
    try:
        diagnose([bundle])
    except typer.Exit as ended:
        return code or ended.exit_code
    return code


def _run(options: Options) -> Summary:
    """Collect out of the way of the job, with a progress bar on a terminal and without one elsewhere."""
    import os
    import sys

    from forensics.collect.child import yield_memory
    from forensics.collect.session import collect as collect_bundle

    os.setpriority(os.PRIO_PROCESS, 0, 19)
    yield_memory()
    if not sys.stderr.isatty():
        return collect_bundle(options)
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

    from forensics.cli.terminal import lasting_errors

    columns = (TextColumn("{task.description}"), BarColumn(), TextColumn("{task.completed}/{task.total}"), TimeElapsedColumn())
    # No refresh thread: the orchestrator forks, and a fork of a process with threads may deadlock.
    with Progress(*columns, console=Console(file=lasting_errors()), transient=True, auto_refresh=False) as progress:
        bar = progress.add_task("finding ranks", total=None)

        def observe(done: int, total: int) -> None:
            progress.update(bar, description="collecting", completed=done, total=total)
            progress.refresh()

        progress.refresh()
        return collect_bundle(options, observe)


def _tell(summary: Summary, is_diagnosed: bool) -> None:
    """The summary on standard error, without control characters that names of the job may hold."""
    from forensics.cli.terminal import lasting_errors
    from forensics.rank_ranges import format_ranks

    errors = lasting_errors()

    def say(text: str) -> None:
        typer.echo("".join(char if char.isprintable() else "?" for char in text), file=errors)

    for warning in summary.warnings:
        say(f"warning: {warning}")
    of_all = f" of {summary.world_size}" if summary.world_size is not None else ""
    if summary.living:
        one = len(summary.living) == 1
        say(f"rank{'' if one else 's'} {format_ranks(summary.living)}{of_all} {'is' if one else 'are'} running here")
    _tell_missing(summary, say)
    if summary.gaps:
        say("not collected:")
    for gap in summary.gaps:
        whose = f"rank {format_ranks(gap.ranks)}" if gap.ranks else "host"
        say(f"  {gap.collector:<12} {whose:<10} {gap.status.value}: {gap.reason}")
    if summary.interrupted:
        say("interrupted: the bundle holds what there was")
    elif summary.cut_short:
        say("the overall deadline passed: the bundle holds what there was")
    say(f"wrote {summary.output} ({summary.size / 1024:.0f} KiB)")
    if not is_diagnosed:
        say(f"next: forensics diagnose {summary.output}")


def _tell_missing(summary: Summary, say: Callable[[str], None]) -> None:
    """Ranks without a process, those with the same story together."""
    from forensics.rank_ranges import format_ranks

    stories: dict[tuple[str, str], list[int]] = {}
    for rank, state, method in summary.missing:
        stories.setdefault((state, method), []).append(rank)
    for (state, method), ranks in stories.items():
        say(f"rank {format_ranks(ranks)} {'is' if len(ranks) == 1 else 'are'} {state}: {method}")


def _default_output() -> Path:
    import os
    import time

    stamp = time.strftime("%Y%m%dT%H%M%SZ", time.gmtime())
    return Path(f"forensics-{os.uname().nodename}-{stamp}.tar")


def _pids(texts: list[str] | None) -> tuple[int, ...]:
    words = [word.strip() for text in texts or () for word in text.split(",")]
    if not all(word.isdecimal() for word in words):
        given = ",".join(texts or ())
        raise typer.BadParameter(f"{given!r} is not a list of process ids such as 4231,4232", param_hint="--pid")
    return tuple(dict.fromkeys(int(word) for word in words))


def _ranks(text: str | None) -> frozenset[int] | None:
    from forensics.rank_ranges import parse_ranks

    if text is None:
        return None
    try:
        return parse_ranks(text)
    except ValueError as error:
        raise typer.BadParameter(str(error), param_hint="--ranks") from error
