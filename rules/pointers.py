"""Where somebody on call looks first when nobody can be named: what others name, and what stands out and proves nothing.

A node that was lost, a worker that its executor saw die, a GPU with an error, one that is idle while all others are busy.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice

from duckdb import DuckDBPyConnection

from forensics.case.database import rows_of
from forensics.rules.reductions.hardware.gpu_errors import GpuErrors
from forensics.rules.reductions.logs.log_evidence import OF_THE_JOB
from forensics.rules.reductions.ranks.roster import Roster

_MOST = 4
_LEAST_GPUS = 4
_NODES = f"""
SELECT subject, min(source) FROM logged_event WHERE kind = 'node_failed' AND rank IS NULL AND {OF_THE_JOB}
GROUP BY ALL ORDER BY ALL
"""
_WORKERS = """
SELECT regexp_extract(subject, 'worker=([0-9]+)', 1), min(source) FROM logged_event
WHERE kind = 'process_exit' AND subject LIKE 'died worker=%' GROUP BY ALL ORDER BY ALL
"""
# GPUs on which somebody computes, with how busy they were in all looks at them, and what power they drew of what they may.
_GPUS = """
SELECT host, device, max(value) FILTER (counter = 'utilization_percent') AS most,
       min(value) FILTER (counter = 'utilization_percent') AS least,
       max(value) FILTER (counter = 'power_mw') / nullif(max(value) FILTER (counter = 'power_limit_mw'), 0) AS power,
       min(split_part(counter, '.', 2)) FILTER (counter LIKE 'process_memory_bytes.%') AS pid
FROM counters WHERE device LIKE 'GPU-%' GROUP BY host, device HAVING pid IS NOT NULL AND most IS NOT NULL ORDER BY ALL
"""
_IDLE, _BUSY, _WAITING = 5, 95, 0.4


def pointers(connection: DuckDBPyConnection, roster: Roster, errors: GpuErrors) -> tuple[str, ...]:
    """Each a sentence that says what to get, the surest first."""
    found = (*_lost_nodes(connection), *_dead_workers(connection), *_errors(roster, errors), *_idle(connection))
    return tuple(islice(found, _MOST))


def _lost_nodes(connection: DuckDBPyConnection) -> Iterator[str]:
    for node, source in rows_of(connection, "log_events", _NODES, kinds=("node_failed",)):
        yield f"console and kernel log of {node}, which was lost ({source}), and which ranks ran on it"


def _dead_workers(connection: DuckDBPyConnection) -> Iterator[str]:
    """Of several that died together an executor names one."""
    workers = rows_of(connection, "log_events", _WORKERS, kinds=("process_exit",))
    if len(workers) == 1:
        ((worker, source),) = workers
        yield f"the end of the log of worker {worker} and the kernel log of its host: its executor saw it die ({source})"


def _errors(roster: Roster, errors: GpuErrors) -> Iterator[str]:
    """Errors that most ranks have are of the program that all of them run."""
    if 2 * len(errors.by_rank) <= max(len(roster.ranks), len(errors.by_rank)):
        for rank, error in errors.by_rank.items():
            yield f"stack and log of rank {rank}: {error.teller} tells of its GPU {error.meaning} ({error.source})"
    for error in errors.unplaced if len(errors.unplaced) == 1 else ():
        where = f" of {error.host}" if error.host else ""
        yield f"the rank that uses GPU {error.address}{where}, its stack and log: {error.meaning} ({error.source})"


def _idle(connection: DuckDBPyConnection) -> Iterator[str]:
    """One GPU that does nothing while a process holds it, and all others are busy: a moving job may look so for a moment."""
    gpus = rows_of(connection, "counters", _GPUS)
    idle = [gpu for gpu in gpus if gpu[2] <= _IDLE]
    busy = [gpu for gpu in gpus if gpu[3] >= _BUSY]
    if len(idle) != 1 or len(busy) != len(gpus) - 1 or len(gpus) < _LEAST_GPUS:
        return
    ((host, device, *_, pid),) = idle
    shares = sorted(gpu[4] for gpu in busy if gpu[4] is not None)
    waits = bool(shares) and shares[-1] < _WAITING
    how = f", at no more than {100 * shares[-1]:.0f} % of their power: so look GPUs that wait for it" if waits else ""
    where = f"{device} of {host}" if host else device
    yield f"stack and log of process {pid} on {where}: it is idle while {len(busy)} others are busy{how}"
