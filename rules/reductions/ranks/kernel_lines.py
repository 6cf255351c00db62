"""What the kernel of a host wrote of the processes of ranks, and of the storage that they use."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import NewType

from duckdb import DuckDBPyConnection

from forensics.case.database import rows_of
from forensics.model import Cause, Component, Evidence, Finding
from forensics.rules.reductions.interface import reduction
from forensics.rules.reductions.ranks.owners import Owners
from forensics.rules.reductions.ranks.roster import CaseRoster

KernelLines = NewType("KernelLines", Mapping[int, tuple[Evidence, ...]])
"""What the kernel wrote of the processes of each rank: tasks that do not go on, and crashes."""


@reduction
def kernel_lines(connection: DuckDBPyConnection, known: Owners) -> KernelLines:
    """Read the newest line of each kind."""
    rows = rows_of(
        connection,
        "log_events",
        """
        SELECT host, TRY_CAST(subject AS BIGINT), text, source FROM logged_event
        WHERE kind IN ('hung_task', 'soft_lockup', 'segfault')
        QUALIFY row_number() OVER (PARTITION BY host, subject, kind ORDER BY time_ns DESC NULLS LAST, path, locator DESC) = 1
        ORDER BY ALL
        """,
        kinds=("hung_task", "soft_lockup", "segfault"),
    )
    found: dict[int, list[Evidence]] = defaultdict(list)
    for host, pid, text, source in rows:
        if (rank := known.rank(host, pid)) is not None:
            found[rank].append(Evidence(f"the kernel reports of rank {rank}: {text}", source))
    return KernelLines({rank: tuple(lines) for rank, lines in found.items()})


@dataclass(frozen=True, slots=True)
class BlockedTask:
    """The main thread of a rank that slept without interruption for `seconds` at least, by `reports` lines of the kernel."""

    seconds: int
    reports: int
    evidence: Evidence


BlockedTasks = NewType("BlockedTasks", Mapping[int, BlockedTask])
"""Ranks whose main thread the kernel found blocked, and every sample of its state found so too."""

_BLOCKED = re.compile(r"blocked for more than (\d{1,7}) seconds")


@reduction
def blocked_tasks(connection: DuckDBPyConnection, known: Owners, roster: CaseRoster) -> BlockedTasks:
    """Read the reports of each main process; a thread that did not run once in two minutes does not make progress in parts.

    Upstream: `check_hung_task` of linux/kernel/hung_task.c.
    """
    rows = rows_of(
        connection,
        "log_events",
        "SELECT host, TRY_CAST(subject AS BIGINT), text, source FROM logged_event WHERE kind = 'hung_task' ORDER BY ALL",
        kinds=("hung_task",),
    )
    found: dict[int, list[tuple[int, str, str]]] = defaultdict(list)
    for host, pid, text, source in rows:
        rank, said = known.rank(host, pid), _BLOCKED.search(text)
        if rank is not None and said and roster.rank(rank).pid in (pid, None) and set(roster.rank(rank).thread_states) == {"D"}:
            found[rank].append((int(said[1]), text, source))
    return BlockedTasks({rank: _blocked(rank, lines) for rank, lines in sorted(found.items())})


def _blocked(rank: int, lines: list[tuple[int, str, str]]) -> BlockedTask:
    seconds, text, source = max(lines)
    return BlockedTask(seconds, len(lines), Evidence(f"the kernel reports of rank {rank}: {text}", source))


def of_blocked_task(finding: Finding, lines: KernelLines) -> Finding:
    """A finding on one rank of unknown cause, with what the kernel wrote where its process is blocked; else unchanged."""
    blocked = [line for line in lines.get(finding.ranks[0], ()) if _BLOCKED.search(line.statement)]
    if not blocked or len(finding.ranks) > 1 or finding.cause is not Cause.UNKNOWN:
        return finding
    stage = replace(finding.stage, component=Component.HOST)
    return replace(finding, cause=Cause.HOST_STALL, stage=stage, evidence=(*finding.evidence, *blocked))


LostStorage = NewType("LostStorage", Mapping[str | None, tuple[Evidence, ...]])
"""Servers of files that the kernel of each host lost, and has not reported as back."""


@reduction
def lost_storage(connection: DuckDBPyConnection) -> LostStorage:
    """Read the last word on each server."""
    rows = rows_of(
        connection,
        "log_events",
        """
        SELECT host, text, source FROM logged_event
        WHERE kind IN ('server_not_responding', 'server_ok', 'client_evicted', 'ceph_session_lost')
        QUALIFY row_number() OVER (PARTITION BY host, subject ORDER BY time_ns DESC NULLS LAST, path, locator DESC) = 1
            AND kind <> 'server_ok'
        ORDER BY ALL
        """,
        kinds=("server_not_responding", "client_evicted", "ceph_session_lost"),
    )
    found: dict[str | None, list[Evidence]] = defaultdict(list)
    for host, text, source in rows:
        found[host].append(Evidence(f"the kernel of {host or 'a host'} lost its storage: {text}", source))
    return LostStorage({host: tuple(lines) for host, lines in found.items()})
