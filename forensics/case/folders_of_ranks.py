"""Whose the stacks are that lie in one folder with the dump or the log of one rank: a folder for each host, pod or rank.

The folder must show one process, and one rank in all that is below it. That each folder holds one rank is known where ranks
that follow each other lie in different ones: of nodes with several ranks, one may hold the log of this and the stack of that.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping

from forensics.case.database import Connection
from forensics.vocabulary import GUESSED

# What a process writes of itself tells its rank; what it reports of others does not.
_RANKS = f"""
SELECT path, rank FROM sources WHERE rank IS NOT NULL AND rank_method IS DISTINCT FROM '{GUESSED}'
UNION SELECT s.path, t.rank FROM sources s JOIN (
    SELECT source_id, rank FROM log_events WHERE kind IN ('exception', 'fatal_error', 'traceback', 'watchdog_timeout')
    UNION SELECT source_id, rank FROM log_progress
    UNION SELECT source_id, try_cast(value AS INTEGER) FROM job_config WHERE key = 'log.own_rank'
) t USING (source_id) WHERE t.rank IS NOT NULL ORDER BY ALL
"""
_PROCESSES = """
SELECT s.path, k.source_id, k.pid, k.host, k.rank FROM stacks k JOIN sources s USING (source_id)
WHERE k.is_main AND k.is_child IS DISTINCT FROM true GROUP BY ALL ORDER BY ALL
"""
_NAMED = "UPDATE stacks SET rank = ? WHERE source_id IN (SELECT unnest(?::BIGINT[])) AND rank IS NULL"


def name_stacks_beside_ranks(connection: Connection) -> None:
    """Give stacks of no known rank that of the folder that they lie in."""
    processes = connection.execute(_PROCESSES).fetchall()
    if all(rank is not None for *_, rank in processes):
        return
    ranks: dict[str, set[int]] = defaultdict(set)
    for path, rank in connection.execute(_RANKS).fetchall():
        for folder in _folders(path):
            ranks[folder].add(rank)
    stacks: dict[str, set[tuple[int, str | None]]] = defaultdict(set)
    sources: dict[str, set[int]] = defaultdict(set)
    for path, source_id, pid, host, _ in processes:
        for folder in _folders(path):
            stacks[folder].add((pid, host))
            sources[folder].add(source_id)
    found = {folder: min(ranks[folder]) for folder, of in stacks.items() if len(of) == len(ranks.get(folder, ())) == 1}
    for folder, rank in _of_one_rank_each(found).items():
        connection.execute(_NAMED, [rank, sorted(sources[folder])])


def _folders(path: str) -> Iterator[str]:
    """The folders that a file lies in, with a closing slash; not the one that holds everything."""
    parts = path.split("/")[:-1]
    yield from ("".join(f"{part}/" for part in parts[: depth + 1]) for depth in range(len(parts)))


def _of_one_rank_each(found: Mapping[str, int]) -> Mapping[str, int]:
    """The outermost folders with one rank each, where these are most of the ranks and two of them follow each other."""
    outermost = {folder: rank for folder, rank in found.items() if not any(f in found for f in _folders(folder[:-1]))}
    ranks = set(outermost.values())
    if len(ranks) < len(outermost) or not any(rank + 1 in ranks for rank in ranks) or 2 * len(ranks) <= max(ranks):
        return {}
    return outermost
