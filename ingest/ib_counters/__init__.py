"""State, rate and counters of InfiniBand and RoCE ports, by the collector or as text (docs/formats/ib-counters.md)."""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from forensics.bundle.artefact import Artefact
from forensics.ingest._shared.content import Lines, from_first_character, read_object
from forensics.ingest._shared.prompts import is_command
from forensics.ingest._shared.rows import add_row
from forensics.ingest._shared.values import integer, text
from forensics.ingest.ib_counters.ethtool import is_ethtool, readings
from forensics.ingest.ib_counters.exporter import is_exporter, read_metrics
from forensics.ingest.ib_counters.linkinfo import is_linkinfo, read_linkinfo
from forensics.ingest.ib_counters.lspci import is_lspci, read_lspci
from forensics.ingest.ib_counters.pcie import link_values
from forensics.ingest.ib_counters.queried import is_queried, read_queried
from forensics.ingest.ib_counters.series import read_series
from forensics.ingest.ib_counters.settings import is_settings, read_settings
from forensics.ingest.ib_counters.sysfs import is_sysfs, read_files
from forensics.ingest.interface import Batch, Identity, Ingester, Item, Problem

SCHEMA = "forensics.ib/1"
MAX_DEVICES = 1_024
# The collector numbers its reads; outside of a bundle nothing but the name has the number.
_READ = re.compile(r"counters-(\d{1,4})\.json(?:\.\w+)?$")
_RATE = re.compile(r"\s*(\d{1,6}(?:\.\d{1,3})?) Gb/sec")
_LINK_KINDS = {"InfiniBand": "ib", "Ethernet": "ethernet"}
MAX_LINE = 4096
_CA = re.compile(r"CA '([\w.-]{1,64})'")
_PORT = re.compile(r"\s+Port (\d{1,3}):\s*$")
_VALUE = re.compile(r"\s+([A-Z][A-Za-z ]{1,40}): (.{1,120})")
_LINK = re.compile(r"link ([\w.-]{1,64})/(\d{1,3}) ((?:[a-z]\w{1,62} \d{1,20} ?)+)\s*$")
# `rdma link show`, and `ibdev2netdev`, which knows the interface alone.
_STATE = re.compile(
    r"link (?P<nic>[\w.-]{1,64})/(?P<port>\d{1,3}) .{0,160}?\bstate (?P<state>[A-Z_]{2,16}) "
    r"physical_state (?P<phys>[A-Z_]{2,24})\b"
)
_NETDEV = re.compile(r"(?P<nic>[\w.-]{1,64}) port (?P<port>\d{1,3}) ==> \S{1,64} \((?P<state>Up|Down)\)\s*")
_OF_NETDEV = {"Up": "Active", "Down": "Down"}
# perfquery: counters since they were cleared, of a port by its local identifier.
_QUERY = re.compile(r"# Port (?:extended )?counters: Lid (\d{1,6}) port (\d{1,3})\b")
_DOTTED = re.compile(r"([A-Z]\w{2,48}):\.{2,64}(\d{1,20})\s*$")
_OF_QUERY = {
    "SymbolErrorCounter": "symbol_error",
    "LinkErrorRecoveryCounter": "link_error_recovery",
    "LinkDownedCounter": "link_downed",
    "PortRcvErrors": "port_rcv_errors",
    "PortRcvRemotePhysicalErrors": "port_rcv_remote_physical_errors",
    "PortXmitDiscards": "port_xmit_discards",
    "LocalLinkIntegrityErrors": "local_link_integrity_errors",
    "PortXmitWait": "port_xmit_wait",
}
# Texts that may be of several hosts, or of links alone.
_OF_HOSTS = ((is_linkinfo, read_linkinfo), (is_settings, read_settings), (is_lspci, read_lspci))
_OF_CA = {"CA type": "hca_type", "Node GUID": "node_guid"}
_OF_PORT = {"State": "state", "Physical state": "phys_state", "Link layer": "link_layer"}


def sniff(head: bytes, path: str) -> int:
    """Names its schema; or is the text of ibstat, perfquery, rdma, ethtool, node_exporter, or of files of sysfs."""
    if b'"forensics.ib/' in head[:512] or b'"forensics.ib-series/' in head[:512]:
        return 95
    if head[:1] == b"{" or b"\0" in head:
        return 0
    words = head.decode("utf-8", "replace")
    known = (is_text, is_queried, is_ethtool, is_sysfs, is_exporter, *(form for form, _ in _OF_HOSTS))
    return 85 if any(form(words) for form in known) else 0


def rows(artefact: Artefact) -> Iterator[Item]:
    """NICs and their ports, links to the network with their rates, and one row a counter."""
    head = artefact.begin(2048)
    words = head.decode("utf-8", "replace")
    if is_queried(words):
        yield from _queried(artefact)
        return
    if is_ethtool(words):
        yield from _interfaces(artefact)
        return
    if is_sysfs(words):
        for number, reading in enumerate(read_files(Lines(artefact)), _sample(artefact)):
            yield from _document(reading, number)
        return
    if b'"forensics.ib-series/' in head[:512]:
        yield from _series(artefact)
        return
    if reader := next((read for form, read in _OF_HOSTS if form(words)), None):
        for host, reading in reader(Lines(artefact)):
            yield from _document(reading, _sample(artefact), host)
        return
    if is_exporter(words):
        yield from _document(read_metrics(Lines(artefact)), _sample(artefact))
        return
    is_document = from_first_character(head).startswith(b"{")
    document = (yield from read_object(artefact, SCHEMA)) if is_document else read_text(Lines(artefact))
    if document is None:
        return
    yield from _document(document, _sample(artefact))


def _document(document: Mapping[str, Any], sample: int, host: str | None = None) -> Iterator[Item]:
    """NICs, ports and counters of one read, of the host of the artefact or of another one."""
    node = text(document.get("node"))
    if node:
        yield Identity(host=node)
    tables: dict[str, dict[str, list[Any]]] = defaultdict(lambda: defaultdict(list))
    problems: list[Problem] = []
    for name, facts in _named(document.get("devices"), "devices", problems):
        add_row(tables["devices"], _nic(name, facts))
        _counters(tables, name, link_values(facts.get("pcie")))
        for number, port in _named(facts.get("ports"), f"devices/{name}/ports", problems):
            _port(tables, name, f"{name}/{number}", port)
            lid = integer(port.get("lid"))
            _counters(tables, f"{name}/{number}", port.get("counters"), port.get("hw_counters"), lid and {"lid": lid})
    yield from problems
    for batch in _batches(tables, sample, integer(document.get("time_ns"))):
        count = len(next(iter(batch.columns.values())))
        yield batch if host is None else Batch(batch.table, {**batch.columns, "host": [host] * count})


def _series(artefact: Artefact) -> Iterator[Item]:
    """The devices, and the counters of the two reads that are compared."""
    series = read_series(artefact)
    yield from series.problems
    if not series.document:
        yield Problem("no read of counters in it", "line=1", fatal=True)
        return
    yield from _document(series.document, 0)
    for sample, (time_ns, values) in enumerate(series.reads):
        tables: dict[str, dict[str, list[Any]]] = defaultdict(lambda: defaultdict(list))
        for (device, counter), value in sorted(values.items()):
            add_row(tables["counters"], {"device": device, "counter": counter, "value": value})
        yield from _batches(tables, sample, time_ns)


def _interfaces(artefact: Artefact) -> Iterator[Item]:
    """Reads by ethtool: an interface is a NIC with one port."""
    reads: Counter[str] = Counter()
    for reading in readings(Lines(artefact), artefact.path):
        tables: dict[str, dict[str, list[Any]]] = defaultdict(lambda: defaultdict(list))
        device = f"{reading.interface}/1"
        if reading.interface not in reads:
            add_row(tables["devices"], _nic(reading.interface, {}))
            _port(tables, reading.interface, device, {"link_layer": "Ethernet"})
        _counters(tables, device, reading.values)
        yield from _batches(tables, reads[reading.interface], reading.time_ns)
        reads[reading.interface] += 1
    if not reads:
        yield Problem("counters of an interface that nothing names: neither the command nor the name of the file", "line=1")


def _queried(artefact: Artefact) -> Iterator[Item]:
    """Counters of ports of several hosts; of those that are not listed nothing but their number is known."""
    found = read_queried(Lines(artefact))
    rows: list[tuple[str | None, str, str, int]] = [
        (port.host, port.device, known, port.counts.get(name, 0)) for port in found.ports for name, known in _OF_QUERY.items()
    ]
    rows += [(None, "fabric", "ports_checked", found.checked)] if found.checked is not None else []
    if rows:
        columns = {name: [row[at] for row in rows] for at, name in enumerate(("host", "device", "counter", "value"))}
        yield Batch("counters", {**columns, "sample": [_sample(artefact)] * len(rows), "time_ns": [None] * len(rows)})


def _sample(artefact: Artefact) -> int:
    match = _READ.search(artefact.path)
    return artefact.sample if artefact.sample is not None else int(match[1]) if match else 0


def _named(value: Any, where: str, problems: list[Problem]) -> list[tuple[str, dict[str, Any]]]:
    """Objects by name; what is none is noted."""
    if not isinstance(value, dict):
        problems.append(Problem(f"{where}: not an object", where))
        return []
    found = [(name[:64], facts) for name, facts in value.items() if isinstance(facts, dict)]
    if len(found) < len(value):
        problems.append(Problem(f"{where}: {len(value) - len(found)} entries are no objects", where))
    return found[:MAX_DEVICES]


def _nic(name: str, facts: Mapping[str, Any]) -> dict[str, Any]:
    return {
        "device": name,
        "kind": text(facts.get("kind")) or "nic",
        "parent": None,
        "model": text(facts.get("hca_type")),
        "uuid": text(facts.get("node_guid")),
        "numa_node": integer(facts.get("numa_node")),
        "pci": text(facts.get("pci")),
        "rank": None,
        "rate_bytes_per_s": None,
        "state": None,
    }


def _port(tables: dict[str, dict[str, list[Any]]], nic: str, device: str, port: Mapping[str, Any]) -> None:
    """A port and its link."""
    rate = _rate(text(port.get("rate")))
    words = [text(port.get(key)) for key in ("state", "phys_state")]
    state = ", ".join(word for word in words if word) or None
    row = dict.fromkeys(("model", "uuid", "numa_node", "pci", "rank"))
    add_row(
        tables["devices"],
        row | {"device": device, "kind": "port", "parent": nic, "rate_bytes_per_s": rate, "state": state},
    )
    kind = _LINK_KINDS.get(text(port.get("link_layer")) or "")
    add_row(tables["links"], {"device_a": device, "device_b": "network", "kind": kind, "rate_bytes_per_s": rate})


def _counters(tables: dict[str, dict[str, list[Any]]], device: str, *folders: object) -> None:
    """Counters of a port; a name that several folders have is taken from the first."""
    found: dict[str, int] = {}
    for values in folders:
        for name, value in values.items() if isinstance(values, dict) else ():
            number = integer(value)
            if number is not None:
                found.setdefault(name[:64], number)
    for name, number in found.items():
        add_row(tables["counters"], {"device": device, "counter": name, "value": number})


def _rate(words: str | None) -> int | None:
    """Bytes per second of `400 Gb/sec (4X NDR)`."""
    match = _RATE.match(words or "")
    return round(float(match[1]) * 1e9 / 8) if match else None


def _batches(tables: Mapping[str, dict[str, list[Any]]], sample: int, time_ns: int | None) -> Iterator[Batch]:
    for table, columns in tables.items():
        count = len(next(iter(columns.values())))
        times: dict[str, list[Any]] = {"sample": [sample] * count, "time_ns": [time_ns] * count} if table == "counters" else {}
        yield Batch(table, {**columns, **times})


def is_text(head: str) -> bool:
    """Whether it begins with a channel adapter of ibstat's, a port of perfquery's, or with a link of rdma's."""
    lines = [line[:MAX_LINE] for line in head.splitlines() if line.strip()]
    if any(_CA.match(line) for line in lines[:4]):
        return any(_PORT.match(line) for line in lines)
    if any(_QUERY.match(line) for line in lines[:4]):
        return any(_DOTTED.match(line) for line in lines)
    links = [line for line in lines if not is_command(line)][:2]
    return bool(links) and (
        all(map(_LINK.match, links)) or all(_STATE.match(line) or _NETDEV.fullmatch(line) for line in links)
    )


def read_text(lines: Iterable[tuple[int, str]]) -> dict[str, Any]:
    """`ibstat`, `perfquery`, `rdma` and `ibdev2netdev` as text, as the collector's document: devices with their ports."""
    devices: dict[str, dict[str, Any]] = {}
    device: dict[str, Any] = {}
    port: dict[str, Any] | None = None
    for _, whole in lines:
        line = whole[:MAX_LINE]
        if match := _CA.match(line):
            device, port = devices.setdefault(match[1], {"ports": {}}), None
        elif match := _LINK.match(line):
            port = devices.setdefault(match[1], {"ports": {}})["ports"].setdefault(match[2], {})
            words = match[3].split()
            port["hw_counters"] = dict(zip(words[::2], map(int, words[1::2]), strict=True))
            port = None
        elif match := _STATE.match(line) or _NETDEV.fullmatch(line):
            state, phys = match["state"], match.groupdict().get("phys")
            port = devices.setdefault(match["nic"], {"ports": {}})["ports"].setdefault(match["port"], {})
            port |= {"state": _OF_NETDEV.get(state, state), **({"phys_state": phys} if phys else {})}
            port = None
        elif match := _QUERY.match(line):
            device = devices.setdefault(f"lid{match[1]}", {"ports": {}})
            port = device["ports"].setdefault(match[2], {})
        elif port is not None and (match := _DOTTED.match(line)):
            if match[1] in _OF_QUERY:
                port.setdefault("counters", {})[_OF_QUERY[match[1]]] = int(match[2])
        elif device and (match := _PORT.match(line)):
            port = device["ports"].setdefault(match[1], {})
        elif device and (match := _VALUE.match(line)):
            _keep(device, port, match[1], match[2].strip())
    return {"devices": devices}


def _keep(device: dict[str, Any], port: dict[str, Any] | None, name: str, value: str) -> None:
    if port is None:
        if name in _OF_CA:
            device[_OF_CA[name]] = value
    elif name == "Rate":
        port["rate"] = f"{value} Gb/sec"
    elif name == "Base lid" and value.isdecimal():
        port["lid"] = int(value)
    elif name in _OF_PORT:
        port[_OF_PORT[name]] = value


INGESTER = Ingester("ib_counters", "ib_counters", sniff, rows, most=95)
