"""Hosts on which tasks wait for a core far more often than on the others: pressure stall information of the kernel.

`cpu` of node.json has the share of the time in which some task waited (psi.rst of Linux 4.20), whoever's task it was.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import NewType

from duckdb import DuckDBPyConnection

from forensics.case.database import rows_of
from forensics.model import Cause, Component, Confidence, Evidence, Finding, Granularity, Members
from forensics.rules.reductions.hardware.apart import usual_beside
from forensics.rules.reductions.interface import reduction
from forensics.rules.reductions.ranks.roster import Roster

# Per cent of the time, and times what is usual on the other hosts.
_LEAST_WAITING, _FACTOR = 10.0, 4.0
PLAINLY_SHORT = 30.0
"""Per cent of the time: what shows which of several is to blame, with nothing else to tell it; to read data takes a fifth."""
# What threads of the CPU that drive the network may be behind.
_BY_PROXIES = (Cause.NETWORK_SLOW, Cause.PROXY_DELAY)
# What nothing else accounts for; and as many late ranks of a host are not late by themselves.
_OPEN, _SEVERAL = (Cause.UNKNOWN, Cause.HOST_STALL), 2

_PRESSURE = """
SELECT s.host, max(try_cast(json_extract_string(try_cast(c.value AS JSON), '$.pressure.cpu.some.avg10') AS DOUBLE)) AS waiting,
       min(s.path)
FROM job_config c JOIN sources s USING (source_id) WHERE c.key = 'node.cpu' AND s.host IS NOT NULL
GROUP BY s.host HAVING waiting IS NOT NULL ORDER BY s.host
"""


@dataclass(frozen=True, slots=True)
class TakenCores:
    """A host on which some task waits for a core `waiting` per cent of the time, `usual` on the others."""

    host: str
    waiting: float
    usual: float
    source: str

    @property
    def statement(self) -> str:
        """What was seen, in words."""
        return (
            f"{self.host} is short of CPU: some task waits for a core {self.waiting:.0f} % of the time, "
            f"{self.usual:.1f} % on the other hosts (median)"
        )


BusyHosts = NewType("BusyHosts", Mapping[str, TakenCores])
"""Hosts whose cores are taken, beside others that have enough."""


@reduction
def busy_hosts(connection: DuckDBPyConnection) -> BusyHosts:
    """By host; what is so on all hosts is how the job is made."""
    rows = rows_of(connection, "job_config", _PRESSURE)
    usual = usual_beside({host: waiting for host, waiting, _ in rows})
    return BusyHosts(
        {
            host: TakenCores(host, waiting, usual[host], path)
            for host, waiting, path in rows
            if host in usual and waiting >= max(_LEAST_WAITING, _FACTOR * usual[host])
        }
    )


def shown_by_cores(finding: Finding, busy: BusyHosts, roster: Roster) -> Finding:
    """A slow transfer, or proxies that pause, whose ranks, or the one of them on one host alone, have their cores taken.

    Threads of the CPU drive the network: while they have no core, nothing is handed over, and data moves as fast as ever while
    it moves (Pulse 7.2.2). Where one of several ranks is to blame, the host of one that is plainly short of cores is named.
    """
    if finding.cause not in _BY_PROXIES:
        return finding
    hosts = {rank: roster.host_of(rank) for rank in finding.ranks}
    short = sorted({host for host in hosts.values() if host is not None and host in busy})
    if len(short) != 1:
        return finding
    taken = busy[short[0]]
    if finding.cause is Cause.PROXY_DELAY and set(hosts.values()) == {taken.host}:
        return _contended(finding, taken)
    if finding.members is not Members.ONE_OF or taken.waiting < PLAINLY_SHORT:
        return finding
    ranks = tuple(rank for rank in sorted(roster.ranks) if roster.host_of(rank) == taken.host)
    doubt = Evidence("only its cores show which one of them it is", None, supports=False)
    named = replace(finding, ranks=ranks, members=Members.EACH, granularity=Granularity.HOST, confidence=Confidence.SUSPECT)
    return _contended(replace(named, evidence=(*finding.evidence, doubt)), taken)


def late_by_hosts(found: Sequence[Finding], busy: BusyHosts, roster: Roster) -> Iterator[Finding]:
    """Findings of late ranks, those of several on a host that is plainly short of cores as one of that host."""
    short = defaultdict[str, list[Finding]](list)
    for each in found:
        host, *others = {roster.host_of(rank) or "" for rank in each.ranks} if _is_open(each) else {""}
        short["" if others or host not in busy or busy[host].waiting < PLAINLY_SHORT else host].append(each)
    for host, late in short.items():
        several = len({rank for each in late for rank in each.ranks}) >= _SEVERAL
        yield from [_late_host(late, busy[host], roster)] if host and several else late


def _is_open(finding: Finding) -> bool:
    """Whether nothing accounts for a late rank, or only that its host is in a pass: it may lack cores, or have a slow GPU."""
    is_in_pass = finding.cause is Cause.COMPUTE_SLOW and finding.stage.component is not Component.COMPUTE
    return finding.cause in _OPEN or is_in_pass


def _late_host(late: Sequence[Finding], taken: TakenCores, roster: Roster) -> Finding:
    worst = max(late, key=lambda each: (each.impact.share or 0.0 if each.impact else 0.0, each.ranks))
    ranks = tuple(rank for rank in sorted(roster.ranks) if roster.host_of(rank) == taken.host)
    other = [each.evidence[0] for each in late if each is not worst]
    evidence = (worst.evidence[0], *other, *(each for each in worst.evidence[1:] if each.supports))
    named = replace(worst, ranks=ranks, members=Members.EACH, granularity=Granularity.HOST, confidence=Confidence.LIKELY)
    return _contended(replace(named, evidence=evidence), taken)


def _contended(finding: Finding, taken: TakenCores) -> Finding:
    stage = replace(finding.stage, component=Component.HOST)
    evidence = (*finding.evidence, Evidence(taken.statement, taken.source))
    return replace(finding, cause=Cause.CPU_CONTENTION, stage=stage, evidence=evidence)
