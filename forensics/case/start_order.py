"""Ranks of processes that nothing names: those that run one program are counted in the order of their hosts and ids.

Launchers start the ranks of a host one after the other, some with the number within the host in the command, and count hosts
that are called alike by their numbers, so that the order is mostly right; it is a guess, and said to be one. Who is meant is
shown by the process, which the verdict names too.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence

from forensics.case.alignment import stated_world_sizes
from forensics.case.database import Connection, filled_tables, has_rows, insert_rows, schema_columns
from forensics.ingest._shared.stack_headings import place_in
from forensics.vocabulary import GUESSED

_FEWEST = 2
_OF_PYTHON = ".py"
_NUMBER = re.compile(r"\d+")
# The outermost frame of a main thread is the script that was started: `torchrun` for a launcher, `train.py` for the ranks.
_PROCESSES = """
SELECT k.pid, coalesce(k.host, s.host), k.is_child, min(k.source_id), any_value(f.name || chr(10) || coalesce(f.filename, ''))
FROM stacks k JOIN sources s USING (source_id)
    JOIN (SELECT call_path, arg_max(frame, depth) AS frame FROM call_paths GROUP BY call_path) p USING (call_path)
    JOIN frames f USING (frame)
WHERE k.pid IS NOT NULL AND k.is_main AND k.is_child IS DISTINCT FROM true
GROUP BY ALL ORDER BY ALL
"""
# A main thread that waits at the end for the others has left its script: what these run shows which script it was.
_LEAVING = re.compile(r"_shutdown\n(?:.*/)?threading\.py")
_RUN_BY_THREADS = """
SELECT DISTINCT k.pid, coalesce(k.host, s.host), f.filename FROM stacks k JOIN sources s USING (source_id)
    JOIN call_paths p USING (call_path) JOIN frames f USING (frame)
WHERE k.pid IS NOT NULL AND NOT k.is_main AND f.filename IS NOT NULL ORDER BY ALL
"""
_PLACED = """
UPDATE stacks SET host = n.host FROM (SELECT unnest(?::BIGINT[]) AS source_id, unnest(?::VARCHAR[]) AS host) n
WHERE stacks.source_id = n.source_id AND stacks.host IS NULL
"""
# Their numbers within the host, where their commands give them.
_PLACES = "SELECT DISTINCT pid, host, local_rank FROM process_ranks WHERE pid IS NOT NULL AND local_rank IS NOT NULL"
# Processes of one number in several files that nothing ties to a host.
_NAMESAKES = """
SELECT DISTINCT source_id, path FROM stacks k JOIN sources s USING (source_id)
WHERE k.is_main AND k.is_child IS DISTINCT FROM true AND coalesce(k.host, s.host) IS NULL AND k.rank IS NULL AND k.pid IN (
    SELECT o.pid FROM stacks o JOIN sources q USING (source_id)
    WHERE o.is_main AND coalesce(o.host, q.host) IS NULL AND o.rank IS NULL GROUP BY o.pid HAVING count(DISTINCT source_id) > 1)
ORDER BY ALL
"""
# Those of which no stack could be taken, as they are stopped.
_REFUSED = """
SELECT DISTINCT pid, coalesce(p.host, s.host), p.source_id FROM processes p JOIN sources s USING (source_id)
WHERE s.kind = 'python_stacks' AND pid IS NOT NULL AND pid NOT IN (SELECT pid FROM stacks WHERE pid IS NOT NULL) ORDER BY ALL
"""
_Process = tuple[int, str | None, bool | None, int, str]
_Places = Mapping[tuple[int, str | None], int]


def number_by_start(connection: Connection) -> None:
    """Fill `ranks` from the processes of stacks, where the case names no rank at all."""
    if not has_rows(connection, "stacks") or names_ranks(connection):
        return
    _name_places(connection)
    places = {(pid, host): number for pid, host, number in connection.execute(_PLACES).fetchall()}
    processes = _with_script(connection, connection.execute(_PROCESSES).fetchall())
    peers = _peers(_with_native(processes, places))
    refused = [
        (pid, host, peers[0][2], source, peers[0][4])
        for pid, host, source in (connection.execute(_REFUSED).fetchall() if peers else ())
    ]
    chosen = _in_order([*peers, *refused], places)
    if not stated_world_sizes(connection) <= {len(chosen)}:
        return  # others are missing, and nothing shows which
    rows: list[tuple[object, ...]] = [
        (source, rank, host, pid, GUESSED) for rank, (pid, host, _, source, _) in enumerate(chosen)
    ]
    insert_rows(connection, "ranks", "source_id rank host pid rank_method", rows)


def _name_places(connection: Connection) -> None:
    """Call processes of one number after their files where those are all called by places: pods number their processes alike.

    Where a name counts moments, or all are of one name, the process may be one that was sampled again.
    """
    places = {source: place_in(path) for source, path in connection.execute(_NAMESAKES).fetchall()}
    if len(set(places.values())) >= _FEWEST and None not in places.values():
        connection.execute(_PLACED, [list(places), list(places.values())])


def names_ranks(connection: Connection) -> bool:
    """Whether any file speaks of a rank by its number: which of the processes that is, the order cannot tell."""
    columns = schema_columns()

    def names(table: str) -> bool:
        return bool(connection.execute(f"SELECT 1 FROM {table} WHERE rank IS NOT NULL LIMIT 1").fetchall())

    # Mostly a source is of a rank, and one query tells it.
    return names("sources") or any(names(table) for table in sorted(filled_tables(connection)) if "rank" in columns[table])


def _with_script(connection: Connection, processes: Sequence[_Process]) -> list[_Process]:
    """The processes, those that end with the script of another one which their other threads run too."""
    scripts = {process[4].rpartition("\n")[2]: process[4] for process in processes if not _LEAVING.fullmatch(process[4])}
    if len({process[4] for process in processes}) == len(scripts):
        return list(processes)
    run: dict[tuple[int, str | None], str] = {}
    for pid, host, file in connection.execute(_RUN_BY_THREADS).fetchall():
        if file in scripts:
            run.setdefault((pid, host), scripts[file])
    return [
        (*process[:4], run.get(process[:2], process[4])) if _LEAVING.fullmatch(process[4]) else process for process in processes
    ]


def _with_native(processes: Sequence[_Process], places: _Places) -> list[_Process]:
    """The processes, those without a Python frame as of the one script of all others that have a number within their host."""
    numbers = [
        (process[1], places[process[:2]])
        for process in {each[:2]: each for each in processes}.values()
        if process[:2] in places
    ]
    scripts = {process[4] for process in processes if process[:2] in places and _OF_PYTHON in process[4]}
    if len(scripts) != 1 or len({*numbers}) < len(numbers):
        return list(processes)
    script = scripts.pop()
    return [
        (*process[:4], script) if process[:2] in places and _OF_PYTHON not in process[4] else process for process in processes
    ]


def _peers(processes: Iterable[_Process]) -> list[_Process]:
    """The processes that run what most run; none where too few do."""
    found = list({process[:2]: process for process in processes}.values())
    # Processes of `multiprocessing` may be ranks or children of one: they are the ranks where no two others are.
    of_their_own = _alike([process for process in found if process[2] is False])
    return of_their_own or _alike([process for process in found if process[2] is None])


def _alike(processes: Iterable[_Process]) -> list[_Process]:
    """The largest set that was started alike; none where two are as large, or none has two."""
    by_program: dict[str, list[_Process]] = defaultdict(list)
    for process in processes:
        by_program[process[4]].append(process)
    sizes = sorted(map(len, by_program.values()), reverse=True)
    if not sizes or sizes[0] < _FEWEST or sizes[1:2] == sizes[:1]:
        return []
    return next(each for each in by_program.values() if len(each) == sizes[0])


def _in_order(processes: Iterable[_Process], places: _Places) -> list[_Process]:
    """By host and id, where there is one host, or all hosts are called alike but for numbers and have as many processes."""
    by_host: dict[str | None, list[_Process]] = defaultdict(list)
    for process in processes:
        by_host[process[1]].append(process)
    words = {_NUMBER.sub("#", host or "") for host in by_host}
    if len(by_host) > 1 and (None in by_host or len(words) > 1 or len(set(map(len, by_host.values()))) > 1):
        return []
    hosts = sorted(by_host, key=lambda host: [int(number) for number in _NUMBER.findall(host or "")])
    return [process for host in hosts for process in _of_host(by_host[host], places)]


def _of_host(processes: Iterable[_Process], places: _Places) -> list[_Process]:
    """By their numbers within the host where each has one of its own, else by id."""
    ordered = sorted(processes)
    numbers = {process: places.get(process[:2]) for process in ordered}
    if None in numbers.values() or len(set(numbers.values())) < len(ordered):
        return ordered
    return sorted(ordered, key=lambda process: numbers[process] or 0)
