"""Ranks that should run on this host and do not: which they are, and how they ended where that can still be read.

A rank is expected here when the launcher's numbers say so, or when the job can only live on this host. A process that
died and was not reaped stays as a zombie of its launcher: it has no environment any more, but its wait status is there.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import combinations
from math import comb

from forensics.bundle.claims import is_loopback
from forensics.collect.discovery import Discovery, FoundRank
from forensics.collect.scan import Process, Scan
from forensics.rank_ranges import format_ranks

_MAX_UNKNOWN = 256
# A launcher that never reaps keeps the dead of earlier launches; ranks of one launch start together.
_SAME_LAUNCH_S = 300
_MOST_CHOICES = 1000
_MOST_NAMED = 4


@dataclass(frozen=True, slots=True)
class MissingRank:
    """A rank of the job without a living process: `absent`, `zombie`, or `unknown` when it may be on another node."""

    rank: int
    state: str
    method: str
    pid: int | None = None
    exit_signal: int | None = None
    exit_code: int | None = None
    orphans: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class _Expected:
    ranks: frozenset[int]
    method: str


def missing_ranks(discovery: Discovery, scan: Scan, own_uid: int | None = None) -> tuple[MissingRank, ...]:
    """Every rank that is expected on this host, or may be, and has no living process here."""
    living = {one.rank for one in discovery.ranks}
    if discovery.world_size is None or not discovery.ranks:
        return ()
    dead = _dead_siblings(discovery.ranks, scan)
    expected = _expected(discovery.ranks, discovery.world_size, len(dead))
    if expected is None:
        unseen = [rank for rank in range(discovery.world_size) if rank not in living]
        reason = "not found here; may be on another node: which ranks this node should have is unknown"
        return tuple(_missing(rank, "unknown", reason, discovery) for rank in unseen[:_MAX_UNKNOWN])
    missing = sorted(expected.ranks - living)
    assigned, how = _assign(missing, dead, discovery.ranks)
    uid = os.geteuid() if own_uid is None else own_uid
    unread = _unread_siblings(discovery.ranks, scan)
    state, why = ("unknown", f"may be {unread}") if unread else ("absent", "no such process is running")
    return tuple(
        _zombie(rank, assigned[rank], f"{expected.method}; {how}", discovery, uid)
        if rank in assigned
        else _missing(rank, state, "; ".join(filter(None, (expected.method, why, how))), discovery)
        for rank in missing
    )


def _missing(rank: int, state: str, method: str, discovery: Discovery) -> MissingRank:
    orphans = tuple(process.pid for process in discovery.orphans.get(rank, ()))
    if orphans:
        pids = ", ".join(map(str, orphans))
        method += f"; pid {pids} carries its number but is a child that the dead rank left behind"
    return MissingRank(rank, state, method, orphans=orphans)


def _zombie(rank: int, process: Process, method: str, discovery: Discovery, uid: int) -> MissingRank:
    number, code, ending = end_of(process.stat.end, uid == 0 or process.uid == uid)
    found = _missing(rank, "zombie", f"{method}; {ending}", discovery)
    return MissingRank(rank, "zombie", found.method, process.pid, number, code, found.orphans)


def end_of(wait_status: int, readable: bool) -> tuple[int | None, int | None, str]:
    """Signal, exit code, and both in words, of a wait status. The kernel shows 0 to those who may not read it."""
    if wait_status == 0 and not readable:
        return None, None, "how it ended may only be read by its user or root"
    if number := wait_status & 0x7F:
        names = {each.value: each.name for each in signal.Signals}
        return number, None, f"killed by signal {number} ({names.get(number, 'real-time')})"
    code = wait_status >> 8 & 0xFF
    return None, code, f"exited with code {code}"


def _expected(ranks: Sequence[FoundRank], world: int, dead: int) -> _Expected | None:
    """The ranks this host should have, and how that is known; None when nothing tells."""
    placed = _placement(ranks)
    if placed is not None:
        return placed
    everything = frozenset(range(world))
    missing = world - len({one.rank for one in ranks})
    claims = [one.claim for one in ranks if one.claim]
    addresses = {value for claim in claims for key, value in claim.job.values if key == "MASTER_ADDR"}
    if missing <= 0:
        return _Expected(everything, f"all {world} ranks of the job run here")
    if addresses and all(is_loopback(address) for address in addresses):
        return _Expected(everything, f"MASTER_ADDR is {min(addresses)}, so all {world} ranks run on this host")
    if dead == missing:
        return _Expected(everything, f"the launcher has as many dead children ({dead}) as ranks are missing")
    return None


def _placement(ranks: Sequence[FoundRank]) -> _Expected | None:
    """The block of ranks that local rank and local size give, if all living ranks agree on it."""
    blocks: set[tuple[int, int]] = set()
    for one in ranks:
        claim = one.claim
        if claim is None or claim.local_rank is None or not claim.local_size:
            return None
        blocks.add((claim.rank - claim.local_rank, claim.local_size))
    if len(blocks) != 1:
        return None
    (first, size), *_ = blocks
    expected = frozenset(range(first, first + size))
    if first < 0 or not {one.rank for one in ranks} <= expected:
        return None
    return _Expected(expected, f"this node has {size} ranks from rank {first} on (local rank and local world size)")


def _dead_siblings(ranks: Sequence[FoundRank], scan: Scan) -> list[Process]:
    """Zombies with the parent and the name of living ranks that started about when those did, in start order."""
    earliest = min(one.head.stat.start_ticks for one in ranks) - _SAME_LAUNCH_S * os.sysconf("SC_CLK_TCK")
    parents = {one.head.stat.ppid for one in ranks}
    names = {one.head.stat.comm for one in ranks}
    dead = [
        process
        for process in scan.processes.values()
        if process.stat.state == "Z"
        and process.stat.ppid in parents
        and process.stat.start_ticks >= earliest
        and _same_program(process.stat.comm, names)
    ]
    return sorted(dead, key=_order)


def _unread_siblings(ranks: Sequence[FoundRank], scan: Scan) -> str | None:
    """Processes that may be a rank and could not be asked which: of the same parent or program, and not of another user."""
    parents = {one.head.stat.ppid for one in ranks}
    names = {one.stat.comm for rank in ranks for one in (rank.head, rank.process)}
    users = {None, *(one.process.uid for one in ranks)}
    found = [
        process
        for process in scan.processes.values()
        if process.is_unread
        and process.uid in users
        and (process.stat.ppid in parents or _same_program(process.stat.comm, names))
    ]
    if not found:
        return None
    pids = ", ".join(str(process.pid) for process in found[:_MOST_NAMED])
    return f"pid {pids}, whose environment was not read: {found[0].error}"


def _same_program(comm: str, names: Iterable[str]) -> bool:
    """Whether a zombie's name fits: torch renames the main thread of a rank only when it is imported."""
    return comm in names or comm.startswith("python")


def _assign(missing: Sequence[int], dead: Sequence[Process], ranks: Sequence[FoundRank]) -> tuple[dict[int, Process], str]:
    """Which dead child was which missing rank, and how that is known; empty when it is not."""
    if not dead or not missing:
        return {}, ""
    pids = ", ".join(str(process.pid) for process in dead)
    if len(missing) == 1 and len(dead) == 1:
        return {missing[0]: dead[0]}, f"pid {pids} is the only dead child of the launcher and this the only missing rank"
    fitting = [chosen for chosen in _choices(dead, len(missing)) if _in_start_order(missing, chosen, ranks)]
    if len(fitting) == 1:
        how = "assigned to the launcher's dead children by start order, as ranks start in order"
        return dict(zip(missing, fitting[0], strict=True)), how
    return {}, f"the launcher has dead children (pids {pids}) that cannot be assigned to ranks {format_ranks(missing)}"


def _choices(dead: Sequence[Process], count: int) -> Iterable[Sequence[Process]]:
    """Ways to choose that many dead children; none when they are too many to try."""
    return combinations(dead, count) if comb(len(dead), count) <= _MOST_CHOICES else ()


def _in_start_order(missing: Sequence[int], dead: Sequence[Process], ranks: Sequence[FoundRank]) -> bool:
    """Whether numbering all siblings by start gives every living rank its own number."""
    living = {one.head.pid: one.rank for one in ranks}
    siblings = sorted([*(one.head for one in ranks), *dead], key=_order)
    numbers = sorted([*missing, *living.values()])
    return all(living.get(process.pid, rank) == rank for process, rank in zip(siblings, numbers, strict=True))


def _order(process: Process) -> tuple[int, int]:
    return process.stat.start_ticks, process.pid
