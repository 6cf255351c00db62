"""Who lost the connection to whom, by the logs: a graph of hosts, and the host that everybody lost and that lost nobody.

A process that goes away takes its peers with it, and they take theirs: the lines alone say who was next, not who was first. The
host that others name and that names nobody began it.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from duckdb import DuckDBPyConnection

from forensics.case.database import has_rows, rows_of


@dataclass(frozen=True, slots=True)
class Loss:
    """One line: `reporter` (a host) lost `peer` (a host); `status` is the verbs status of a failed completion."""

    reporter: str
    rank: int | None
    peer: str
    status: int | None
    text: str
    source: str


@dataclass(frozen=True, slots=True)
class NicFault:
    """One line of NCCL: a port of the own host (`nic`, as `mlx5_9:1`) failed under the rank that wrote it."""

    host: str
    rank: int | None
    nic: str
    text: str
    source: str


_NIC_FAULTS = """
SELECT rank, host, subject, text, source FROM logged_event
WHERE kind = 'nic_event' AND subject IS NOT NULL AND NOT after_cancel ORDER BY path, locator
"""
_FAULT = re.compile(r"(?P<nic>\S{1,80}) .*(?:port error|port is down|port down|fatal)", re.IGNORECASE)
_LOSSES = """
SELECT kind, rank, host, subject, text, source FROM logged_event
WHERE kind IN ('peer_closed', 'completion_error') AND subject IS NOT NULL AND NOT after_cancel
ORDER BY path, locator
"""
# The rank of which a log is here that tells of no error, where those of all others tell that a peer was lost.
_LOST_NOBODY = """
WITH logged AS (
    SELECT rank, min(path) AS path, bool_and(status = 'ok') AS whole FROM sources
    WHERE kind = 'training_log' AND rank IS NOT NULL GROUP BY rank
), failed AS (
    SELECT rank, bool_or(kind = 'peer_closed') AS lost FROM log_events
    WHERE rank IS NOT NULL AND kind IN ('peer_closed', 'exception', 'fatal_error', 'watchdog_timeout', 'store_timeout',
        'transfer_timeout', 'process_exit', 'oom_kill', 'terminated', 'job_finished') GROUP BY rank
)
SELECT rank, path, (SELECT count(*) FROM failed WHERE lost) AS others FROM logged ANTI JOIN failed USING (rank)
WHERE whole AND others = (SELECT count(*) FROM logged) - 1 AND others = (SELECT max(rank) FROM logged) AND others >= 2
"""
_ADDRESSES = "SELECT value, min(host) FROM job_config WHERE key = 'node.address' GROUP BY value HAVING count(DISTINCT host) = 1"
_COMPLETION = re.compile(r"peer=(?P<peer>[^\s<]+)\S* status=(?P<status>\d{1,3})")
_PORT = re.compile(r":\d{1,5}$")
_ADDRESS = re.compile(r"\d{1,3}(?:\.\d{1,3}){3}|.*:.*")
# Losses that are read: a job of a thousand ranks that falls apart has so many, and the first ones tell.
_MOST = 100_000


def lost_connections(connection: DuckDBPyConnection, hosts: Mapping[int, str | None]) -> tuple[Loss, ...]:
    """All losses between two known hosts, in the order of the logs; `hosts` gives the host of a rank."""
    if not has_rows(connection, "log_events", ("peer_closed", "completion_error")):
        return ()
    addresses = dict(connection.execute(_ADDRESSES).fetchall())
    found = []
    for kind, rank, host, subject, text, source in connection.execute(_LOSSES).fetchmany(_MOST):
        reporter = host or hosts.get(rank)
        completion = _COMPLETION.search(subject) if kind == "completion_error" else None
        peer = _host(completion["peer"] if completion else subject, addresses)
        if reporter and peer and peer != short(reporter):
            status = int(completion["status"]) if completion else None
            found.append(Loss(short(reporter), rank, peer, status, text, source))
    return tuple(found)


def nic_faults(connection: DuckDBPyConnection, hosts: Mapping[int, str | None]) -> tuple[NicFault, ...]:
    """Ports that NCCL says failed on the host of the rank that says so."""
    if not has_rows(connection, "log_events", ("nic_event",)):
        return ()
    found = []
    for rank, host, subject, text, source in connection.execute(_NIC_FAULTS).fetchmany(_MOST):
        own, said = host or hosts.get(rank), _FAULT.match(subject)
        if own and said:
            found.append(NicFault(short(own), rank, said["nic"], text, source))
    return tuple(found)


def short(host: str) -> str:
    """A host's name without its domain."""
    return host if _ADDRESS.fullmatch(host) else host.partition(".")[0]


def _host(peer: str, addresses: Mapping[str, str]) -> str | None:
    """The host that a peer's name or address means; None for an address that no log lays to a host."""
    name = _PORT.sub("", peer) if peer.count(":") == 1 else peer
    if name in addresses:
        return short(addresses[name])
    return None if _ADDRESS.fullmatch(name) or name in ("localhost", "") else short(name)


def lost_first(losses: Iterable[Loss]) -> tuple[str, tuple[Loss, ...]] | None:
    """The one host that others lost and that lost nobody, with the lines that name it; None when there is not exactly one."""
    named: dict[str, list[Loss]] = defaultdict(list)
    reporters = set()
    for loss in losses:
        named[loss.peer].append(loss)
        reporters.add(loss.reporter)
    silent = [host for host in named if host not in reporters]
    return (silent[0], tuple(named[silent[0]])) if len(silent) == 1 else None


def by_own_nic(losses: Iterable[Loss], faults: Iterable[NicFault]) -> tuple[NicFault, ...]:
    """The failed ports of the one host that has any, where all lost connections are to it or from it."""
    hosts = {fault.host for fault in faults}
    ends = [{loss.reporter, loss.peer} for loss in losses]
    if len(hosts) != 1 or not ends or not all(hosts & pair for pair in ends):
        return ()
    return tuple({fault.rank: fault for fault in reversed(tuple(faults))}.values())


def without_a_loss(connection: DuckDBPyConnection) -> list[tuple[int, str, int]]:
    """The rank whose log alone tells of no error, its log, and how many others lost a peer; none where there are several."""
    return rows_of(connection, "log_events", _LOST_NOBODY, kinds=("peer_closed",))
