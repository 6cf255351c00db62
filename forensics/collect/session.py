"""One collection from beginning to end: find the ranks, run the plan, write the bundle.

Everything is written to a staging directory first, in the layout of a bundle. What is there when the collection ends, by
itself, by its deadline or by a signal, is packed; what is there when it is killed is a directory that can be read as it is.
"""

from __future__ import annotations

import os
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path

from forensics.bundle.layout import node_path, rank_path
from forensics.bundle.writer import directory_contents, write_bundle
from forensics.collect.absence import MissingRank, missing_ranks
from forensics.collect.collectors.py_spy import find_py_spy
from forensics.collect.discovery import Discovery, choose_ranks, discover, own_tree
from forensics.collect.identity import missing_document, node_document, rank_document
from forensics.collect.interrupts import Interrupts
from forensics.collect.journal import Journal
from forensics.collect.plan import make_plan
from forensics.collect.processes import ProcFs
from forensics.collect.record import now_ns
from forensics.collect.scan import Scan, scan
from forensics.collect.schedule import Limits, run_tasks
from forensics.collect.spawned import given_ranks, guess_ranks, only_inherited, parents_of
from forensics.collect.staging import Staging, staging_beside
from forensics.collect.summary import NoRanksError, Summary, explain_no_ranks, make_summary
from forensics.collect.target import Context, Settings
from forensics.collect.targets import local_rank_of, make_targets
from forensics.errors import ExitCode, ForensicsError
from forensics.native import ClockReading, read_clocks
from forensics.rank_ranges import format_ranks

Pack = Callable[[Path, Path, bool, tuple[int, int] | None], int]
"""Makes the bundle: staging directory, output, whether to replace it, its owner; returns its size in bytes."""


def pack_directory(directory: Path, output: Path, replaces: bool, owner: tuple[int, int] | None) -> int:
    """Pack what was collected as it is."""
    return write_bundle(output, directory_contents(directory), replace=replaces, owner=owner)


@dataclass(frozen=True, slots=True)
class Options:
    """What the user asked for. With `host_if_none` a host without ranks gives its own facts, where else it is an error."""

    output: Path
    force: bool = False
    pids: tuple[int, ...] = ()
    ranks: frozenset[int] | None = None
    job: str | None = None
    deadline_s: float = 120.0
    host_only: bool = False
    host_if_none: bool = False
    settings: Settings = field(default_factory=Settings)
    pack: Pack = pack_directory


Observer = Callable[[int, int], None]
"""Stated how many of how many tasks are done."""


def collect(options: Options, observe: Observer = lambda done, total: None) -> Summary:
    """Collect one bundle. Raises ForensicsError when there is nothing to collect or nowhere to write it."""
    staging = staging_beside(options.output, options.force)
    try:
        with Interrupts() as interrupts:
            summary = _collect(options, staging, interrupts, observe)
    except NoRanksError:
        staging.remove()
        raise
    except OSError as error:  # the disk is full, or gone
        words = f"cannot write {staging.root}: {error.strerror}; what was collected is there"
        raise ForensicsError(words, ExitCode.PARTIAL) from error
    return summary


def _collect(options: Options, staging: Staging, interrupts: Interrupts, observe: Observer) -> Summary:
    began = time.monotonic()
    context = Context(staging, os.uname().nodename, options.settings, py_spy=find_py_spy())
    clocks = [read_clocks()]
    journal = Journal(context, now_ns())
    found, seen = _discover(options, context.procfs, interrupts)
    if not found.ranks and not options.host_only and not interrupts.requested:
        words = explain_no_ranks(seen, found, options.job)
        if not options.host_if_none:
            raise NoRanksError(words)
        found = replace(found, warnings=(*found.warnings, words.splitlines()[0]))
    missing = () if _named(options, seen)[0] else missing_ranks(found, seen)
    chosen, missing, left_out = _restrict(found, missing, options.ranks)
    if options.ranks is not None and not chosen.ranks and not missing and not options.host_if_none:
        raise NoRanksError(f"none of the ranks asked for is on this host; it has {len(found.ranks)} ranks of the job")
    journal.identify(chosen, missing, left_out)
    _write_identities(context, seen, chosen, missing, clocks, journal)
    journal.write_manifest()
    targets = make_targets(context, chosen.ranks, missing)
    limits = Limits(options.deadline_s, began, lambda: interrupts.requested, interrupts.wake)
    cut_short = run_tasks(make_plan(context, targets), limits, journal.record, observe)
    clocks.append(read_clocks())
    staging.write_json(node_path(context.node, "node.json"), node_document(context, seen, clocks))
    journal.record_clocks(clocks)
    journal.close(cut_short)
    size = _pack(options, staging)
    return make_summary(options.output, size, journal, interrupts.requested)


def _discover(options: Options, procfs: ProcFs, interrupts: Interrupts) -> tuple[Discovery, Scan]:
    """The ranks of the job, and the look at the host they were found in."""
    stopped = lambda: interrupts.requested  # noqa: E731
    began = time.clock_gettime_ns(time.CLOCK_BOOTTIME) * os.sysconf("SC_CLK_TCK") // 1_000_000_000
    seen = scan(procfs, stopped=stopped)
    if options.host_only:
        return Discovery(), seen
    named, said = _named(options, seen)
    if named:
        given = given_ranks(seen, named)
        return replace(given, warnings=(*given.warnings, *said)), seen
    found = discover(seen, own_tree(seen, os.getpid(), began), options.job)
    found = replace(found, warnings=(*found.warnings, *said))
    inherited = only_inherited(found)
    if inherited or (not found.ranks and not found.jobs_seen):
        seen = scan(procfs, maps_of_python=True, stopped=stopped)
        started = [one.process.pid for one in found.ranks]
        guessed = guess_ranks(procfs, seen, own_tree(seen, os.getpid(), began), started)
        found = parents_of(found, guessed, seen) if inherited else guessed
    return found, seen


def _named(options: Options, seen: Scan) -> tuple[tuple[int, ...], tuple[str, ...]]:
    """The named processes that live, and what to say of the others; where all of them are dead, their job is searched for."""
    gone = [pid for pid in options.pids if pid not in seen.processes]
    dead = [pid for pid in options.pids if pid not in gone and seen.processes[pid].stat.state == "Z"]
    living = tuple(pid for pid in options.pids if pid not in gone and pid not in dead)
    said = [f"there is no process {', '.join(map(str, gone))} on this host"] if gone else []
    if gone and not living and not dead:
        raise NoRanksError(said[0])
    if dead:
        what = "collected from the others" if living else "looked for the ranks of its job instead"
        said.append(f"pid {', '.join(map(str, dead))} is dead and waits to be reaped; {what}")
    return living, tuple(said)


def _restrict(
    found: Discovery, missing: tuple[MissingRank, ...], wanted: frozenset[int] | None
) -> tuple[Discovery, tuple[MissingRank, ...], Discovery]:
    """What the user asked for, and what is left out because of that."""
    if wanted is None:
        return found, missing, Discovery()
    chosen = choose_ranks(found, wanted)
    others = tuple(one for one in found.ranks if one not in chosen)
    absent = tuple(one for one in missing if one.rank in wanted)
    unseen = wanted - {one.rank for one in chosen} - {one.rank for one in absent}
    said = (f"rank {format_ranks(unseen)} was asked for, but neither runs on this host nor is expected here",) if unseen else ()
    warnings = (*found.warnings, *said)
    kept = Discovery(chosen, found.job, found.world_size, found.orphans, warnings, found.jobs_seen)
    return kept, absent, Discovery(others, found.job)


def _write_identities(
    context: Context,
    seen: Scan,
    found: Discovery,
    missing: tuple[MissingRank, ...],
    clocks: list[ClockReading],
    journal: Journal,
) -> None:
    context.staging.write_json(node_path(context.node, "node.json"), node_document(context, seen, clocks))
    for one in found.ranks:
        counts: Counter[str] = Counter()
        path = rank_path(one.rank, "rank.json")
        context.staging.write_json(path, rank_document(context, seen, one, counts))
        journal.redacted(path, counts)
    for absent in missing:
        counts = Counter()
        path = rank_path(absent.rank, "rank.json")
        local = local_rank_of(absent.rank, found.ranks) if absent.state != "unknown" else None
        context.staging.write_json(path, missing_document(context, seen, absent, local, counts))
        journal.redacted(path, counts)


def _pack(options: Options, staging: Staging) -> int:
    """The size of the bundle; the staging directory goes only when the bundle is complete."""
    try:
        size = options.pack(staging.root, options.output, options.force, _owner())
    except FileExistsError as error:
        raise ForensicsError(
            f"{options.output} appeared in the meantime; the collection is in {staging.root}", ExitCode.USAGE
        ) from error
    except OSError as error:
        raise ForensicsError(
            f"cannot write {options.output}: {error.strerror}; the collection is complete in {staging.root}, "
            "which can be diagnosed as it is",
            ExitCode.PARTIAL,
        ) from error
    staging.remove()
    return size


def _owner() -> tuple[int, int] | None:
    """The user who called sudo: the bundle is for them."""
    user, group = os.environ.get("SUDO_UID", ""), os.environ.get("SUDO_GID", "")
    if os.geteuid() == 0 and user.isdecimal() and group.isdecimal():
        return int(user), int(group)
    return None
