"""The manifest of a bundle that was merged of others, and what each host delivered."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import forensics
from forensics.bundle.layout import BUNDLE, HOST_BUNDLE, SCHEMA, Status, member_name
from forensics.collect.cluster.exchange import Delivery
from forensics.collect.merging import Merger
from forensics.collect.record import Run
from forensics.rank_ranges import format_ranks


def record_delivery(merger: Merger, delivery: Delivery, nodes: Sequence[str]) -> None:
    """Write down how the collection of a host went, under its own name where its bundle stated it."""
    run = Run(HOST_BUNDLE, None, delivery.status, delivery.reason, begin_ns=delivery.begin_ns, end_ns=delivery.end_ns)
    row = run.document(Counter())
    for node in nodes or (member_name(delivery.name),):
        merger.runs.setdefault(node, []).append(row)


def write_manifest(
    merger: Merger, begin_ns: int, end_ns: int, offsets: Mapping[str, tuple[str, int, int]], stopped: bool
) -> None:
    """Write bundle.json of what was merged so far; `offsets` of nodes are (reference, offset ns, bound ns)."""
    documents = merger.documents()
    entries = merger.claims.entries()
    status = {label: _table(document.get("status")) for label, document in documents.items()}
    job = merger.claims.job
    merger.staging.write_json(
        BUNDLE,
        {
            "schema": SCHEMA,
            "tool": f"forensics {forensics.__version__}",
            "begin_ns": _extreme(min, documents, "begin_ns", begin_ns),
            "end_ns": _extreme(max, documents, "end_ns", end_ns),
            "interrupted": stopped or any(document.get("interrupted") is True for document in documents.values()),
            "job_id": _common(documents, "job_id"),
            "world_size": job.world_size if job else None,
            "nodes": sorted(_node_names(documents.values()) | merger.runs.keys()),
            "ranks": {rank: facts for rank, (_, facts) in entries.items()},
            "status": {rank: status[label].get(str(rank), {}) for rank, (label, _) in entries.items()},
            "node_status": _node_status(merger, documents),
            "clock_offsets": {
                node: {"reference": reference, "offset_ns": offset, "bound_ns": bound}
                for node, (reference, offset, bound) in sorted(offsets.items())
            },
            "warnings": _warnings(merger, documents),
        },
    )


def _warnings(merger: Merger, documents: Mapping[str, Mapping[str, Any]]) -> list[str]:
    """What hosts said, what was found in merging, and ranks that no host has."""
    found = [*merger.claims.conflicts(), *merger.warnings]
    for label, document in documents.items():
        listed = document.get("warnings")
        found += [f"{label}: {said}" for said in (listed if isinstance(listed, list) else []) if isinstance(said, str)]
    job, entries = merger.claims.job, merger.claims.entries()
    unseen = [rank for rank, (_, facts) in entries.items() if facts.get("state") == "unknown"]
    if job and job.world_size and len(entries) < job.world_size <= 1 << 20:
        unseen += sorted(set(range(job.world_size)) - entries.keys())
    if unseen:
        size = job.world_size if job else None
        found.append(f"rank {format_ranks(unseen, 20)} of {size or 'an unknown number'}: on no host that answered")
    return list(dict.fromkeys(found))


def _node_status(merger: Merger, documents: Mapping[str, Mapping[str, Any]]) -> dict[str, dict[str, str]]:
    found: dict[str, dict[str, str]] = {}
    for document in documents.values():
        for node, statuses in _table(document.get("node_status")).items():
            found.setdefault(member_name(node), {}).update(statuses)
    for node, rows in merger.runs.items():
        ends = {row["status"] for row in rows}
        found.setdefault(node, {})[HOST_BUNDLE] = ends.pop() if len(ends) == 1 else Status.PARTIAL
    return dict(sorted(found.items()))


def _table(value: Any) -> dict[str, dict[str, str]]:
    """Statuses by rank or node; what is none is left out."""
    return {
        key: {name: status for name, status in row.items() if isinstance(status, str)}
        for key, row in (value.items() if isinstance(value, dict) else ())
        if isinstance(row, dict)
    }


def _node_names(documents: Iterable[Mapping[str, Any]]) -> set[str]:
    listed = [document.get("nodes") for document in documents]
    return {member_name(name) for names in listed if isinstance(names, list) for name in names if isinstance(name, str)}


def _extreme(choose: Callable[[Iterable[int]], int], documents: Mapping[str, Mapping[str, Any]], key: str, default: int) -> int:
    values = [document.get(key) for document in documents.values()]
    return choose([value for value in values if isinstance(value, int) and not isinstance(value, bool)] or [default])


def _common(documents: Mapping[str, Mapping[str, Any]], key: str) -> str | None:
    """What all say that say anything."""
    values = {value for document in documents.values() if isinstance(value := document.get(key), str)}
    return values.pop() if len(values) == 1 else None
