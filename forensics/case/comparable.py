"""What of a case can be held against another one: settings by rank, hosts, devices, step times, counters, events of devices."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from duckdb import DuckDBPyConnection

# Names and times of one run, and what follows from them: they differ between any two runs of the same job.
_OF_THE_RUN = re.compile(
    r"bundle\..*|collection\..*|job_id|nodes|node\.(?:hostname|address|processes_\w+|boot_id|cpu|clock_sync)|"
    r"process\.(?:children|ns_pid|ppid|start_ns|state_method|oom_kill)|"
    r"shim\.(?:beats|boot_id|pid|parent_pid|process_start|job|run|state|local_rank|threads|forks|rank_variable|records\.\w+)|"
    r"env\.(?:RANK|LOCAL_RANK|GROUP_RANK|NODE_RANK|ROLE_RANK|MASTER_ADDR|MASTER_PORT|TORCHELASTIC_(?:RUN_ID|RESTART_COUNT)|"
    r"SLURM_(?:JOB_ID|STEP_ID|PROCID|LOCALID|NODEID|NODELIST|JOB_NODELIST|RESTART_COUNT)|PBS_JOBID|LSB_JOBID|"
    r"PMI_(?:RANK|LOCAL_RANK)|MPI_LOCALRANKID|OMPI_COMM_WORLD_(?:RANK|LOCAL_RANK|NODE_RANK))"
)

Scope = tuple[int | None, str | None]
"""Rank and host of a setting; both None for one of the job."""
Settings = Mapping[str, Mapping[Scope, str | None]]


@dataclass(frozen=True, slots=True)
class Times:
    """Durations of one kind in ns: median, 90th percentile, how many, and of how many ranks."""

    median_ns: float
    high_ns: float
    count: int
    ranks: int


@dataclass(frozen=True, slots=True)
class Comparable:
    """One case.

    `settings` by key and scope; `hosts` with the ranks of each; `devices` by kind and facts, how many; `steps` of whole
    steps (None when none were read) and `stages` by stage; `counters` by name as rate per second summed over all devices;
    `events` by kind and code, how many.
    """

    settings: Settings
    hosts: Mapping[str, frozenset[int]]
    devices: Mapping[str, int]
    steps: Times | None
    stages: Mapping[str, Times]
    counters: Mapping[str, float]
    events: Mapping[str, int]


def comparable(connection: DuckDBPyConnection) -> Comparable:
    """Gather it from a case."""
    (steps,) = connection.execute(f"SELECT {_TIMES.format('wall_ns')} FROM steps WHERE wall_ns IS NOT NULL").fetchall()
    stages = connection.execute(
        f"SELECT stage, {_TIMES.format('duration_ns')} FROM stage_spans "
        "WHERE stage IS NOT NULL AND duration_ns IS NOT NULL AND side_channel IS DISTINCT FROM true GROUP BY 1 ORDER BY 1"
    ).fetchall()
    return Comparable(
        _settings(connection),
        _hosts(connection),
        dict(connection.execute(_DEVICES).fetchall()),
        Times(*steps) if steps and steps[2] else None,
        {stage: Times(*values) for stage, *values in stages},
        dict(connection.execute(_COUNTERS).fetchall()),
        dict(connection.execute(_EVENTS).fetchall()),
    )


_TIMES = "median({0}), quantile_cont({0}, 0.9), count(*), count(DISTINCT rank)"
_DEVICES = """
SELECT concat_ws(' ', kind, model, 'state ' || state, (rate_bytes_per_s * 8 // 1000000000) || ' Gbit/s'), count(*)
FROM (SELECT DISTINCT host, device, kind, model, state, rate_bytes_per_s FROM devices) GROUP BY 1 ORDER BY 1"""
# Two reads make a rate; a counter that went back was reset, and says nothing.
_COUNTERS = """
SELECT counter, sum(rate) FROM (
    SELECT counter, host, device,
        (arg_max(value, time_ns) - arg_min(value, time_ns)) * 1e9 / (max(time_ns) - min(time_ns)) AS rate
    FROM counters WHERE value IS NOT NULL GROUP BY counter, host, device HAVING max(time_ns) > min(time_ns)
) WHERE rate >= 0 GROUP BY counter ORDER BY counter"""
_EVENTS = "SELECT concat_ws(' ', kind, CASE WHEN kind = 'xid' THEN code END), count(*) FROM device_events GROUP BY 1 ORDER BY 1"


def _settings(connection: DuckDBPyConnection) -> Settings:
    found: dict[str, dict[Scope, str | None]] = defaultdict(dict)
    rows: list[tuple[Any, ...]] = connection.execute("SELECT key, rank, host, value FROM job_config ORDER BY ALL").fetchall()
    for key, rank, host, value in rows:
        if not _OF_THE_RUN.fullmatch(key):
            found[key][rank, host if rank is None else None] = value
    return found


def _hosts(connection: DuckDBPyConnection) -> dict[str, frozenset[int]]:
    rows = connection.execute("SELECT host, list(DISTINCT rank) FROM ranks WHERE host IS NOT NULL GROUP BY host ORDER BY host")
    return {host: frozenset(ranks) for host, ranks in rows.fetchall()}
