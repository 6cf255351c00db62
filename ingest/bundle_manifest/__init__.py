"""bundle.json: what was asked and found, and the status of each rank and collector (docs/formats/collection.md)."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from forensics.bundle.artefact import Artefact
from forensics.bundle.layout import SCHEMA
from forensics.ingest._shared.config import config_batches
from forensics.ingest._shared.content import read_object
from forensics.ingest._shared.values import integer, rank_number, strings, text
from forensics.ingest.interface import Batch, Ingester, Item, Problem


def sniff(head: bytes, path: str) -> int:
    """Names its schema."""
    return 95 if b'"forensics.bundle/' in head else 0


def rows(artefact: Artefact) -> Iterator[Item]:
    """Job settings, the ranks known or expected, and coverage in short."""
    document = yield from read_object(artefact, SCHEMA)
    if document is None:
        return
    for said in strings(document.get("warnings")):
        yield Problem(f"collector: {said}")
    settings = {key: document.get(key) for key in ("world_size", "job_id", "tool", "nodes")}
    collection = {f"collection.{key}": document.get(key) for key in ("begin_ns", "end_ns", "interrupted")}
    yield from config_batches(settings | collection)
    offsets = list(_offsets(document.get("clock_offsets")))
    if offsets:
        yield _batch("clocks", ("host", "reference", "offset_ns", "bound_ns", "method"), offsets)
    ranks = [row for row in _ranks(document.get("ranks")) if row[0] is not None]
    if ranks:
        yield _batch("ranks", ("rank", "host", "pid", "state"), ranks)
    nodes = {rank: host for rank, host, _, _ in ranks}
    statuses: list[tuple[str, str | None, int | None, str, str]] = []
    for key, collector, status in _statuses(document.get("status")):
        statuses.append(("rank", nodes.get(rank_number(key)), rank_number(key), collector, status))
    for key, collector, status in _statuses(document.get("node_status")):
        statuses.append(("host", key, None, collector, status))
    if statuses:
        yield _batch("coverage", ("scope", "host", "rank", "kind", "status"), statuses)


def _batch(table: str, names: Sequence[str], rows: Sequence[tuple[object, ...]]) -> Batch:
    return Batch(table, dict(zip(names, map(list, zip(*rows, strict=True)), strict=True)))


def _offsets(value: Any) -> Iterator[tuple[str, str | None, int, int, str]]:
    """Clocks of hosts against that of the host which collected from them."""
    for host, row in value.items() if isinstance(value, dict) else ():
        offset, bound = (integer(row.get(key)) for key in ("offset_ns", "bound_ns")) if isinstance(row, dict) else (None, None)
        if offset is not None and bound is not None:
            yield host, text(row.get("reference")), offset, bound, "asked and answered during the collection"


def _ranks(value: Any) -> Iterator[tuple[int | None, str | None, int | None, str | None]]:
    for key, facts in value.items() if isinstance(value, dict) else ():
        if isinstance(facts, dict):
            yield rank_number(key), text(facts.get("node")), integer(facts.get("pid")), text(facts.get("state"))


def _statuses(value: Any) -> Iterator[tuple[str, str, str]]:
    """(rank or node, collector, status)."""
    for key, collectors in value.items() if isinstance(value, dict) else ():
        for collector, status in collectors.items() if isinstance(collectors, dict) else ():
            if isinstance(status, str):
                yield key, collector, status


INGESTER = Ingester("bundle_manifest", "collection", sniff, rows, most=95)
