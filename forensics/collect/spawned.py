"""Ranks of jobs that set RANK after exec, such as those of torch.multiprocessing.spawn: nothing in their environment tells.

A rank is then a Python process that maps libtorch or jaxlib and holds TCP sockets of its own: the store and the transports of
torch.distributed use TCP, a DataLoader worker at most inherits its parent's. Ranks of one parent are numbered in the order
they were started, which is how spawn numbers them. This is a guess and is reported as one.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace

from forensics.bundle.claims import Claim, claim
from forensics.collect.discovery import WORKER_NAME, Discovery, FoundRank
from forensics.collect.processes import ProcFs, ancestors, inodes
from forensics.collect.scan import Process, Scan
from forensics.collect.script_ranks import script_claims
from forensics.rank_ranges import format_ranks
from forensics.vocabulary import GUESSED


def guess_ranks(procfs: ProcFs, scan: Scan, excluded: frozenset[int], started: Collection[int] = frozenset()) -> Discovery:
    """The largest family of processes that look like ranks; the scan must have looked at the maps of Python processes.

    Families that started one of the processes `started` go before the others.
    """
    above = {pid for one in started for pid in ancestors(scan.stats, one)}
    trainers = [one for pid, one in scan.processes.items() if one.maps_framework and pid not in excluded]
    networked = [one for one in trainers if _has_own_tcp(procfs, one)]
    below = {pid for one in networked for pid in ancestors(scan.stats, one.pid)}
    families: dict[int, list[Process]] = {}
    for process in networked:
        if process.pid not in below:
            families.setdefault(process.stat.ppid, []).append(process)
    if not families:
        return Discovery()
    parent = min(families, key=lambda ppid: (above.isdisjoint(one.pid for one in families[ppid]), -len(families[ppid]), ppid))
    found = numbered(families[parent], frozenset())
    others = sorted(one.pid for ppid, family in families.items() if ppid != parent for one in family)
    pids = ", ".join(str(one.process.pid) for one in found)
    warnings = [
        "no process shows a rank in its environment (jobs started by torch.multiprocessing.spawn do not): guessed ranks "
        f"{format_ranks(one.rank for one in found)} from the start order of the {len(found)} processes of parent {parent} "
        f"that map libtorch or jaxlib and hold their own TCP connections (pids {pids})"
    ]
    if others:
        warnings.append(f"left out processes that look like ranks too: pids {', '.join(map(str, others))}; use --pid to choose")
    return Discovery(found, warnings=tuple(warnings))


def only_inherited(found: Discovery) -> bool:
    """Whether all may only have inherited the rank they show: none maps libtorch or jaxlib, and no elastic launcher made it."""
    launched = any(key == "TORCHELASTIC_RUN_ID" for key, _ in (found.job.values if found.job else ()))
    return bool(found.ranks) and not launched and not any(one.process.maps_framework for one in found.ranks)


def parents_of(found: Discovery, guessed: Discovery, scan: Scan) -> Discovery:
    """The ranks that started what only inherited its number; `found` itself where these are no parents of it.

    What a rank sets after exec its own environment does not show, but that of every program it starts: of a logger, a
    compiler, `python -c`. The number of such a program is that of its parent; ranks that started none get the free numbers.
    """
    pids = {one.process.pid for one in guessed.ranks}
    above = {one.process.pid: pids.intersection(ancestors(scan.stats, one.process.pid)) for one in found.ranks}
    owners = {parent: one for one in found.ranks for parent in above[one.process.pid]}
    alone = len(pids) == 1 and any(one.claim is not None and one.claim.local_rank is not None for one in found.ranks)
    if alone or any(len(parents) != 1 for parents in above.values()) or len(owners) != len(found.ranks):
        return found
    stated = [
        FoundRank(
            owners[one.process.pid].rank, owners[one.process.pid].method, one.process, one.head, owners[one.process.pid].claim
        )
        for one in guessed.ranks
        if one.process.pid in owners
    ]
    rest = [one.process for one in guessed.ranks if one.process.pid not in owners]
    ranks = sorted((*stated, *numbered(rest, frozenset(one.rank for one in stated))), key=lambda one: one.rank)
    children = ", ".join(str(one.process.pid) for one in found.ranks)
    said = (
        f"pid {children} only inherited the number of the rank that started it: took ranks "
        f"{format_ranks(one.rank for one in ranks)}, processes that map libtorch or jaxlib and hold their own TCP connections "
        f"(pids {', '.join(str(one.process.pid) for one in ranks)})"
    )
    return Discovery(tuple(ranks), found.job, found.world_size, {}, (said,), found.jobs_seen)


def given_ranks(scan: Scan, pids: Sequence[int]) -> Discovery:
    """The processes a user named: by their environment where it gives a rank, else numbered in start order.

    Who names all processes of a script names its launcher and its workers too, which are no ranks.
    """
    scripts = script_claims(scan, frozenset())
    every = ((pid, scan.processes[pid]) for pid in pids)
    claims = {pid: claim(process.environ or {}, process.net_ns) or scripts.get(pid) for pid, process in every}
    left_out = [pid for pid in pids if _is_no_rank(scan, pid, claims)]
    claimed: list[FoundRank] = []
    silent: list[Process] = []
    warnings: list[str] = []
    if left_out:
        warnings.append(
            f"left out pid {', '.join(map(str, left_out))}: a launcher, or a process that a rank among them started"
        )
    for pid in (pid for pid in pids if pid not in left_out):
        process, made = scan.processes[pid], claims[pid]
        if made is None or made.rank in (one.rank for one in claimed):
            silent.append(process)
        else:
            claimed.append(FoundRank(made.rank, made.method, process, process, made))
    guessed = numbered(silent, frozenset(one.rank for one in claimed))
    reasons: dict[str, list[FoundRank]] = {}
    for one in guessed:
        reasons.setdefault(one.process.error or "the environment gives no rank, or one that is taken", []).append(one)
    for why, same in reasons.items():
        pids_of_same = ", ".join(str(one.process.pid) for one in same)
        numbers = format_ranks(one.rank for one in same)
        warnings.append(f"pid {pids_of_same} called rank {numbers} by start order only: {why}")
    ranks = sorted((*claimed, *guessed), key=lambda one: one.rank)
    above = {one.process.pid: ancestors(scan.stats, one.process.pid) for one in ranks}
    apart = (replace(one, started=frozenset(pid for pid in above if one.process.pid in above[pid])) for one in ranks)
    sizes = [one.claim.world_size for one in claimed if one.claim and one.claim.world_size is not None]
    job = claimed[0].claim.job if claimed and claimed[0].claim else None
    return Discovery(tuple(apart), job, max(sizes, default=None), warnings=tuple(warnings))


def _is_no_rank(scan: Scan, pid: int, claims: Mapping[int, Claim | None]) -> bool:
    """Whether a named process is a DataLoader worker of another one, has its number from it, or started several ranks."""
    own, above = claims[pid], [other for other in ancestors(scan.stats, pid) if other in claims]
    if above and (scan.processes[pid].stat.comm == WORKER_NAME or (own and own in (claims[other] for other in above))):
        return True
    started = {made.rank for other, made in claims.items() if made and pid in ancestors(scan.stats, other)}
    return own is None and len(started) > 1


def numbered(processes: Sequence[Process], taken: frozenset[int]) -> tuple[FoundRank, ...]:
    """Processes as ranks in start order, with the smallest numbers that are not taken."""
    ordered = sorted(processes, key=lambda one: (one.stat.start_ticks, one.pid))
    free = (rank for rank in range(len(taken) + len(ordered)) if rank not in taken)
    return tuple(FoundRank(rank, GUESSED, one, one) for rank, one in zip(free, ordered, strict=False))


def _has_own_tcp(procfs: ProcFs, process: Process) -> bool:
    """Whether it holds a TCP socket that its parent does not."""
    try:
        own = inodes(procfs.descriptors(process.pid)) & procfs.tcp_inodes(process.pid)
    except OSError:
        return False
    try:
        inherited = inodes(procfs.descriptors(process.stat.ppid))
    except OSError:
        inherited = set()
    return bool(own - inherited)
