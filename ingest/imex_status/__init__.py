"""Nodes of a domain of NVLink between hosts as `nvidia-imex-ctl -N` shows them (docs/formats/imex-status.md).

Upstream: NVIDIA IMEX service 560 to 580, its guide. No machine with it was at hand.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from typing import Any

from forensics.bundle.artefact import Artefact
from forensics.ingest._shared.content import Lines
from forensics.ingest.interface import Batch, Ingester, Item, Problem

MAX_NODES = 4096
_HEADER = re.compile(r"\s*Nodes From\\To(?P<numbers>(?:\s+\d{1,4}){1,4096})\s*")
_ROW = re.compile(r"\s*(?P<number>\d{1,4})(?P<states>(?:\s+(?:[INRDAC]|V!M?)){1,4096})\s*")
_NODE = re.compile(r"(?P<number>\d{1,4}) - (?P<address>[\w.:]{2,64}) - (?P<host>[\w.-]{1,253})")
_CONNECTED = "C"


def sniff(head: bytes, path: str) -> int:
    """The heading of the table of connections."""
    if b"Nodes From\\To" not in head or b"\0" in head:
        return 0
    return 80 if any(_HEADER.fullmatch(line) for line in head.decode("utf-8", "replace").splitlines()) else 0


def rows(artefact: Artefact) -> Iterator[Item]:
    """A log event of each node without any connection, where all others are connected with each other."""
    lines = Lines(artefact)
    states, names, numbers = _read(lines)
    if lines.problem is not None:
        yield lines.problem
    if not states:
        yield Problem("no row of connections could be read", "line=1", fatal=True)
        return
    apart = sorted(_apart({number: row for number, (_, row) in states.items()}))
    if apart:
        found = [(states[number][0], names.get(number, f"node {number}")) for number in apart]
        columns: dict[str, list[Any]] = {"locator": [line for line, _ in found], "subject": [name for _, name in found]}
        texts = [f"{name}: connected with none of {len(numbers) - 1} other nodes" for _, name in found]
        same: dict[str, list[Any]] = {
            "kind": ["imex_apart"] * len(found),
            "host": [None] * len(found),
            "time_ns": [None] * len(found),
        }
        yield Batch("log_events", {**columns, **same, "text": texts})


def _read(lines: Iterable[tuple[int, str]]) -> tuple[dict[int, tuple[int, list[str]]], dict[int, str], list[int]]:
    """Line and states by node of the last table, names of nodes, and the numbers of its columns."""
    states: dict[int, tuple[int, list[str]]] = {}
    names: dict[int, str] = {}
    numbers: list[int] = []
    for number, line in lines:
        if header := _HEADER.fullmatch(line):
            states, numbers = {}, [int(each) for each in header["numbers"].split()]
        elif (row := _ROW.fullmatch(line)) and len(row["states"].split()) == len(numbers) <= MAX_NODES:
            states[int(row["number"])] = number, row["states"].split()
        else:
            names |= {int(node["number"]): node["host"] for node in _NODE.finditer(line)}
    return states, names, numbers


def _apart(states: dict[int, list[str]]) -> set[int]:
    """Nodes that nobody else is connected with; none where some of the others are not connected with each other either."""
    places = {number: place for place, number in enumerate(sorted(states))}
    if any(len(row) != len(places) for row in states.values()):
        return set()
    alone = {
        number for number in states if all(states[other][places[number]] != _CONNECTED for other in states if other != number)
    }
    rest = states.keys() - alone
    whole = all(states[one][places[other]] == _CONNECTED for one in rest for other in rest if one != other)
    return alone if whole and len(rest) > len(alone) else set()


INGESTER = Ingester("imex_status", "imex_status", sniff, rows, most=80)
