"""From what was discovered to what the collectors are given: one target for each rank with or without a process."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence

from forensics.collect.absence import MissingRank
from forensics.collect.collectors.log_files import RankLogs, infer_logs, is_file, open_logs
from forensics.collect.discovery import FoundRank
from forensics.collect.plan import shared_log_path
from forensics.collect.processes import ProcFs
from forensics.collect.target import Context, Target, start_ns


def make_targets(context: Context, found: Sequence[FoundRank], missing: Sequence[MissingRank]) -> list[Target]:
    """Targets in rank order; ranks that may be on another node are not among them."""
    logs = [_rank_logs(context.procfs, one) for one in found]
    shared = _shared(context.node, logs)
    living = [_living(one, shared) for one in found]
    dead = [_dead(one, found, logs, shared) for one in missing if one.state != "unknown"]
    return sorted([*living, *dead], key=lambda target: target.rank)


def local_rank_of(rank: int, found: Sequence[FoundRank]) -> int | None:
    """Local rank of a rank of this host, from the block of ranks that the living ones give."""
    firsts = {one.claim.rank - one.claim.local_rank for one in found if one.claim and one.claim.local_rank is not None}
    return rank - firsts.pop() if len(firsts) == 1 else None


def _rank_logs(procfs: ProcFs, found: FoundRank) -> RankLogs:
    try:
        names = tuple(dict.fromkeys(name for name in open_logs(procfs, found.process.pid).values() if is_file(name)))
    except OSError:
        names = ()
    return RankLogs(found.rank, found.claim.local_rank if found.claim else None, names)


def _shared(node: str, logs: Sequence[RankLogs]) -> dict[str, str]:
    """Member of each log that more than one rank writes."""
    writers = Counter(name for one in logs for name in one.paths)
    names = [name for name, count in writers.items() if count > 1]
    return {name: shared_log_path(node, name, names) for name in names}


def _living(found: FoundRank, shared: Mapping[str, str]) -> Target:
    process = found.process
    return Target(
        found.rank,
        "alive",
        process.pid,
        process.pid,
        found.rank,
        process.uid,
        process.environ or {},
        start_ns(process.stat),
        found.detached,
        shared,
        start_ticks=process.stat.start_ticks,
        started=found.started,
    )


def _dead(missing: MissingRank, found: Sequence[FoundRank], logs: Sequence[RankLogs], shared: Mapping[str, str]) -> Target:
    """A rank without a process, seen through a living rank of its job."""
    if not found:
        return Target(missing.rank, missing.state, missing.pid)
    witness = found[0]
    guessed = infer_logs(missing.rank, local_rank_of(missing.rank, found), logs)
    return Target(
        missing.rank,
        missing.state,
        missing.pid,
        witness.process.pid,
        witness.rank,
        witness.process.uid,
        witness.process.environ or {},
        min(start_ns(one.process.stat) for one in found),
        missing.orphans,
        shared,
        guessed,
    )
