"""Links of a fabric by `iblinkinfo`: those of the NICs of hosts, whichever end of them lists them.

Upstream: infiniband-diags/iblinkinfo.c of linux-rdma/rdma-core: below `Switch:` or `CA:` a line for each port, the other end of
its link in quotes, and `Could be` with what both ends can do and the link does not.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from typing import Any

_MAX_LINE, _MAX_PORTS = 1024, 10_000
_NODE = re.compile(r"(?:Switch|CA): (?:0x[\da-f]{1,16} )?(?P<what>\S.{0,127}?):?\s*")
_LINK = re.compile(
    r".{0,120}?\s(?P<port>\d{1,3})\[[ \d]{0,4}\] ==\( {0,4}(?P<lanes>\d{1,2})X {1,12}(?P<gbits>\d{1,3}(?:\.\d{1,6})?) Gbps"
    r" {1,4}Active/ {0,4}LinkUp\) ?==> .{0,60}?\s(?P<there>\d{1,3})\[[ \d]{0,4}\] \"(?P<what>[^\"\n]{0,128})\" "
    r"\( ?(?P<best>Could be [^)]{1,60})?\s?\)\s*"
)
_LANES, _GBITS = re.compile(r"(\d{1,2})X\b"), re.compile(r"(\d{1,3}(?:\.\d{1,6})?) Gbps")
_NIC = re.compile(r"(?P<host>[A-Za-z0-9][\w.-]{0,252}) (?P<nic>[A-Za-z]\w{0,32}(?:-\d{1,3})?)")


def is_linkinfo(head: str) -> bool:
    """Whether links of nodes stand among the first lines."""
    return "]==(" in head.replace("] ==(", "]==(") and any(_LINK.fullmatch(line[:_MAX_LINE]) for line in head.splitlines())


def read_linkinfo(lines: Iterable[tuple[int, str]]) -> Iterator[tuple[str, dict[str, Any]]]:
    """Hosts with their NICs, as the collector's document has them; `rate_mbits_most` is what a link could reach."""
    hosts: dict[str, dict[str, Any]] = {}
    node, count = "", 0
    for _, whole in lines:
        line = whole[:_MAX_LINE].rstrip()
        if heading := _NODE.fullmatch(line):
            node = heading["what"] if line.startswith("CA") else ""
        elif count < _MAX_PORTS and (link := _LINK.fullmatch(line)):
            # The link of a NIC stands below its switch, and below the NIC itself.
            there, here = _NIC.fullmatch(link["what"]), _NIC.fullmatch(node)
            for nic, number in ((there, link["there"]), (here, link["port"])):
                if nic:
                    count += 1
                    ports = hosts.setdefault(nic["host"], {}).setdefault(nic["nic"], {"ports": {}})["ports"]
                    ports.setdefault(number, _port(link))
    for host, devices in hosts.items():
        yield host, {"devices": devices}


def _port(link: re.Match[str]) -> dict[str, Any]:
    lanes, gbits, best = int(link["lanes"]), float(link["gbits"]), link["best"] or ""
    wider, faster = _LANES.search(best), _GBITS.search(best)
    most = (int(wider[1]) if wider else lanes) * (float(faster[1]) if faster else gbits)
    rate = {"rate": f"{lanes * gbits:.3f} Gb/sec", "state": "Active", "link_layer": "InfiniBand"}
    return rate | ({"counters": {"rate_mbits_most": round(most * 1000)}} if best else {})
