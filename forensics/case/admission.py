"""Keep dumps of another job, or of an earlier attempt, and logs of another job out of the diagnosis.

A Flight Recorder dump says neither which job nor which process it is from. Two signs remain: when its operations happened, and
whether they are the operations of its peers. A dump that is turned away stays in `sources` with the reason, and is warned of.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from duckdb import DuckDBPyConnection

from forensics.case.call_store import calls_table
from forensics.case.database import rows_of

# A hung rank and its peers stop within one watchdog timeout; an hour is beyond any that is in use.
SLACK_NS = 3_600_000_000_000
# Share of common operations that must agree with the majority: a real mismatch is one operation, another job is all of them.
LEAST_AGREEMENT = 0.2
LEAST_COMMON = 8

_WINDOWS = """
SELECT s.source_id, s.path, s.rank, min(o.enqueued_ns), max(o.enqueued_ns)
FROM operations o JOIN sources s USING (source_id)
WHERE o.enqueued_ns IS NOT NULL AND s.rank IS NOT NULL GROUP BY ALL ORDER BY s.path
"""

_JOBS = """
SELECT source_id, TRY_CAST(c.value AS BIGINT) AS job FROM job_config c JOIN sources s USING (source_id)
WHERE c.key = 'job.id' AND s.kind = 'training_log' AND s.rank IS NOT NULL AND job IS NOT NULL ORDER BY source_id
"""
MOST_PARTS = 8
"""Parts of one heterogeneous job of Slurm have numbers that follow each other."""
_OF_LOGS = ("log_events", "log_progress", "log_positions", "log_calls", "log_stage_times")

# When the collector inside the ranks began to log.
_LOGGED_SINCE = "SELECT min(begin_ns) FROM coverage WHERE kind = 'shim_log' AND scope = 'rank' AND source_id IS NOT NULL"

# Two dumps are of one process when a record that both hold was made at the same time.
_OTHER_PROCESS = """
SELECT a.source_id, b.source_id FROM operations a JOIN operations b
ON a.rank = b.rank AND a.source_id < b.source_id AND a.record_id = b.record_id
WHERE a.rank IN (SELECT rank FROM operations GROUP BY rank HAVING count(DISTINCT source_id) > 1)
GROUP BY ALL HAVING bool_and(a.enqueued_ns <> b.enqueued_ns) ORDER BY ALL
"""

# The sizes of these may differ from rank to rank in every call.
_UNEVEN = "kind LIKE '%all\\_to\\_all%' ESCAPE '\\' OR kind LIKE '%\\_v' ESCAPE '\\' OR kind IN ('gather', 'scatter')"
_SIGNATURE = f"kind || CASE WHEN {_UNEVEN} THEN '' ELSE ' ' || coalesce(input_sizes, '') END"

_UNEQUAL = f"""
WITH compared AS NOT MATERIALIZED (
    SELECT source_id, rank, pg_name, backend, sequence, {_SIGNATURE} AS signature,
           hash(kind, CASE WHEN {_UNEVEN} THEN NULL ELSE input_sizes END) AS digest
    FROM operations WHERE pg_name IS NOT NULL AND sequence IS NOT NULL AND NOT coalesce(is_p2p, false)
    AND input_sizes IS NOT NULL  -- a trace of the same calls has none
), unequal AS (
    SELECT pg_name, backend, sequence FROM compared
    GROUP BY pg_name, backend, sequence HAVING min(digest) <> max(digest)
)"""
# A dump can only be turned away for many calls that somebody made differently. A sound job has none, which is asked alone, and
# a real mismatch has one: the vote over all operations, which is slow, is then over nothing.
_ANY_UNEQUAL = f"{_UNEQUAL} SELECT 1 FROM unequal LIMIT 1"
_AGREEMENT = f"""
{_UNEQUAL}, strangers AS (
    SELECT source_id FROM compared JOIN unequal USING (pg_name, backend, sequence)
    GROUP BY source_id HAVING count(*) >= {LEAST_COMMON} * {1 - LEAST_AGREEMENT}
), calls AS (
    SELECT DISTINCT source_id, rank, pg_name, backend, sequence, signature FROM compared
    WHERE EXISTS (SELECT 1 FROM strangers)
), votes AS (
    SELECT pg_name, backend, sequence, signature, count(DISTINCT rank) AS votes FROM calls GROUP BY ALL
), majority AS (
    SELECT pg_name, backend, sequence, CASE WHEN 2 * max(votes) > sum(votes) THEN arg_max(signature, votes) END AS signature
    FROM votes GROUP BY pg_name, backend, sequence HAVING sum(votes) > 2
)
SELECT c.source_id, avg(CAST(c.signature = m.signature AS DOUBLE)) FILTER (m.signature IS NOT NULL) AS agreement,
       avg(CAST(m.signature IS NULL AS DOUBLE)) AS tied
FROM calls c JOIN majority m USING (pg_name, backend, sequence)
GROUP BY c.source_id HAVING count(*) >= {LEAST_COMMON} AND (agreement < {LEAST_AGREEMENT} OR tied > {1 - LEAST_AGREEMENT})
ORDER BY c.source_id
"""
_UNNUMBERED = "UPDATE sources SET rank = NULL, rank_method = NULL WHERE source_id IN (SELECT unnest(?::BIGINT[]))"


@dataclass(frozen=True, slots=True)
class _Dump:
    source_id: int
    path: str
    rank: int
    first_ns: int
    last_ns: int


def admit(connection: DuckDBPyConnection) -> None:
    """Turn away dumps that are not of this job's newest attempt, and logs of another job: their rows leave the tables."""
    for source_id, reason in _of_another_job(connection):
        _refuse(connection, source_id, reason)
    dumps = [_Dump(*row) for row in rows_of(connection, "operations", _WINDOWS)]
    if not dumps:
        return
    refused = dict(_before_the_logs(connection, dumps))
    refused |= dict(_of_another_time([dump for dump in dumps if dump.source_id not in refused]))
    left = [dump for dump in dumps if dump.source_id not in refused]
    unnumbered: list[int] = []
    if len(left) > 1:
        claims = {source_id: (reason, is_beside) for source_id, reason, is_beside in _of_another_process(connection, left)}
        refused |= {source_id: reason for source_id, (reason, _) in claims.items()}
        unnumbered = [source_id for source_id, (_, is_beside) in claims.items() if is_beside]
        refused |= {key: why for key, why in _of_another_program(connection) if key not in refused}
    for source_id, reason in sorted(refused.items()):
        _refuse(connection, source_id, reason)
    connection.execute(_UNNUMBERED, [unnumbered])


def _of_another_job(connection: DuckDBPyConnection) -> Iterator[tuple[int, str]]:
    """Logs of one rank each whose number of a job is not that of most others; parts of one job have numbers close together."""
    rows = connection.execute(_JOBS).fetchall()
    times = Counter(job for _, job in rows)
    most, count = max(times.items(), key=lambda item: item[1], default=(0, 0))
    for source_id, job in rows:
        if 2 * count > len(rows) and abs(job - most) > MOST_PARTS:
            yield source_id, f"it says that it is of job {job}, most others of {most}"


def _before_the_logs(connection: DuckDBPyConnection, dumps: Sequence[_Dump]) -> Iterator[tuple[int, str]]:
    """Dumps that ended hours before the collector inside the ranks began its logs: those of an earlier attempt."""
    ((since,),) = connection.execute(_LOGGED_SINCE).fetchall()
    for dump in dumps:
        if since is not None and dump.last_ns < since - SLACK_NS:
            hours = (since - dump.last_ns) / SLACK_NS
            yield (
                dump.source_id,
                f"its operations ended {hours:.1f} hours before the logs of the ranks: an earlier attempt",
            )


def _of_another_time(dumps: Sequence[_Dump]) -> Iterator[tuple[int, str]]:
    """Dumps whose operations lie hours away from those of most ranks; without these nobody can say which job is meant.

    An attempt that comes after another one, with as many of the ranks, is the newest of the job.
    """
    camps = _camps(dumps)
    most = len({dump.rank for dump in dumps}) / 2
    largest = next((camp for camp in reversed(camps) if len({dump.rank for dump in camp}) > most), None)
    if dumps and largest is None:
        for dump in dumps:
            yield (
                dump.source_id,
                f"its operations are of one of {len(camps)} times hours apart, none in the majority: give one job",
            )
    if largest is None:
        return
    first, last = min(dump.first_ns for dump in largest), max(dump.last_ns for dump in largest)
    for camp in camps:
        for dump in camp if camp is not largest else ():
            hours = max(first - dump.last_ns, dump.first_ns - last) / SLACK_NS
            yield dump.source_id, f"its operations lie {hours:.1f} hours from those of the other ranks: another job or attempt"


def _camps(dumps: Sequence[_Dump]) -> list[list[_Dump]]:
    """Dumps grouped by time: a new camp begins after a silence of `SLACK_NS`."""
    camps: list[list[_Dump]] = []
    end = None
    for dump in sorted(dumps, key=lambda item: (item.first_ns, item.path)):
        if end is None or dump.first_ns > end + SLACK_NS:
            camps.append([])
        camps[-1].append(dump)
        end = max(dump.last_ns, end or 0)
    return camps


def _of_another_process(connection: DuckDBPyConnection, dumps: Sequence[_Dump]) -> Iterator[tuple[int, str, bool]]:
    """Of two processes that claim one rank, keep the one whose operations overlap its peers' most, then the newer one.

    Last, whether the other one ran beside all other ranks: that was no earlier attempt, but a rank that its name does not tell.
    """
    known = {dump.source_id: dump for dump in dumps}
    for one, two in connection.execute(_OTHER_PROCESS).fetchall():
        if one not in known or two not in known:
            continue
        peers = [dump for dump in dumps if dump.rank != known[one].rank]
        loser, keeper = sorted((known[one], known[two]), key=lambda dump: (_overlap(dump, peers), dump.last_ns))
        if peers and _overlap(loser, peers) == len(peers):
            beside = f"of the same time as all others, under the number of rank {loser.rank}"
            yield loser.source_id, f"{beside}, and not of the same process as {keeper.path}", True
        else:
            claim = f"another process claims rank {loser.rank} in {keeper.path}"
            yield loser.source_id, f"{claim}, which fits the other ranks better", False


def _overlap(dump: _Dump, peers: Sequence[_Dump]) -> int:
    return sum(min(dump.last_ns, peer.last_ns) >= max(dump.first_ns, peer.first_ns) for peer in peers)


def _of_another_program(connection: DuckDBPyConnection) -> Iterator[tuple[int, str]]:
    """Dumps of other calls under the same numbers; without a majority for any calls nobody can say which job is meant."""
    if not connection.execute(_ANY_UNEQUAL).fetchall():
        return
    for source_id, agreement, tied in connection.execute(_AGREEMENT).fetchall():
        if tied > 1 - LEAST_AGREEMENT:
            yield source_id, "its operations are of one of several programs, none that of the majority: give one job"
        else:
            share = f"{100 * agreement:.0f} %"
            yield source_id, f"only {share} of its operations are those of the other ranks under the same number: another job"


def _refuse(connection: DuckDBPyConnection, source_id: int, reason: str) -> None:
    for table in (calls_table(connection), "group_views", *_OF_LOGS):
        connection.execute(f"DELETE FROM {table} WHERE source_id = ?", [source_id])
    connection.execute("UPDATE sources SET status = 'rejected', reason = ? WHERE source_id = ?", [reason, source_id])
    connection.execute(
        "INSERT INTO ingest_warnings SELECT source_id, path, NULL, 'left out: ' || ? FROM sources WHERE source_id = ?",
        [reason, source_id],
    )
