"""node.json: identity, clocks and limits of one host (docs/formats/collection.md)."""

from __future__ import annotations

from collections.abc import Iterator

from forensics.bundle.artefact import Artefact
from forensics.ingest._shared.config import config_batches
from forensics.ingest._shared.content import read_object
from forensics.ingest._shared.values import integer, objects, text
from forensics.ingest.interface import Batch, Identity, Ingester, Item, Problem

_MARKS = (b'"boot_id"', b'"hostname"', b'"clocks"', b'"ptrace_scope"', b'"processes_seen"')
_FACTS = (
    "hostname",
    "boot_id",
    "kernel",
    "machine",
    "clock_sync",
    "ptrace_scope",
    "cap_eff",
    "container",
    "cpu",
    "processes_seen",
    "processes_unreadable",
)
_TIMES = ("realtime_ns", "monotonic_ns", "boottime_ns", "bound_ns")


def sniff(head: bytes, path: str) -> int:
    """A JSON object with the keys of a node."""
    return 90 if head.lstrip()[:1] == b"{" and sum(mark in head for mark in _MARKS) >= 3 else 0


def rows(artefact: Artefact) -> Iterator[Item]:
    """Clock readings, and what limits the collector on this host."""
    document = yield from read_object(artefact)
    if document is None:
        return
    node = text(document.get("node")) or artefact.host or text(document.get("hostname"))
    if node is None:
        yield Problem("no node name", fatal=True)
        return
    yield Identity(host=node)
    yield from config_batches({f"node.{key}": document.get(key) for key in _FACTS})
    clocks = objects(document.get("clocks"))
    if clocks:
        times = {key: [integer(clock.get(key)) for clock in clocks] for key in _TIMES}
        yield Batch("clocks", {"host": [node] * len(clocks), "method": ["read together"] * len(clocks), **times})


INGESTER = Ingester("node_facts", "collection", sniff, rows, most=90)
