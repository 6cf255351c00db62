"""Which link, port or host of a network stands out where nobody can be named, and proves nothing by itself."""

from __future__ import annotations

import re
from collections.abc import Iterator

from duckdb import DuckDBPyConnection

from forensics.case.database import only_row, rows_of
from forensics.rules.leads.silent_ports import silent_port
from forensics.rules.reductions.hardware.lost_links import links_down
from forensics.rules.reductions.hardware.nic_slots import odd_slot
from forensics.rules.reductions.hardware.port_errors import port_errors
from forensics.rules.reductions.logs.lost_connections import VIRTUAL
from forensics.rules.reductions.text.evidence_text import counted

# Addresses that transfers over RDMA failed with; those of one host alone cannot tell which of two ends is at fault.
_PEERS = """
SELECT regexp_extract(subject, 'peer=([^<\\s]+)', 1) AS peer, count(DISTINCT host), count(DISTINCT rank), min(source)
FROM logged_event WHERE kind = 'completion_error' GROUP BY peer ORDER BY peer
"""
# Peers that closed connections of NCCL with other hosts: hosts that lose each other name several.
_CLOSED = """
SELECT regexp_extract(subject, '^([^:<\\s]+)', 1) AS peer, count(DISTINCT host), min(source) FROM logged_event
WHERE kind = 'peer_closed' AND host IS NOT NULL AND subject <> '' AND NOT after_cancel GROUP BY peer ORDER BY peer
"""
# The same of processes of which no line shows the host.
_CLOSED_TO_SOMEBODY = """
SELECT regexp_extract(subject, '^([^:<\\s]+)', 1) AS peer, min(source) FROM logged_event
WHERE kind = 'peer_closed' AND subject <> '' AND NOT after_cancel
    AND NOT EXISTS (SELECT 1 FROM log_events WHERE kind = 'peer_closed' AND host IS NOT NULL)
GROUP BY peer ORDER BY peer
"""
# Transfers that the other end did not answer, of one host with one address: nothing shows which end, or what is between.
_ONE_LINK = """
SELECT host, regexp_extract(subject, 'peer=([^<\\s]+)', 1) AS peer,
    count(*) FILTER (regexp_matches(subject, 'status=1[23]\\b')) AS silent,
    min(source) FROM logged_event WHERE kind = 'completion_error' AND NOT after_cancel GROUP BY ALL ORDER BY ALL
"""
# Transfers that the NIC of one host refused by itself, for memory or an
# operation that it does not know (`ibv_wc_status` 2 and 4).
_REFUSED = r"""
SELECT host, min(regexp_extract(subject, 'status=(\d)', 1)), min(source) FROM logged_event
WHERE kind = 'completion_error' AND regexp_matches(subject, 'status=[24]\b') AND NOT after_cancel GROUP BY host ORDER BY host
"""
# Hosts whose own NICs NCCL reports to have failed: a port, the device, or a queue by a transfer that it refused.
_OWN_NICS = """
SELECT host, count(DISTINCT regexp_extract(text, ':(\\d+):\\d+ \\[', 1)), min(source),
    min(lower(regexp_extract(subject, '(?:\\S+:\\d+ )?(.+)', 1)))
FROM logged_event WHERE kind = 'nic_event' AND NOT after_cancel AND regexp_matches(subject,
    '(?i)\\bport (error|down|is down)|catastrophic|device fatal|\\bfatal error|work queue|access violation|\\b[QC][PQ] fatal')
GROUP BY host
"""
# Ports over which UCX sent what nobody answered, by host; what is between, or the other side, may have failed as well.
_UNANSWERED = """
SELECT host, regexp_extract(subject, '^([^ ]+) ', 1), count(DISTINCT regexp_extract(text, ':(\\d+)[: \\]]', 1)), min(source)
FROM logged_event WHERE kind = 'nic_event' AND contains(subject, 'retry count exceeded') AND NOT after_cancel
GROUP BY ALL ORDER BY ALL
"""
# What NCCL's own network, or a plugin of it, could not do, in words that tell of no peer.
_UNABLE = """
SELECT rank, arg_min(text, (path, locator)), arg_min(source, (path, locator)) FROM logged_event
WHERE kind = 'nccl_warning' AND rank IS NOT NULL AND contains(text, ' NCCL WARN NET/') AND NOT after_cancel
    AND NOT regexp_matches(text,
        '(?i)completion|async|peer|remote|connect|timed? ?out|unreachable|refused|reset|closed|request')
GROUP BY rank ORDER BY rank
"""
# What the RDMA driver of a host refuses by itself, by host.
_VERBS = r"""
SELECT host, arg_min(regexp_extract(text, '(ibv_\w+) failed', 1), (path, locator)), arg_min(source, (path, locator))
FROM logged_event WHERE kind = 'nccl_warning' AND NOT after_cancel
    AND regexp_matches(text, 'NCCL WARN Call to ibv_(create_qp|create_cq|reg_mr|alloc_pd)\w* failed')
GROUP BY host ORDER BY host
"""
# The name of a port without its numbers: where no model is known, NICs of one driver are taken for alike.
_STEM = re.compile(r"\d+/\d+$|\d+$")
_HOST = "SELECT min(host) FROM job_config WHERE key = 'node.address' AND value = ? HAVING count(DISTINCT host) = 1"
# Links that went down and were not reported up again; those of containers and bridges come and go.
_LINKS = links_down(f"NOT regexp_matches(device, '{VIRTUAL}')")
# Ports of NICs, by place (a text of ibstat does not say of which host it is): whether it is up, and the model of the NIC. One
# that an operator has switched off is none.
_PORTS = """
SELECT coalesce(p.host, s.host), s.path, p.device, n.model, regexp_matches(p.state, '(?i)\\bactive\\b') AS up, p.state
FROM devices p JOIN sources s USING (source_id)
LEFT JOIN devices n ON n.source_id = p.source_id AND n.device = p.parent AND n.kind = 'nic'
WHERE p.kind = 'port' AND regexp_matches(p.state, '(?i)\\b(active|down)\\b')
    AND NOT contains(lower(p.state), 'disabled')
ORDER BY ALL
"""
# Addresses at which NCCL of a host listens; those of containers, of virtual machines and of the host itself lead nowhere else.
_ADDRESSES = """
SELECT host, value, regexp_matches(value, '^(127\\.|169\\.254\\.|172\\.17\\.|192\\.168\\.122\\.)') FROM job_config
WHERE key = 'node.address' AND host IS NOT NULL ORDER BY ALL
"""
# PCIe links of GPUs: lanes and generation, what they can have at most, and whether the GPU had work in all looks.
_GPU_LINKS = """
SELECT coalesce(c.host, s.host), s.path, c.device, max(c.value) FILTER (c.counter = 'pcie_width') AS width,
    max(c.value) FILTER (c.counter = 'pcie_width_max') AS widest, max(c.value) FILTER (c.counter = 'pcie_gen') AS gen,
    max(c.value) FILTER (c.counter = 'pcie_gen_max') AS newest, min(c.value) FILTER (c.counter = 'utilization_percent') AS load
FROM counters c JOIN sources s USING (source_id) WHERE c.device LIKE 'GPU-%' GROUP BY ALL HAVING width IS NOT NULL ORDER BY ALL
"""
_LOOPBACK = ("127.", "localhost")
_AT_WORK = 95
_LEAST_PORTS = 3
_LONGEST = 120


def link_leads(connection: DuckDBPyConnection) -> Iterator[str]:
    """Each a sentence that says what to get, the surest first."""
    yield from _cut_off(connection)
    yield from _own_nics(connection)
    yield from _lost_peer(connection)
    yield from _closed_by(connection)
    yield from _one_link(connection)
    yield from _refused(connection)
    yield from silent_port(connection)
    yield from _unanswered(connection)
    yield from _unable(connection)
    yield from _verbs(connection)
    yield from _down_links(connection)
    yield from _down_ports(connection)
    yield from _errors_of_port(connection)
    yield from _narrow_slot(connection)
    yield from _narrow_gpu(connection)


def place(device: str, host: str | None) -> str:
    """A device and its host, where that is known."""
    return f"{device} of {host}" if host else device


def _lost_peer(connection: DuckDBPyConnection) -> Iterator[str]:
    """The one address with which the transfers of several hosts failed, none of them with another."""
    peers = rows_of(connection, "log_events", _PEERS, kinds=("completion_error",))
    if len(peers) == 1 and peers[0][0] and peers[0][1] > 1:
        peer, hosts, ranks, source = peers[0]
        whose = f"{counted(ranks, 'rank')} of {hosts} other hosts" if ranks else f"{hosts} other hosts"
        of = addressed(connection, peer)
        yield f"NICs, links and kernel log of {of}: {whose} lost transfers with it alone ({source})"


def _closed_by(connection: DuckDBPyConnection) -> Iterator[str]:
    """The one host that closed the connections of several others."""
    peers = rows_of(connection, "log_events", _CLOSED, kinds=("peer_closed",))
    if len(peers) == 1 and peers[0][0] and peers[0][1] > 1:
        ((peer, hosts, source),) = peers
        of = addressed(connection, peer) if peer[0].isdigit() else peer
        yield f"the log and kernel log of {of}: {hosts} hosts lost connections with it alone ({source})"
    peers = rows_of(connection, "log_events", _CLOSED_TO_SOMEBODY, kinds=("peer_closed",))
    if len(peers) == 1 and peers[0][0] and not peers[0][0].startswith(_LOOPBACK):
        ((peer, source),) = peers
        of = addressed(connection, peer) if peer[0].isdigit() else peer
        yield f"the logs of the processes on {of}: a connection with it was lost ({source}), and with no other host"


def addressed(connection: DuckDBPyConnection, peer: str) -> str:
    """The host of an address, where NCCL tells it."""
    known = connection.execute(_HOST, [peer]).fetchall()
    return f"{known[0][0]} (address {peer})" if known else f"the host with the address {peer}"


def _one_link(connection: DuckDBPyConnection) -> Iterator[str]:
    """The two ends of all transfers that failed, where one host alone tells of them."""
    links = rows_of(connection, "log_events", _ONE_LINK, kinds=("completion_error",))
    if len(links) == 1 and links[0][0] and links[0][1] and links[0][2]:
        ((host, peer, _, source),) = links
        ends = f"{host} and of {addressed(connection, peer)}"
        yield f"NICs and kernel logs of {ends}, and what is between: transfers were not answered ({source})"


def _refused(connection: DuckDBPyConnection) -> Iterator[str]:
    """One host: what the NICs of all refuse is of their settings."""
    hosts = rows_of(connection, "log_events", _REFUSED, kinds=("completion_error",))
    if len(hosts) == 1 and hosts[0][0]:
        ((host, status, source),) = hosts
        what = f"its own NIC refused a transfer (status {status}; {source})"
        yield f"driver, peer memory module (GPUDirect RDMA) and limits of locked memory of {host}: {what}"


def _own_nics(connection: DuckDBPyConnection) -> Iterator[str]:
    """One host, whose processes see its NICs fail: where several do it may be a switch, or a program that all run."""
    hosts = rows_of(connection, "log_events", _OWN_NICS, kinds=("nic_event",))
    if len(hosts) == 1 and hosts[0][0]:
        ((host, processes, source, what),) = hosts
        whose = f"{processes} of its processes say" if processes > 1 else "one of its processes says"
        kind = "a port of its own failed" if "port" in what else f"its own NIC reported a {what}"
        yield f"NICs, cables and switch ports of {host}: {kind}, {whose} ({source})"


def _unanswered(connection: DuckDBPyConnection) -> Iterator[str]:
    """One port: where several send in vain it may be a switch, or a host that all of them sent to."""
    ports = rows_of(connection, "log_events", _UNANSWERED, kinds=("nic_event",))
    if len(ports) == 1 and ports[0][0]:
        ((host, nic, processes, source),) = ports
        whose = f"sends of {processes} of its processes were" if processes > 1 else "what it sent was"
        ends = f"{nic} of {host}, kernel logs of it and of the hosts it sends to"
        yield f"{ends}, and what is between: {whose} not answered ({source})"


def _unable(connection: DuckDBPyConnection) -> Iterator[str]:
    """One rank: what a network cannot do on all hosts is of its version or of its settings."""
    if row := only_row(connection, "log_events", _UNABLE, kinds=("nccl_warning",)):
        rank, text, source = row
        said = text.partition(" NCCL WARN ")[2].strip()[:_LONGEST]
        yield f"log, NICs and driver of the host of rank {rank}, whose network alone failed by itself: {said} ({source})"


def _verbs(connection: DuckDBPyConnection) -> Iterator[str]:
    """One host: what the drivers of all refuse is of the settings of the job."""
    hosts = rows_of(connection, "log_events", _VERBS, kinds=("nccl_warning",))
    if len(hosts) == 1 and hosts[0][0]:
        ((host, call, source),) = hosts
        yield f"limits of locked memory (`ulimit -l`), driver and kernel log of {host}: {call} failed there ({source})"


def _down_links(connection: DuckDBPyConnection) -> Iterator[str]:
    """One link; where several went down it may be a switch, or a host that was started."""
    if row := only_row(connection, "device_events", _LINKS, kinds=("link_down",)):
        host, device, source = row
        where = place(device, host or "its host")
        yield f"{where}, cable and switch port, and the ranks that use it: its link went down ({source})"


def _down_ports(connection: DuckDBPyConnection) -> Iterator[str]:
    """One port, while that of the same name is up on other hosts, or of one host several of NICs of the same model are."""
    ports = rows_of(connection, "devices", _PORTS)
    up = {(port[0] or port[1], port[2]): port[3] for port in ports if port[4]}
    down = [port for port in ports if not port[4]]
    if len(down) != 1 or (down[0][0] or down[0][1], down[0][2]) in up:
        return
    ((host, path, device, model, _, state),) = down
    elsewhere = sum(name == device for _, name in up)
    is_alike = model is not None or len({_STEM.sub("", name) for _, name in (*up, down[0][1:3])}) == 1
    beside = sum(at == (host or path) and its == model for (at, _), its in up.items())
    if elsewhere or (is_alike and beside >= _LEAST_PORTS):
        others = f"it is up on {counted(elsewhere, 'other host')}" if elsewhere else f"{beside} others of the host are up"
        where = place(device, host or "its host")
        yield f"{where}, cable and switch port, and the ranks that use it: its port is down ({state}; {path}), {others}"


def _errors_of_port(connection: DuckDBPyConnection) -> Iterator[str]:
    if (port := port_errors(connection)) is not None:
        where = place(port.device, port.host or "its host")
        what = f"{port.errors} {port.counter} since its counters were cleared ({port.path})"
        yield f"{where}, cable and switch port: {what}, {port.others} other ports next to none"


def _narrow_slot(connection: DuckDBPyConnection) -> Iterator[str]:
    if (found := odd_slot(connection)) is not None:
        nic, host, what = found
        yield f"the slot of {place(nic, host)} (lanes, generation, riser, BIOS), and the ranks that use it: {what}"


def _cut_off(connection: DuckDBPyConnection) -> Iterator[str]:
    """One host of several whose NCCL listens where no other host can reach it."""
    rows = rows_of(connection, "job_config", _ADDRESSES)
    hosts = {host: address for host, address, _ in rows}
    inside = {host for host, _, is_inside in rows if is_inside} - {host for host, _, is_inside in rows if not is_inside}
    if len(inside) == 1 and len(hosts) > len(inside):
        (host,) = inside
        others = counted(len(hosts) - 1, "other")
        where = f"NCCL listens there at {hosts[host]}, which no other host can reach, and on {others} elsewhere"
        yield f"NCCL_SOCKET_IFNAME and the interfaces of {host}, and the ranks on it: {where}"


def _narrow_gpu(connection: DuckDBPyConnection) -> Iterator[str]:
    """One GPU whose PCIe link has fewer lanes than it can, or is slower under load; those of all others are at their most."""
    links = rows_of(connection, "counters", _GPU_LINKS)
    narrow = [link for link in links if _lacks(link[3], link[4]) or (_lacks(link[5], link[6]) and (link[7] or 0) >= _AT_WORK)]
    if len(narrow) != 1 or len(links) <= _LEAST_PORTS:
        return
    ((host, path, device, width, widest, generation, newest, _),) = narrow
    lanes = f"{width:.0f} lanes of {widest or width:.0f}"
    speed = f", generation {generation:.0f} of {newest or generation:.0f}" if generation else ""
    where, others = place(device, host), counted(len(links) - 1, "other GPU")
    yield f"the PCIe slot of {where}, and the rank on it: its link has {lanes}{speed} ({path}), none of {others} lacks any"


def _lacks(value: float | None, most: float | None) -> bool:
    return value is not None and most is not None and value < most
