"""The rank whose process was killed for its memory, by the control group of its task.

Slurm counts tasks within a node there, and a task may be the launcher of several ranks: the number is the rank only in a job of
one node that starts no launcher. A kernel tells of all jobs of its host: the job is the one of the logs where they say so and
another rank failed, or where all other ranks lost a peer. The process may have been a helper of a rank that went on: one that
tells of a failure itself was there.
"""

from __future__ import annotations

import signal

from duckdb import DuckDBPyConnection

from forensics.case.database import has_rows, rows_of
from forensics.rules.reductions.logs.process_exit import Exit

JOBS = r"""
SELECT value FROM job_config WHERE key = 'job.id'
UNION SELECT regexp_extract(path, '(?i)(?:^|/)(?:slurm|job)[._-](\d+)', 1) AS job FROM sources
WHERE kind = 'training_log' AND job <> ''
"""
"""The job of Slurm by what its log says, or as sbatch and its users call the output."""
_KILLED = rf"""
SELECT CAST(regexp_extract(subject, ' task=(\d+)', 1) AS INTEGER), min(regexp_extract(subject, ' pid=(\d+)', 1)), min(host),
    min(source), bool_and(regexp_extract(subject, '^job=(\d+)', 1) IN ({JOBS})), EXISTS ({JOBS})
FROM logged_event WHERE kind = 'task_killed' AND NOT after_cancel GROUP BY ALL ORDER BY ALL
"""
_FAILED = """
SELECT DISTINCT rank FROM log_events WHERE rank IS NOT NULL AND kind IN (
    'peer_closed', 'exception', 'fatal_error', 'watchdog_timeout', 'watchdog_stuck', 'barrier_timeout', 'store_timeout',
    'transfer_timeout')
"""
_LOST_A_PEER = "SELECT DISTINCT rank FROM log_events WHERE kind = 'peer_closed' AND rank IS NOT NULL"
_LEAST_OTHERS = 3


def killed_task(connection: DuckDBPyConnection, world: int | None) -> list[Exit]:
    """The end of the one task of the job that was killed; the first of a node may be a launcher."""
    if has_rows(connection, "job_config", ("log.per_node",)):
        return []
    found = rows_of(connection, "log_events", _KILLED, kinds=("task_killed",))
    of_job = [row for row in found if row[4] or not row[5]]
    if len(of_job) != 1 or not 0 < of_job[0][0] < (world or 1 + of_job[0][0]):
        return []
    task, pid, host, source, is_stated, _ = of_job[0]
    failed = {rank for (rank,) in connection.execute(_FAILED).fetchall()}
    if task in failed or not failed or not (is_stated or _is_missed(connection, task, world)):
        return []
    number = int(pid) if pid else None
    return [Exit(task, -signal.SIGKILL, number, True, source, is_local=True, host=host, is_for_memory=True)]


def _is_missed(connection: DuckDBPyConnection, task: int, world: int | None) -> bool:
    """Whether all ranks but this one lost a peer."""
    others = {rank for (rank,) in rows_of(connection, "log_events", _LOST_A_PEER, kinds=("peer_closed",))}
    size = world or 1 + max({task, *others})
    return len(others) >= _LEAST_OTHERS and others == {*range(size)} - {task}
