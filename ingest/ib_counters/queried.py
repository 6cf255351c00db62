"""Errors of ports of a fabric by `ibqueryerrors`: those of the NICs of hosts, whose switch ports count the same.

Upstream: infiniband-diags/ibqueryerrors.c of linux-rdma/rdma-core: a node below `Errors for`, switches by their GUID in front
of the description, NICs by the description alone, which is the host and the device. It lists ports beyond a threshold only.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass, field

MAX_LINE, MAX_PORTS = 4096, 10_000
_NODE = re.compile(r"Errors for (?:0x[\da-f]{1,16} )?\"(?P<what>[^\"\n]{1,128})\"\s*")
_NIC = re.compile(r"(?P<host>[A-Za-z0-9][\w.-]{0,252}) (?P<nic>[A-Za-z]\w{0,32}(?:-\d{1,3})?)")
_PORT = re.compile(r"\s+GUID 0x[\da-f]{1,16} port (?P<port>\d{1,3}): ?(?P<counts>\[.*)")
_COUNT = re.compile(r"\[(?P<name>[A-Z]\w{2,48}) == (?P<value>\d{1,20})(?: \([^)]{1,40}\))?\]")
_CHECKED = re.compile(r"##\s+(?P<ports>\d{1,9}) ports checked, \d{1,9} ports have errors beyond threshold\s*")


@dataclass(frozen=True, slots=True)
class PortOfHost:
    """A port of the NIC of a host, with its counters by the names of the tool."""

    host: str
    device: str
    counts: dict[str, int]


@dataclass(slots=True)
class Queried:
    """Ports of hosts with errors, and how many ports were looked at."""

    ports: list[PortOfHost] = field(default_factory=list)
    checked: int | None = None


def is_queried(head: str) -> bool:
    """Whether nodes with their ports begin among the first lines."""
    lines = head.splitlines()
    return any(map(_NODE.match, lines[:10])) and any(map(_PORT.match, lines))


def read_queried(lines: Iterable[tuple[int, str]]) -> Queried:
    """What the text tells of hosts."""
    found, node = Queried(), None
    for _, whole in lines:
        line = whole[:MAX_LINE].rstrip()
        if said := _NODE.fullmatch(line):
            node = _NIC.fullmatch(said["what"])
        elif node is not None and len(found.ports) < MAX_PORTS and (port := _PORT.fullmatch(line)):
            counts = {count["name"]: int(count["value"]) for count in _COUNT.finditer(port["counts"])}
            found.ports.append(PortOfHost(node["host"], f"{node['nic']}/{port['port']}", counts))
        elif checked := _CHECKED.fullmatch(line):
            found.checked = int(checked["ports"])
    return found
