"""Whose logs are that differ by one number in their names, `worker-0.out` to `worker-7.out`.

The number may be that of a rank, of a node or of a try. It is the rank where some of the logs state the rank of their
process, in each of these it is the number of the file, and the numbers of all files are 0 to n - 1.
A number that was taken for a rank from the name alone is none where a log of the same folder states another rank, or where the
logs are of several runs: one finished and another failed, or one trained after another.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence

from forensics.case.database import Connection, has_rows
from forensics.case.owners import LINES_OF_A_LOG, give_log

_LOGS = """
SELECT source_id, path, rank, rank IS NULL OR rank_method = 'guessed' FROM sources
WHERE kind = 'training_log' AND status IN ('ok', 'partial') ORDER BY path
"""
# Lines that state no rank have that of a guess.
_STATED = """
SELECT source_id, list(DISTINCT rank) FROM (
    SELECT * FROM (
        SELECT source_id, rank FROM log_events WHERE kind NOT IN ('process_exit', 'several_nodes', 'node_failed')
        UNION SELECT source_id, rank FROM log_progress
        UNION SELECT source_id, rank FROM log_positions WHERE pid IS NULL
    ) WHERE source_id NOT IN (SELECT source_id FROM sources WHERE rank_method = 'guessed')
    UNION SELECT source_id, try_cast(value AS INTEGER) FROM job_config WHERE key = 'log.own_rank'
    UNION SELECT source_id, try_cast(split_part(value, ' ', 2) AS INTEGER) FROM job_config WHERE key = 'log.process'
) WHERE rank IS NOT NULL GROUP BY source_id
"""
# Logs whose rank is only the number in their names.
_NUMBERED = """
    SELECT source_id, rank, regexp_extract(path, '(.*/)?', 0) AS folder FROM sources
    WHERE kind = 'training_log' AND rank_method = 'guessed'
"""
# What a process writes of itself: a launcher, or a rank that reports others, states ranks that are not its own.
_REFUTED = f"""
WITH numbered AS ({_NUMBERED}), stated AS (
    SELECT source_id, rank FROM log_events WHERE kind IN ('exception', 'fatal_error', 'traceback', 'watchdog_timeout')
    UNION SELECT source_id, rank FROM log_progress
    UNION SELECT source_id, try_cast(value AS INTEGER) FROM job_config WHERE key = 'log.own_rank'
), refuted AS (
    SELECT folder FROM numbered n JOIN stated t USING (source_id) WHERE t.rank IS NOT NULL
    GROUP BY n.source_id, folder HAVING bool_and(t.rank <> n.rank)
)
SELECT source_id, rank FROM numbered n WHERE folder IN (SELECT folder FROM refuted) AND NOT EXISTS (
    SELECT 1 FROM job_config c WHERE c.source_id = n.source_id AND c.key = 'log.own_rank' AND c.value = CAST(n.rank AS VARCHAR)
)
ORDER BY source_id
"""
# One job does not end for some ranks and fail for others, nor train for one after it has for another.
_OF_RUNS = f"""
WITH numbered AS ({_NUMBERED}), ends AS (
    SELECT folder, source_id, bool_or(kind = 'job_finished') AS finished,
        bool_or(kind IN ('exception', 'fatal_error', 'watchdog_timeout', 'process_exit')) AS failed
    FROM numbered JOIN log_events USING (source_id) GROUP BY ALL
), trained AS (
    SELECT folder, min(at_s) AS first, max(at_s) AS last FROM numbered JOIN log_progress USING (source_id)
    WHERE clock = 'line' GROUP BY folder, source_id HAVING count(*) >= 3
)
SELECT source_id, rank FROM numbered WHERE folder IN (
    SELECT folder FROM ends GROUP BY folder HAVING bool_or(finished) AND bool_or(failed AND NOT finished)
    UNION SELECT folder FROM trained GROUP BY folder HAVING max(first) > min(last) + 60
) ORDER BY ALL
"""
_GUESSED = "SELECT 1 FROM sources WHERE kind = 'training_log' AND rank_method = 'guessed' LIMIT 1"
_NUMBER = re.compile(r"(?<!\d)\d{1,6}(?!\d)")
_LEAST, _LEAST_STATED = 3, 2


def name_numbered_logs(connection: Connection) -> None:
    """Give the logs of such a family that state no rank the number in their names, and prove where that was a guess."""
    logs = connection.execute(_LOGS).fetchall()
    unnamed = {source_id: rank for source_id, _, rank, is_open in logs if is_open}
    if len(logs) < _LEAST or not unnamed:
        return
    stated = dict(connection.execute(_STATED).fetchall())
    for family in _families([(source_id, path) for source_id, path, *_ in logs]):
        known = {number: stated.get(source_id, []) for number, source_id in family.items()}
        if _are_ranks(known):
            for number, source_id in family.items():
                if unnamed.get(source_id, -1) in (None, number):
                    give_log(connection, source_id, number)


def forget_refuted_numbers(connection: Connection) -> None:
    """Take no number in a name for a rank in a folder of which one log states another, or that has logs of several runs."""
    if not connection.execute(_GUESSED).fetchall():
        return
    for source_id, rank in connection.execute(_REFUTED).fetchall() + connection.execute(_OF_RUNS).fetchall():
        connection.execute("UPDATE sources SET rank = NULL, rank_method = NULL WHERE source_id = $1", [source_id])
        for table in LINES_OF_A_LOG:
            if has_rows(connection, table):
                connection.execute(f"UPDATE {table} SET rank = NULL WHERE source_id = $1 AND rank = $2", [source_id, rank])


def _families(logs: Sequence[tuple[int, str]]) -> Iterable[Mapping[int, int]]:
    """Files whose names are alike but for one number, by that number."""
    found: dict[tuple[str, str], dict[int, list[int]]] = defaultdict(lambda: defaultdict(list))
    for source_id, path in logs:
        start = path.rfind("/") + 1
        for number in _NUMBER.finditer(path, start):
            found[path[: number.start()], path[number.end() :]][int(number[0])].append(source_id)
    for family in found.values():
        if len(family) >= _LEAST and all(len(files) == 1 for files in family.values()):
            yield {number: source_id for number, (source_id,) in family.items()}


def _are_ranks(known: Mapping[int, Sequence[int]]) -> bool:
    """Whether the numbers are those of ranks: all from 0 up, and each log that states a rank states this one alone."""
    reported = {number: ranks for number, ranks in known.items() if ranks}
    dense = {*known} == {*range(len(known))}
    return dense and len(reported) >= _LEAST_STATED and all([*ranks] == [number] for number, ranks in reported.items())
