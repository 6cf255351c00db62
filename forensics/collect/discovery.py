"""Find the ranks of one job among the processes of a host.

DataLoader workers, checkpoint writers and compile workers inherit RANK from their rank, and wrappers such as `bash -c`
pass it on to theirs. Of all processes in one tree that make the same claim, the trainer is the topmost one that maps
libtorch, else the topmost Python, else the topmost. What is above it is the launcher, what is below it are its children.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from forensics.bundle.claims import Claim, JobId, claim
from forensics.collect.processes import Stat, ancestors, descendants
from forensics.collect.scan import Process, Scan
from forensics.collect.script_ranks import METHOD as BY_SCRIPT
from forensics.collect.script_ranks import script_claims
from forensics.rank_ranges import format_ranks

WORKER_NAME = "pt_data_worker"  # torch/utils/data/_utils/worker.py


@dataclass(frozen=True, slots=True)
class FoundRank:
    """A living rank: its process, how its number was found, the top of its tree, and processes of it that lost their parent.

    `started` are other ranks that it started, with the tops of their trees.
    """

    rank: int
    method: str
    process: Process
    head: Process
    claim: Claim | None = None
    detached: tuple[int, ...] = ()
    started: frozenset[int] = frozenset()


@dataclass(frozen=True, slots=True)
class Discovery:
    """The ranks of the chosen job on this host, and what the user should know of the choice.

    `orphans` are processes that carry the number of a rank whose own process is gone.
    """

    ranks: tuple[FoundRank, ...] = ()
    job: JobId | None = None
    world_size: int | None = None
    orphans: Mapping[int, tuple[Process, ...]] = field(default_factory=dict)
    warnings: tuple[str, ...] = ()
    jobs_seen: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Candidate:
    """A process that may be a rank: the trainer and the top of the tree that makes the same claim."""

    trainer: Process
    head: Process
    claim: Claim


def discover(scan: Scan, excluded: frozenset[int], job: str | None = None) -> Discovery:
    """The ranks of the job with most ranks on this host, or of the one that `job` names."""
    stats = scan.stats
    claims = _claims(scan, excluded)
    candidates = _without_launchers(stats, list(_candidates(scan, stats, claims)))
    groups: dict[JobId, list[Candidate]] = {}
    for candidate in candidates:
        groups.setdefault(candidate.claim.job, []).append(candidate)
    seen = tuple(_describe(key, groups[key]) for key in sorted(groups, key=lambda key: _weight(groups[key])))
    chosen = [key for key in groups if job is None or key.matches(job)]
    if not chosen:
        return Discovery(jobs_seen=seen)
    best = min(chosen, key=lambda key: _weight(groups[key]))
    found = _resolve(stats, groups[best], best)
    others = [key for key in chosen if key != best]
    return Discovery(
        found.ranks,
        best,
        found.world_size,
        found.orphans,
        (*_other_jobs(best, groups, others), *found.warnings),
        seen,
    )


def own_tree(scan: Scan, own_pid: int, began_ticks: int = 0) -> frozenset[int]:
    """The collector, what it started since it began (clock ticks since boot), and the shells above it.

    A trainer that started the collector, and ranks that a test has started beside it, are not left out.
    """
    stats = scan.stats
    above = (pid for pid in ancestors(stats, own_pid) if not scan.processes[pid].maps_framework)
    below = (pid for pid in descendants(stats, own_pid) if stats[pid].start_ticks >= began_ticks)
    return frozenset({own_pid, *below, *above})


def choose_ranks(discovery: Discovery, wanted: frozenset[int]) -> tuple[FoundRank, ...]:
    """The found ranks that the user asked for."""
    return tuple(found for found in discovery.ranks if found.rank in wanted)


def _claims(scan: Scan, excluded: frozenset[int]) -> dict[int, Claim]:
    claims: dict[int, Claim] = {}
    for pid, process in scan.processes.items():
        if pid not in excluded and process.environ and process.stat.state not in "ZX":
            found = claim(process.environ, process.net_ns)
            if found is not None:
                claims[pid] = found
    return {**script_claims(scan, excluded), **claims}


def _candidates(scan: Scan, stats: Mapping[int, Stat], claims: Mapping[int, Claim]) -> Iterable[Candidate]:
    """One candidate for each topmost process of a claim."""
    for pid, made in claims.items():
        if claims.get(stats[pid].ppid) == made:
            continue
        same = [pid, *(below for below in descendants(stats, pid) if claims.get(below) == made)]
        processes = [scan.processes[each] for each in same]
        trainer = next((one for one in processes if one.maps_framework), None)
        trainer = trainer or next((one for one in processes if one.is_python), processes[0])
        yield Candidate(trainer, scan.processes[pid], made)


def _without_launchers(stats: Mapping[int, Stat], candidates: Sequence[Candidate]) -> list[Candidate]:
    """Leave out launchers (the variables of a pod or of srun give them a number too) and what ranks started with another."""
    pids = {candidate.trainer.pid: candidate for candidate in candidates}
    below: dict[int, list[Candidate]] = {}
    for candidate in candidates:
        for pid in ancestors(stats, candidate.head.pid):
            if pid in pids:
                below.setdefault(pid, []).append(candidate)
    ranks = [one for one in candidates if not _is_launcher(one, below.get(one.trainer.pid, []))]
    kept = {one.trainer.pid: one.claim for one in ranks}
    return [one for one in ranks if all(_started_itself(kept.get(pid), one) for pid in ancestors(stats, one.head.pid))]


def _started_itself(above: Claim | None, candidate: Candidate) -> bool:
    """Whether a process above a rank is none, or that of the script which started itself once more."""
    return above is None or (above.method == candidate.claim.method == BY_SCRIPT and above.job == candidate.claim.job)


def _is_launcher(candidate: Candidate, below: Sequence[Candidate]) -> bool:
    if candidate.claim.local_rank is not None and candidate.claim.method in ("RANK", BY_SCRIPT):
        return False
    distinct = {one.claim.rank for one in below}
    return len(distinct) > 1 or any(one.claim.local_rank is not None for one in below)


def _resolve(stats: Mapping[int, Stat], group: Sequence[Candidate], job: JobId) -> Discovery:
    """One process for each rank of a job: orphans set aside, collisions decided and stated."""
    orphaned = {one.trainer.pid for one in group if _is_orphan(stats, one, group)}
    by_rank: dict[int, list[Candidate]] = {}
    for candidate in sorted(group, key=_preference):
        by_rank.setdefault(candidate.claim.rank, []).append(candidate)
    ranks: list[FoundRank] = []
    orphans: dict[int, tuple[Process, ...]] = {}
    warnings: list[str] = []
    for rank, rivals in sorted(by_rank.items()):
        living = [one for one in rivals if one.trainer.pid not in orphaned]
        lost = tuple(one.trainer for one in rivals if one.trainer.pid in orphaned)
        if not living:
            orphans[rank] = lost
            continue
        warnings.extend(_collision(rank, living))
        best = living[0]
        detached = tuple(process.pid for process in lost)
        started = frozenset(one.head.pid for one in group if best.trainer.pid in ancestors(stats, one.head.pid))
        ranks.append(FoundRank(rank, best.claim.method, best.trainer, best.head, best.claim, detached, started))
    sizes = sorted({one.claim.world_size for one in group if one.claim.world_size is not None})
    if len(sizes) > 1:
        warnings.append(f"the ranks disagree on the size of the job ({', '.join(map(str, sizes))}); took the largest")
    return Discovery(tuple(ranks), job, sizes[-1] if sizes else None, orphans, tuple(warnings))


def _is_orphan(stats: Mapping[int, Stat], candidate: Candidate, group: Sequence[Candidate]) -> bool:
    """Whether a process is what a dead rank left behind: started after the ranks, and adopted by an ancestor of their launcher.

    A process whose parent dies is given to the nearest reaper above, so its parent is then above the launcher that the
    other ranks still have. torch names the main thread of a DataLoader worker, which a rank never has.
    """
    if candidate.trainer.stat.comm == WORKER_NAME:
        return True
    parent = candidate.head.stat.ppid
    others = [one for one in group if one.claim.rank != candidate.claim.rank and one.head.stat.ppid != parent]
    if not others or not all(parent in ancestors(stats, one.head.stat.ppid) for one in others):
        return False
    return candidate.head.stat.start_ticks > max(one.head.stat.start_ticks for one in others)


def _preference(candidate: Candidate) -> tuple[int, bool, int, int]:
    stat = candidate.trainer.stat
    return candidate.claim.rank, not candidate.trainer.maps_framework, stat.start_ticks, stat.pid


def _weight(group: Sequence[Candidate]) -> tuple[int, int]:
    """Sort key of a job: most ranks first, then the oldest."""
    return -len({one.claim.rank for one in group}), min(one.trainer.stat.start_ticks for one in group)


def _describe(job: JobId, group: Sequence[Candidate]) -> str:
    return f"{job.describe()} (ranks {format_ranks({one.claim.rank for one in group})})"


def _collision(rank: int, rivals: Sequence[Candidate]) -> Iterable[str]:
    if len(rivals) > 1:
        pids = ", ".join(str(one.trainer.pid) for one in rivals[1:])
        why = "maps libtorch or jaxlib and started first" if rivals[0].trainer.maps_framework else "started first"
        yield f"rank {rank} is claimed by several processes: took pid {rivals[0].trainer.pid} ({why}), left out {pids}"


def _other_jobs(best: JobId, groups: Mapping[JobId, Sequence[Candidate]], others: Sequence[JobId]) -> Iterable[str]:
    if not others:
        return
    taken = {one.claim.rank for one in groups[best]}
    clash = taken & {one.claim.rank for key in others for one in groups[key]}
    collide = f" whose ranks collide (rank {format_ranks(clash)})" if clash else ""
    yield f"{len(others) + 1} jobs run on this host{collide}: took {_describe(best, groups[best])}"
    for key in others:
        yield f"left out {_describe(key, groups[key])}; collect it with --job {key.name or '?'}"
