"""Hosts on which more threads of the job want to run than get to run: whoever is late there may only be waiting for a CPU.

Threads found runnable in the samples of the collector are what was asked for; the time that they were on a CPU in between is
what was given. No count of cores is needed, and other jobs on the host count as what they take away.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import NewType

from duckdb import DuckDBPyConnection

from forensics.case.database import rows_of
from forensics.model import Confidence, Evidence, Finding
from forensics.rules.reductions.interface import reduction
from forensics.rules.reductions.ranks.on_cpu import NS_PER_TICK
from forensics.rules.reductions.ranks.roster import Roster

# One thread alone may be found runnable by chance at each of two or three samples.
_LEAST_RUNNABLE = 2.0
# Asked for against given: a thread that runs is runnable too, so that one is what a host with free cores shows.
_LEAST_RATIO = 1.5

_SAMPLES = """
WITH samples AS (
    SELECT host, pid, thread, min(sample) AS first, max(sample) AS last, max(time_ns) - min(time_ns) AS span,
           arg_max(cpu_ticks, sample) - arg_min(cpu_ticks, sample) AS ticks,
           count(*) FILTER (state = 'R') / count(*) AS runnable, any_value(source_id) AS source_id,
           min(rank) FILTER (is_child) AS starter
    FROM processes WHERE host IS NOT NULL GROUP BY host, pid, thread HAVING count(DISTINCT sample) > 1
), started AS (
    SELECT host, starter, sum(runnable) AS runnable FROM samples WHERE starter IS NOT NULL GROUP BY host, starter
)
SELECT l.host, sum(l.runnable), sum(ticks), max(span), min(s.path),
       (SELECT map_from_entries(list((starter, c.runnable) ORDER BY starter)) FROM started c WHERE c.host = l.host)
FROM samples l JOIN sources s USING (source_id) GROUP BY l.host HAVING max(span) > 0 ORDER BY l.host
"""
# Of the threads that were ready to run: what one rank started is then why there were too many.
_MOST_STARTED = 0.5


@dataclass(frozen=True, slots=True)
class CpuUse:
    """Threads of the job on one host, at the mean: how many wanted a CPU and how many cores they got.

    `started` are those of them that are of processes which a rank started, by rank.
    """

    host: str
    runnable: float
    cores: float
    source: str
    started: Mapping[int, float] = field(default_factory=dict)

    @property
    def is_short(self) -> bool:
        """Whether threads had to wait for a CPU."""
        return self.runnable >= _LEAST_RUNNABLE and self.runnable >= _LEAST_RATIO * self.cores

    @property
    def starter(self) -> int | None:
        """The one rank that started most of what wanted a CPU; no two ranks that each have workers."""
        most = [rank for rank, runnable in self.started.items() if runnable > _MOST_STARTED * self.runnable]
        return most[0] if most else None

    @property
    def statement(self) -> str:
        """What was seen, in words."""
        return (
            f"{self.host} is short of CPU: {self.runnable:.1f} threads of the job were ready to run at each sample and got "
            f"{self.cores:.1f} cores"
        )


HostCpu = NewType("HostCpu", Mapping[str, CpuUse])
"""What hosts gave the job of their CPUs, by host."""


@reduction
def cpu_use(connection: DuckDBPyConnection) -> HostCpu:
    """What the samples of the processes of each host show; nothing for a host that was sampled less than twice."""
    rows = rows_of(connection, "processes", _SAMPLES)
    return HostCpu(
        {
            host: CpuUse(host, float(runnable), float(ticks or 0) * NS_PER_TICK / span, path, started or {})
            for host, runnable, ticks, span, path, started in rows
        }
    )


def waits_for_cores(cpu: HostCpu, roster: Roster, ranks: Iterable[int]) -> Iterator[Evidence]:
    """That hosts of these ranks are short of CPU: then whoever is late is a suspect at most."""
    hosts = sorted({host for rank in ranks if (host := roster.host_of(rank))})
    for use in (cpu[host] for host in hosts if host in cpu and cpu[host].is_short):
        yield Evidence(f"{use.statement}: who is late there may only wait for a core", use.source, supports=False)


def all_lack_cores(cpu: HostCpu, roster: Roster) -> bool:
    """Whether every host of the job is short of CPU, so that none of them stands out by it."""
    hosts = {roster.host_of(rank) for rank in roster.ranks}
    return bool(hosts) and all(host is not None and host in cpu and cpu[host].is_short for host in hosts)


def always_late(share: float, had_onset: bool, least: float) -> Iterator[Evidence]:
    """That a lag is small and was there from the first recorded step on: then it may be how the job is made."""
    if not had_onset and share < least:
        said = f"the lag is {100 * share:.0f} % of the time and was there from the begin of the record"
        yield Evidence(f"{said}: it may be how the job is made", None, supports=False)


def doubted(finding: Finding, doubts: Iterable[Evidence]) -> Finding:
    """A finding with what makes it a suspicion at most; unchanged without any."""
    against = tuple(doubts)
    if not against:
        return finding
    return replace(finding, confidence=Confidence.SUSPECT, evidence=(*finding.evidence, *against))
