"""What holds the process of a rank back from the cores of its host: the quota of its control group, its nice value.

A quota that cuts the periods of a group short, or a nice value, accuses nobody: a rank may have time enough in what is left. It
stands beside a rank that other evidence found to be slow, where few of the others have it. Counts of a group are since it was
made, so that they may be of another time.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import NewType

from duckdb import DuckDBPyConnection

from forensics.case.database import rows_of
from forensics.rules.reductions.hardware.apart import usual_of_others
from forensics.rules.reductions.interface import reduction

# Of the periods of a group: fewer are those of a start, or of a moment with many threads.
_LEAST_THROTTLED = 0.1
# Times as many as the others usually have.
_FACTOR = 4.0
# Of 40 values: five give a third of the time of a task that wants the same core.
_NICER = 5

_FACTS = """
SELECT c.rank, any_value(s.host) AS host, min(s.path) AS path,
       max(c.value) FILTER (c.key = 'process.cgroup') AS own,
       max(try_cast(c.value AS INTEGER)) FILTER (c.key = 'process.nice') AS nice,
       max(try_cast(c.value AS JSON)) FILTER (c.key = 'process.cpu_limit') AS cpu
FROM job_config c JOIN sources s USING (source_id)
WHERE c.key IN ('process.cgroup', 'process.nice', 'process.cpu_limit') AND c.rank IS NOT NULL
GROUP BY c.rank HAVING count(DISTINCT c.source_id) = 1
"""
_LIMITS = f"""
SELECT rank, host, path, nice, cpu IS NOT NULL, coalesce(json_extract_string(cpu, '$.group'), own),
       try_cast(json_extract(cpu, '$.cores') AS DOUBLE), try_cast(json_extract(cpu, '$.periods') AS BIGINT),
       try_cast(json_extract(cpu, '$.throttled_periods') AS BIGINT), try_cast(json_extract(cpu, '$.throttled_us') AS BIGINT)
FROM ({_FACTS}) ORDER BY rank
"""


@dataclass(frozen=True, slots=True)
class CoreTime:
    """What is known of one process: nice value, group with its quota in `cores`, part of its periods cut short, us held back.

    `nice` and `throttled` are None where nothing tells them; a group without a quota is never held back.
    """

    nice: int | None
    throttled: float | None
    cores: float | None
    held_us: int
    group: tuple[str | None, str | None]
    source: str


CoreTimes = NewType("CoreTimes", Mapping[int, CoreTime])
"""What is known of it, by rank."""


@reduction
def core_times(connection: DuckDBPyConnection) -> CoreTimes:
    """Read it from the facts of each process; a rank of which two files tell is left out."""
    rows = rows_of(connection, "job_config", _LIMITS, kinds=("process.cgroup", "process.nice", "process.cpu_limit"))
    return CoreTimes(
        {
            rank: CoreTime(nice, _share(cores, periods, cut) if is_read else None, cores, held or 0, (host, group), path)
            for rank, host, path, nice, is_read, group, cores, periods, cut, held in rows
        }
    )


def throttled(ranks: Collection[int], times: CoreTimes) -> tuple[CoreTime, float] | None:
    """That each of some slow ranks was held back by its quota, and few of the others: the least of them, what is usual else."""
    known = {rank: each.throttled for rank, each in times.items() if each.throttled is not None}
    usual = usual_of_others(ranks, known, _is_throttled)
    return None if usual is None else (min((times[rank] for rank in ranks), key=lambda each: each.throttled or 0.0), usual)


def nicer(ranks: Collection[int], times: CoreTimes) -> tuple[CoreTime, float] | None:
    """That the nice value of each of some slow ranks is far above that of the others: the least of them, what is usual else."""
    known = {rank: each.nice for rank, each in times.items() if each.nice is not None}
    usual = usual_of_others(ranks, known, lambda mine, usual: mine >= usual + _NICER)
    return None if usual is None else (min((times[rank] for rank in ranks), key=lambda each: each.nice or 0), usual)


def beside(ranks: Collection[int], times: CoreTimes) -> int:
    """How many ranks that are not slow share a group with these: then the quota holds all of them back alike."""
    groups = {times[rank].group for rank in ranks}
    return sum(rank not in ranks and each.group in groups for rank, each in times.items())


def _is_throttled(mine: float, usual: float) -> bool:
    return mine >= _LEAST_THROTTLED and mine >= _FACTOR * usual


def _share(cores: float | None, periods: int | None, cut: int | None) -> float:
    return (cut or 0) / periods if cores is not None and periods else 0.0
