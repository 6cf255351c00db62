"""`forensics collect` on all hosts of a job: how the command is given to them, and what a person reads of them."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from collections.abc import Callable

    from forensics.collect.cluster.exchange import Delivery
    from forensics.collect.cluster.gathering import Pace
    from forensics.collect.cluster.launchers import Places
    from forensics.collect.cluster.session import WholeJob
    from forensics.collect.session import Options
    from forensics.collect.summary import Summary

_PANEL = "All hosts of a job"

Slurm = Annotated[str, typer.Option(metavar="JOBID", help="Collect on the nodes of a Slurm job.", rich_help_panel=_PANEL)]
Hosts = Annotated[
    str, typer.Option(metavar="LIST", help="Collect on these hosts by ssh, such as gpu[01-64].", rich_help_panel=_PANEL)
]
K8s = Annotated[str, typer.Option(metavar="SELECTOR", help="Collect in the pods with these labels.", rich_help_panel=_PANEL)]
Local = Annotated[bool, typer.Option("--local", help="Collect on this host, beside the others.", rich_help_panel=_PANEL)]
Namespace = Annotated[str, typer.Option(help="Namespace of the pods.", rich_help_panel=_PANEL)]
Container = Annotated[str, typer.Option(help="Container of the pods.", rich_help_panel=_PANEL)]
RemoteCommand = Annotated[
    str, typer.Option(metavar="COMMAND", help="How forensics is called there: 'sudo -n forensics'.", rich_help_panel=_PANEL)
]
Width = Annotated[
    int | None,
    typer.Option(
        "--width",
        min=1,
        max=1024,
        help="Hosts asked at a time. Default: the fanout of clush.conf for --hosts with ClusterShell, else 64.",
        rich_help_panel=_PANEL,
        show_default=False,
    ),
]
NodeDeadline = Annotated[
    float | None,
    typer.Option(
        min=1.0,
        help="Seconds until a host is given up. Default: --deadline and 120.",
        rich_help_panel=_PANEL,
        show_default=False,
    ),
]
GlobalDeadline = Annotated[
    float, typer.Option(min=1.0, help="Seconds after which no host is waited for.", rich_help_panel=_PANEL)
]
Normalize = Annotated[
    bool, typer.Option("--normalize", help="Read dumps and traces where they are; keep their columns (Parquet) instead.")
]
Summarize = Annotated[
    bool, typer.Option("--summary", help="Keep rows of dumps, stages, stacks and logs of NCCL calls, in one small file a node.")
]
Send = Annotated[str, typer.Option("--send", hidden=True, help="Send the bundle to whoever started this command.")]

_MOST_SHOWN = 20


@dataclass(frozen=True, slots=True)
class There:
    """How forensics is called on the other hosts, the ranks asked for, and whether the hosts send columns or summaries.

    What is to be redacted here comes as it is: columns cannot be redacted.
    """

    command: str
    ranks: str | None
    normalize: bool
    summary: bool = False
    redacted_here: bool = False


def send(options: Options, number: str, run: Callable[[Options], Summary]) -> int:
    """Collect into a temporary folder of this host and send the bundle over standard output; the exit code."""
    import tempfile
    from dataclasses import replace

    from forensics.collect.cluster.frames import greet, send_bundle, send_failure
    from forensics.errors import ExitCode, ForensicsError

    greet(number)
    with tempfile.TemporaryDirectory(prefix="forensics-", ignore_cleanup_errors=True) as folder:
        try:
            summary = run(replace(options, output=Path(folder) / "bundle.tar"))
        except ForensicsError as error:
            send_failure(number, error.code, error.message)
            return error.code
        except KeyboardInterrupt:
            send_failure(number, ExitCode.INTERRUPTED, "interrupted")
            return ExitCode.INTERRUPTED
        code = summary.exit_code(False)
        send_bundle(number, summary.output, code)
    return code


def collect_from(places: Places, there: There, options: Options, pace: Pace) -> WholeJob:
    """Collect on all hosts of `places` and say what came."""
    from forensics.collect.cluster.launchers import targets
    from forensics.collect.cluster.session import collect_job

    found = targets(places, _command(there, options, places.slurm))
    _say(f"asking {len(found)} hosts" if len(found) > 1 else f"asking {found[0].name}")
    written = collect_job(found, options.output, pace, options.pack, options.force, _heard)
    tell(written)
    return written


def _command(there: There, options: Options, slurm: str) -> list[str]:
    """The same collection, for another host; `{number}` is replaced for each."""
    import shlex

    from forensics.collect.cluster.exchange import NUMBER

    settings = options.settings
    job = options.job or slurm
    flags = ["--send", NUMBER, f"--interval={settings.interval_s}", f"--samples={settings.samples}"]
    flags += [f"--deadline={options.deadline_s}", f"--log-tail={settings.log_tail >> 20}"]
    flags += [f"--job={job}"] if job else []
    flags += [f"--ranks={there.ranks}"] if there.ranks else []
    flags += [] if settings.use_pipe else ["--no-fr-pipe"]
    flags += [] if settings.nccl_ras is None else ["--nccl-ras" if settings.nccl_ras else "--no-nccl-ras"]
    flags += ["--ask-sockets"] if settings.ask_sockets else []
    flags += ["--host-only"] if options.host_only else []
    flags += ["--normalize"] if there.normalize and not there.redacted_here else []
    flags += ["--summary"] if there.summary and not there.redacted_here else []
    return [*shlex.split(there.command), "collect", *flags]


def _heard(delivery: Delivery, done: int, total: int) -> None:
    words = f": {delivery.reason}" if delivery.reason else ""
    _say(f"[{done}/{total}] {delivery.name}: {delivery.status.value}{words}")


def tell(written: WholeJob) -> None:
    """The outcome on standard error: ranks, clocks, warnings, what to do next."""
    from forensics.rank_ranges import format_ranks

    for warning in written.warnings[:_MOST_SHOWN]:
        _say(f"warning: {warning}")
    if len(written.warnings) > _MOST_SHOWN:
        _say(f"{len(written.warnings) - _MOST_SHOWN} more warnings are in the bundle")
    for state in sorted(set(written.ranks.values())):
        of_it = [rank for rank, each in written.ranks.items() if each == state]
        of_all = f" of {written.world_size}" if written.world_size is not None else ""
        _say(f"rank {format_ranks(of_it, _MOST_SHOWN)}{of_all}: {state}")
    _tell_clocks(written)
    if written.interrupted:
        _say("interrupted: the bundle holds what there was")
    _say(f"wrote {written.output} ({written.size / 1024:.0f} KiB)")
    _say(f"next: forensics diagnose {written.output}")


def _tell_clocks(written: WholeJob) -> None:
    """The host whose clock is the furthest off, as far as that is known."""
    if not written.offsets:
        return
    node, (reference, offset, bound) = max(written.offsets.items(), key=lambda item: abs(item[1][1]) - item[1][2])
    one, other = offset / 1e6, bound / 1e6
    if abs(offset) > bound:
        _say(f"clocks: {node} is furthest from {reference}, by {one:+.1f} ms, to within {other:.1f} ms")
    else:
        _say(f"clocks: no host is known to differ from {reference}; {node} is known to within {other:.1f} ms")


def _say(text: str) -> None:
    from forensics.cli.terminal import lasting_errors

    typer.echo("".join(char if char.isprintable() else "?" for char in text), file=lasting_errors())
