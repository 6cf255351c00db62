"""Who lost the connection to whom, by the logs: a graph of hosts, and the host that everybody lost and that lost nobody.

A process that goes away takes its peers with it, and they take theirs: the lines alone say who was next, not who was first. The
host that others name and that names nobody began it.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime

from duckdb import DuckDBPyConnection

from forensics.case.database import has_rows, rows_of


@dataclass(frozen=True, slots=True)
class Loss:
    """One line: `reporter` (a host) lost `peer`, a host, or an address of which nothing shows the host (`is_placed` is unset).

    `status` is the verbs status of a failed completion.
    """

    reporter: str
    rank: int | None
    peer: str
    status: int | None
    text: str
    source: str
    is_placed: bool = True


@dataclass(frozen=True, slots=True)
class NicFault:
    """One line that says that a port of a host (`nic`, as `mlx5_9:1`) failed: of NCCL under some rank, or of a kernel."""

    host: str
    rank: int | None
    nic: str
    text: str
    source: str
    by_kernel: bool = False


_NIC_FAULTS = """
SELECT rank, host, subject, text, source FROM logged_event
WHERE kind = 'nic_event' AND subject IS NOT NULL AND NOT after_cancel ORDER BY path, locator
"""
# Reports of links of NICs by the kernel of their host; the last one of each shows whether it is down.
_LINKS = """
SELECT host, device, kind, text, source, time_ns,
    row_number() OVER (PARTITION BY host, device ORDER BY time_ns DESC, locator DESC) = 1
FROM device_event WHERE kind IN ('link_down', 'link_up') AND host IS NOT NULL AND NOT regexp_matches(device, $1) ORDER BY ALL
"""
_AT = """
SELECT min(t), max(t) FROM (
    SELECT time_ns AS t FROM log_events JOIN sources USING (source_id) WHERE sources.kind = 'training_log'
    UNION ALL SELECT CAST(1e9 * at_s AS BIGINT) FROM log_progress WHERE clock = 'line'
    UNION ALL SELECT time_ns FROM log_positions)
"""
_ZONES_NS = 15 * 3_600_000_000_000
_DATED = re.compile(r"\[?(?:[A-Z][a-z]{2} )?(?P<day>[A-Z][a-z]{2} {1,2}\d{1,2} \d\d:\d\d:\d\d)(?: (?P<year>\d{4}))?[\] ]")
VIRTUAL = "^(veth|docker|br-|virbr|cali|vxlan|tap|lo)"
"""Interfaces of containers and bridges, which come and go."""
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
    WHERE rank IS NOT NULL AND kind IN ('peer_closed', 'exception', 'bare_error', 'fatal_error', 'watchdog_timeout',
        'store_timeout', 'transfer_timeout', 'process_exit', 'oom_kill', 'terminated', 'job_finished') GROUP BY rank
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
    for kind, rank, host, subject, text, source in connection.execute(f"{_LOSSES} LIMIT {_MOST}").fetchall():
        reporter = host or hosts.get(rank)
        completion = _COMPLETION.search(subject) if kind == "completion_error" else None
        named = _PORT.sub("", name) if (name := completion["peer"] if completion else subject).count(":") == 1 else name
        peer = _host(named, addresses)
        if reporter and named not in ("localhost", "") and peer != short(reporter):
            status = int(completion["status"]) if completion else None
            found.append(Loss(short(reporter), rank, peer or named, status, text, source, is_placed=peer is not None))
    return tuple(found)


def nic_faults(connection: DuckDBPyConnection, hosts: Mapping[int, str | None]) -> tuple[NicFault, ...]:
    """Ports that NCCL says failed on the host of the rank that says so."""
    if not has_rows(connection, "log_events", ("nic_event",)):
        return ()
    found = []
    for rank, host, subject, text, source in connection.execute(f"{_NIC_FAULTS} LIMIT {_MOST}").fetchall():
        own, said = host or hosts.get(rank), _FAULT.match(subject)
        if own and said:
            found.append(NicFault(short(own), rank, said["nic"], text, source))
    return tuple(found)


def links_lost(connection: DuckDBPyConnection) -> tuple[NicFault, ...]:
    """Links that kernels report as lost: at the time of the job, and of no known time those that did not come back."""
    if not has_rows(connection, "device_events", ("link_down",)):
        return ()
    first, last = connection.execute(_AT).fetchall()[0]
    found: dict[tuple[str, str], NicFault] = {}
    for host, nic, kind, text, source, time_ns, is_last in connection.execute(f"{_LINKS} LIMIT {_MOST}", [VIRTUAL]).fetchall():
        at = _moment(text, last) if time_ns is None else time_ns
        is_near = None if at is None or first is None else first - _ZONES_NS <= at <= last + _ZONES_NS
        if kind == "link_down" and (is_last if is_near is None else is_near):
            found[host, nic] = NicFault(short(host), None, nic, text, source, by_kernel=True)
    return tuple(found.values())


def _moment(text: str, near_ns: int | None) -> int | None:
    """When a line of syslog or `dmesg -T` was written, in ns; one without its year is of the year before the job's logs end."""
    said = _DATED.match(text)
    if said is None or (said["year"] is None and near_ns is None):
        return None
    until = datetime.fromtimestamp((near_ns or 0) / 1e9 + 86_400, UTC)
    for year in [int(said["year"])] if said["year"] else (until.year, until.year - 1):
        try:
            when = datetime.strptime(f"{said['day']} {year}", "%b %d %H:%M:%S %Y").replace(tzinfo=UTC)
        except ValueError:
            continue
        if said["year"] or when <= until:
            return int(when.timestamp()) * 10**9
    return None


def short(host: str) -> str:
    """A host's name without its domain."""
    return host if _ADDRESS.fullmatch(host) else host.partition(".")[0]


def _host(name: str, addresses: Mapping[str, str]) -> str | None:
    """The host that a peer's name or address means; None for an address that no log lays to a host."""
    if name in addresses:
        return short(addresses[name])
    return None if _ADDRESS.fullmatch(name) else short(name)


def lost_first(losses: Iterable[Loss]) -> tuple[str, tuple[Loss, ...]] | None:
    """The one host that others lost and that lost nobody, with the lines that name it; None when there is not exactly one."""
    named: dict[str, list[Loss]] = defaultdict(list)
    reporters = set()
    for loss in losses:
        if not loss.is_placed:
            continue
        named[loss.peer].append(loss)
        reporters.add(loss.reporter)
    silent = [host for host in named if host not in reporters]
    return (silent[0], tuple(named[silent[0]])) if len(silent) == 1 else None


def by_own_nic(losses: Sequence[Loss], faults: Sequence[NicFault]) -> tuple[NicFault, ...]:
    """The failed ports of the one host that has any, where all lost connections are to it or from it.

    Connections that others lost to one and the same address, of which nothing shows the host, may well be to it.
    """
    hosts = {fault.host for fault in faults}
    elsewhere = [loss for loss in losses if not hosts & {loss.reporter, loss.peer}]
    is_one_address = len({loss.peer for loss in elsewhere}) == 1 and not any(loss.is_placed for loss in elsewhere)
    if len(hosts) != 1 or not losses or (elsewhere and not is_one_address):
        return ()
    return tuple({(fault.rank, fault.nic if fault.by_kernel else ""): fault for fault in reversed(faults)}.values())


def without_a_loss(connection: DuckDBPyConnection) -> list[tuple[int, str, int]]:
    """The rank whose log alone tells of no error, its log, and how many others lost a peer; none where there are several."""
    return rows_of(connection, "log_events", _LOST_NOBODY, kinds=("peer_closed",))
