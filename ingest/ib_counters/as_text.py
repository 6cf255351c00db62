"""`ibstat` and `rdma statistic` as text, in the form of the collector's document."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Any

MAX_LINE = 4096
_CA = re.compile(r"CA '([\w.-]{1,64})'")
_PORT = re.compile(r"\s+Port (\d{1,3}):\s*$")
_VALUE = re.compile(r"\s+([A-Z][A-Za-z ]{1,40}): (.{1,120})")
_LINK = re.compile(r"link ([\w.-]{1,64})/(\d{1,3}) ((?:[a-z]\w{1,62} \d{1,20} ?)+)\s*$")
_OF_CA = {"CA type": "hca_type", "Node GUID": "node_guid"}
_OF_PORT = {"State": "state", "Physical state": "phys_state", "Link layer": "link_layer"}


def is_text(head: str) -> bool:
    """Whether it begins with a channel adapter of ibstat's, or with a link of rdma's."""
    lines = [line[:MAX_LINE] for line in head.splitlines() if line.strip()]
    if any(_CA.match(line) for line in lines[:4]):
        return any(_PORT.match(line) for line in lines)
    return bool(lines) and all(_LINK.match(line) for line in lines[:2])


def read_text(lines: Iterable[tuple[int, str]]) -> dict[str, Any]:
    """Devices with their ports, by name and number."""
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
    elif name in _OF_PORT:
        port[_OF_PORT[name]] = value
