"""Ports of NICs as node_exporter tells them (`curl HOST:9100/metrics`, whole or what `grep infiniband` left of it).

Upstream: collector/infiniband_linux.go of node_exporter 1.9; it reads sysfs and gives data in bytes, where sysfs counts words.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from typing import Any

_NUMBER = r"\d{1,20}(?:\.\d{1,20})?(?:[eE]\+?\d{1,2})?"
_METRIC = re.compile(
    rf"node_infiniband_(?P<name>[a-z]\w{{1,80}})\{{(?P<labels>[^}}\n]{{1,1000}})\}} (?P<value>{_NUMBER})(?: \d{{1,16}})?\s*"
)
_LABEL = re.compile(r'(\w{1,64})="([\w.-]{1,64})"')
_PROMETHEUS = re.compile(r"# (?:HELP|TYPE) .{1,4000}|[A-Za-z_:][\w:]{0,120}(?:\{.{0,4000}\})? [-+.\deE]{1,32}(?: \d{1,16})?\s*")
_LONGEST = 2048
_WORD = 4
_PREFIX = "node_infiniband_"
_COUNTERS = {
    "link_downed_total": "link_downed",
    "link_error_recovery_total": "link_error_recovery",
    "local_ack_timeout_errors_total": "local_ack_timeout_err",
    "local_link_integrity_errors_total": "local_link_integrity_errors",
    "np_cnp_packets_sent_total": "np_cnp_sent",
    "np_ecn_marked_roce_packets_received_total": "np_ecn_marked_roce_packets",
    "out_of_buffer_drops_total": "out_of_buffer",
    "out_of_sequence_packets_received_total": "out_of_sequence",
    "packet_sequence_errors_total": "packet_seq_err",
    "port_data_received_bytes_total": "port_rcv_data",
    "port_data_transmitted_bytes_total": "port_xmit_data",
    "port_discards_transmitted_total": "port_xmit_discards",
    "port_errors_received_total": "port_rcv_errors",
    "port_packets_received_total": "port_rcv_packets",
    "port_packets_transmitted_total": "port_xmit_packets",
    "port_transmit_wait_total": "port_xmit_wait",
    "rp_cnp_packets_handled_total": "rp_cnp_handled",
    "symbol_error_total": "symbol_error",
}
_STATES = {
    "state_id": ("state", {1: "1: DOWN", 2: "2: INIT", 3: "3: ARMED", 4: "4: ACTIVE"}),
    "physical_state_id": ("phys_state", {2: "2: Polling", 3: "3: Disabled", 5: "5: LinkUp"}),
}


def is_exporter(head: str) -> bool:
    """Whether all lines are metrics, the last of which may be cut, and some of them of ports."""
    lines = [line for line in head.splitlines()[:-1] if line.strip()]
    return any(line.startswith(_PREFIX) for line in lines) and all(_PROMETHEUS.fullmatch(line) for line in lines)


def read_metrics(lines: Iterable[tuple[int, str]]) -> dict[str, Any]:
    """Ports in the form of the collector's document; a metric that comes again counts as it came last."""
    devices: dict[str, dict[str, Any]] = {}
    for _, line in lines:
        said = _METRIC.fullmatch(line) if line.startswith(_PREFIX) and len(line) <= _LONGEST else None
        labels = dict(_LABEL.findall(said["labels"])) if said else {}
        if said is None or not {"device", "port"} <= labels.keys():
            continue
        port = devices.setdefault(labels["device"], {"ports": {}})["ports"].setdefault(labels["port"], {"counters": {}})
        for name, value in _facts(said["name"], float(said["value"])):
            (port["counters"] if isinstance(value, int) else port)[name] = value
    return {"devices": devices}


def _facts(name: str, value: float) -> Iterator[tuple[str, int | str]]:
    if counter := _COUNTERS.get(name):
        yield counter, int(value) // (_WORD if "_bytes_" in name else 1)
    elif name == "rate_bytes_per_second":
        yield "rate", f"{value * 8 / 1e9:g} Gb/sec"
    elif name in _STATES:
        fact, words = _STATES[name]
        yield fact, words.get(int(value), str(int(value)))
