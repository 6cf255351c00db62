"""What a person is stated at the end of a collection, as data; printing is the command line's business."""

from __future__ import annotations

import os
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from forensics.bundle.layout import Status
from forensics.collect.discovery import Discovery
from forensics.collect.journal import Journal
from forensics.collect.record import Run
from forensics.collect.scan import Scan
from forensics.errors import ExitCode, ForensicsError
from forensics.rank_ranges import format_ranks

_FAILED = frozenset({Status.PARTIAL, Status.TIMEOUT, Status.PERMISSION, Status.KILLED})


class NoRanksError(ForensicsError):
    """There is no rank to collect from; the message says what was searched."""

    def __init__(self, message: str) -> None:
        super().__init__(message, ExitCode.NO_RANKS)


@dataclass(frozen=True, slots=True)
class Gap:
    """Something that was not, or not wholly, had: a collector, its status and reason, and the ranks it is so for."""

    collector: str
    status: Status
    reason: str
    ranks: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Summary:
    """A finished collection. `complete` is false when something that exists could not be taken, or a rank has no process."""

    output: Path
    size: int
    living: tuple[int, ...]
    missing: tuple[tuple[int, str, str], ...]
    world_size: int | None
    gaps: tuple[Gap, ...]
    warnings: tuple[str, ...]
    interrupted: bool
    cut_short: bool
    complete: bool
    anything: bool

    def exit_code(self, strict: bool) -> int:
        """The exit code of the command (docs/collect.md)."""
        if self.interrupted:
            return ExitCode.INTERRUPTED
        if not self.anything:
            return ExitCode.NOTHING_COLLECTED
        return ExitCode.PARTIAL if strict and not self.complete else ExitCode.ANALYSED


def make_summary(output: Path, size: int, journal: Journal, interrupted: bool) -> Summary:
    """The summary of a collection whose books are closed."""
    ranks = [run for run in journal.runs if run.rank is not None]
    failed = any(run.status in _FAILED for run in journal.runs if run.counts)
    return Summary(
        output=output,
        size=size,
        living=tuple(one.rank for one in journal.found.ranks),
        missing=tuple((one.rank, one.state, one.method) for one in journal.missing),
        world_size=journal.found.world_size,
        gaps=tuple(_gaps(run for run in journal.runs if run.counts)),
        warnings=journal.found.warnings,
        interrupted=interrupted,
        cut_short=journal.interrupted,
        complete=not failed and not journal.missing and not journal.interrupted,
        anything=any(run.path for run in ranks) if ranks else any(run.path for run in journal.runs),
    )


def _gaps(runs: Iterable[Run]) -> list[Gap]:
    """Runs that are not `ok`, those of one collector with the same reason together, in order of their first rank."""
    found: dict[tuple[str, Status, str], set[int]] = {}
    for run in runs:
        if run.status is not Status.OK:
            reason = _general(run)
            found.setdefault((run.id, run.status, reason), set()).update(() if run.rank is None else (run.rank,))
    return [Gap(*key, tuple(sorted(ranks))) for key, ranks in sorted(found.items())]


def _general(run: Run) -> str:
    """The reason without the process id and rank of this one run, so that equal reasons of many ranks are stated once."""
    reason = run.reason or run.status.value
    if run.pid is not None:
        reason = reason.replace(f"process {run.pid}", "the process")
    return reason


def explain_no_ranks(scan: Scan, found: Discovery, job: str | None) -> str:
    """What was searched for ranks, what could not be searched, and what to try."""
    if job is not None and found.jobs_seen:
        return f"no job on this host is {job!r}; it runs {'; '.join(found.jobs_seen)}"
    lines = [
        f"no ranks found on this host: searched the environment of {len(scan.processes)} processes for RANK, SLURM_PROCID, "
        "OMPI_COMM_WORLD_RANK, PMI_RANK and LOCAL_RANK, then for Python processes that use libtorch or jaxlib and TCP"
    ]
    if scan.unreadable:
        lines.append(f"{len(scan.unreadable)} processes could not be read ({_who()}): run as root, or as the user of the job")
    if scan.stuck:
        lines.append(f"reading these processes blocked: pids {', '.join(map(str, scan.stuck))}")
    for rank, processes in found.orphans.items():
        left = ", ".join(str(one.pid) for one in processes)
        lines.append(f"pid {left} says it is rank {rank}, but is a child that the dead rank left behind")
    dead = (one.stat for one in scan.processes.values() if one.stat.state == "Z")
    zombies = [stat.pid for stat in dead if stat.comm.startswith(("python", "pt_"))]
    if zombies:
        lines.append(f"dead and not reaped: pids {format_ranks(zombies)}")
    lines.append("if the ranks are there, name them with --pid PID[,PID]; --host-only collects the facts of the host alone")
    return "\n".join(lines)


def _who() -> str:
    return "permission denied even for root: a container without CAP_SYS_PTRACE?" if os.geteuid() == 0 else "permission denied"
