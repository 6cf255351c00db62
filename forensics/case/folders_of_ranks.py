"""Whose the files are that lie in a folder for each host, pod or rank: by the dump or the log of one rank in it, or its number.

The folder must show one process, and one rank in all that is below it. That each folder holds one rank is known where ranks
that follow each other lie in different ones: of nodes with several ranks, one may hold the log of this and the stack of that.
"""

from __future__ import annotations

import os
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence

from forensics.case.alignment import stated_world_sizes
from forensics.case.call_store import calls_table
from forensics.case.database import Connection
from forensics.vocabulary import GUESSED

# What a process writes of itself shows its rank; what it reports of others does not.
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
# Files of stacks that are called by a number which may be a rank, with the processes in each.
_NUMBERED = f"""
SELECT s.path, s.rank, list(DISTINCT k.pid) FROM sources s JOIN stacks k USING (source_id)
WHERE s.rank_method = '{GUESSED}' AND k.is_main AND k.is_child IS DISTINCT FROM true AND k.pid IS NOT NULL
GROUP BY ALL ORDER BY ALL
"""
_FILES = "SELECT source_id, path, rank_method FROM sources WHERE kind IN ('python_stacks', 'flight_recorder') ORDER BY ALL"
_LONGEST_NUMBER = 5
_Process = tuple[int | None, str | None]
_NAMED = "UPDATE stacks SET rank = ? WHERE source_id IN (SELECT unnest(?::BIGINT[])) AND rank IS NULL"


def forget_numbers_of_looks(connection: Connection) -> None:
    """Take no numbers for ranks that count looks: each of several folders shows one process under all of them, another one."""
    processes: dict[str, set[int]] = defaultdict(set)
    numbers: dict[str, set[int]] = defaultdict(set)
    for path, number, pids in connection.execute(_NUMBERED).fetchall():
        folder = path.rpartition("/")[0]
        processes[folder] |= {*pids}
        numbers[folder].add(number)
    looks = [folder for folder, found in numbers.items() if len(found) > 1 and len(processes[folder]) == 1]
    if len(looks) < 2 or len(set().union(*(processes[folder] for folder in looks))) < len(looks):
        return
    units = tuple(f"{_unit(folder, looks)}/" for folder in looks)
    files = connection.execute(_FILES).fetchall()
    _give(connection, [source_id for source_id, path, method in files if method == GUESSED and path.startswith(units)], None)


def _give(connection: Connection, sources: Sequence[int], rank: int | None) -> None:
    """Make dumps and stacks those of a rank whose number is a guess, or of none that is known."""
    method = None if rank is None else GUESSED
    connection.execute("UPDATE sources SET rank_method = ? WHERE source_id IN (SELECT unnest(?::BIGINT[]))", [method, sources])
    for table in ("sources", "stacks", "group_views", calls_table(connection)):
        connection.execute(f"UPDATE {table} SET rank = ? WHERE source_id IN (SELECT unnest(?::BIGINT[]))", [rank, sources])


def _unit(folder: str, looks: Sequence[str]) -> str:
    """The folder of one process: `atlas-54` of `atlas-54/stacks`, where the others are in folders beside it."""
    common = os.path.commonpath(looks)
    below = folder[len(common) :].lstrip("/").split("/")[0]
    return f"{common}/{below}" if common else below


def name_stacks_beside_ranks(connection: Connection) -> None:
    """Give stacks of no known rank that of the folder that they lie in."""
    processes = connection.execute(_PROCESSES).fetchall()
    if all(rank is not None for *_, rank in processes):
        return
    ranks: dict[str, set[int]] = defaultdict(set)
    for path, rank in connection.execute(_RANKS).fetchall():
        for folder in _folders(path):
            ranks[folder].add(rank)
    stacks: dict[str, set[_Process]] = defaultdict(set)
    sources: dict[str, set[int]] = defaultdict(set)
    for path, source_id, pid, host, _ in processes:
        for folder in _folders(path):
            stacks[folder].add((pid, host))
            sources[folder].add(source_id)
    found = {folder: min(ranks[folder]) for folder, of in stacks.items() if len(of) == len(ranks.get(folder, ())) == 1}
    for folder, rank in _of_one_rank_each(found).items():
        connection.execute(_NAMED, [rank, sorted(sources[folder])])
    single = {folder: next(iter(of)) for folder, of in stacks.items() if len(of) == 1 and not ranks.get(folder)}
    numbered = _called_by_number(single, stated_world_sizes(connection))
    files = connection.execute(_FILES).fetchall() if numbered else []
    for folder, rank in numbered.items():
        _give(connection, [source_id for source_id, path, _ in files if path.startswith(folder)], rank)


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


def _called_by_number(single: Mapping[str, _Process], sizes: set[int | None]) -> Mapping[str, int]:
    """Folders of one process each, another one in each, that are called by all numbers from 0 up, beside each other."""
    found: dict[str, dict[int, str]] = defaultdict(dict)
    for folder in single:
        parent, _, name = folder[:-1].rpartition("/")
        if name.isascii() and name.isdecimal() and len(name) <= _LONGEST_NUMBER:
            found[parent][int(name)] = folder
    families = [each for each in found.values() if len(each) > 1 and {*each} == {*range(len(each))} and sizes <= {len(each)}]
    if len(families) != 1 or len({single[folder] for folder in families[0].values()}) < len(families[0]):
        return {}
    return {folder: rank for rank, folder in families[0].items()}
