"""Writes summaries: of loose artefacts as one file, or a bundle with them in place of what they stand for."""

from __future__ import annotations

import tempfile
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from pathlib import Path

import zstandard

import forensics
from forensics.bundle import summaries
from forensics.bundle.artefact import Artefact
from forensics.bundle.layout import CHECKSUMS, member_order, node_path
from forensics.bundle.reader import open_bundle
from forensics.bundle.writer import Content, write_bundle
from forensics.case.database import schema_columns
from forensics.case.reading import Reading, read_packed
from forensics.case.shards.writing import raw_content
from forensics.case.summaries.shortening import LEAST_STEPS, Short, coverage_of, shortened
from forensics.collect.merging import open_host_bundle
from forensics.ingest._shared.packed import Types
from forensics.ingest.rank_summary.columns import encoded
from forensics.ingest.rank_summary.layout import TABLES
from forensics.recorder import layout

FILE = f"ranks{summaries.SUFFIX}"
"""Name of the summary in the folder of a node."""
_NO_NODE = "unknown"
_MOST_PROBLEMS = 100


def summary_section(artefact: Artefact, types: Mapping[str, Types], timed: Collection[int] = ()) -> bytes | None:
    """The section that stands for an artefact; None where it cannot, and the artefact has to go along itself.

    `timed` are the ranks whose steps are recorded.
    """
    reading = read_packed(artefact, types)
    rank = reading.identity.rank if reading.identity.rank is not None else artefact.rank
    short = shortened(reading, types, rank in timed)
    if short is None:
        return None
    reported = coverage_of(short)
    columns = encoded([*short.tables, *([reported] if reported else [])], TABLES)
    stored = zstandard.ZstdCompressor(level=6).compress(columns)
    # What compresses beyond what a reader allows is stored as it is.
    is_packed = len(columns) <= summaries.FREE_EXPANDED + summaries.MOST_RATIO * len(stored)
    body, flags = (stored, summaries.ZSTD) if is_packed else (columns, 0)
    if len(columns) > summaries.MOST_EXPANDED:
        return None
    return summaries.section(_description(artefact, reading, short), body, len(columns), flags)


def _description(artefact: Artefact, reading: Reading, short: Short) -> dict[str, object]:
    is_inside = reading.identity.rank is not None
    stated = artefact.rank if artefact.has_stated_rank else None
    known = {
        "tool": f"forensics {forensics.__version__}",
        "path": artefact.path,
        "kind": reading.kind,
        "bytes": artefact.stored_bytes,
        "sha256": artefact.sha256,
        "rank": reading.identity.rank if is_inside else stated,
        "rank_from": None if is_inside or stated is None else artefact.rank_method,
        "host": reading.identity.host or artefact.host,
        "pid": artefact.pid,
        "sample": artefact.sample,
        "captured_ns": artefact.captured_ns,
        "left_out": dict(short.left_out) or None,
        "problems": [{"message": problem.message, "locator": problem.locator} for problem in reading.problems[:_MOST_PROBLEMS]]
        or None,
    }
    return {key: value for key, value in known.items() if value is not None}


def timed_ranks(artefacts: Iterable[Artefact], types: Mapping[str, Types]) -> frozenset[int]:
    """Ranks of which enough steps are recorded to tell their speed by them."""
    found: Counter[int] = Counter()
    for artefact in artefacts:
        if artefact.summary is None and artefact.shard is None and artefact.begin(len(layout.MAGIC)) == layout.MAGIC:
            for batch in read_packed(artefact, types).batches:
                if batch.table == "steps":
                    ranks = batch.columns.get("rank", [artefact.rank] * len(batch.columns["step"]))
                    found.update(rank for rank in ranks if rank is not None)
    return frozenset(rank for rank, steps in found.items() if steps >= LEAST_STEPS)


def write_summary(paths: Sequence[Path], output: Path, is_short: bool = False) -> tuple[int, list[str]]:
    """Write one summary of all that can be summarised in the given files or bundles; sections, and what was left out.

    A short one has the end only of the calls of ranks whose steps are recorded.

    Raises ForensicsError for input that cannot be opened, OSError for an output that cannot be written.
    """
    bundle = open_bundle(paths)
    types = schema_columns()
    timed = timed_ranks(bundle.artefacts, types) if is_short else frozenset()
    written, left = 0, []
    partial = output.with_name(f"{output.name}.partial")
    with partial.open("wb") as stream:
        for artefact in bundle.artefacts:
            found = None if artefact.path in bundle.damaged or artefact.summary else summary_section(artefact, types, timed)
            if found is None:
                left.append(artefact.path)
            else:
                written += stream.write(found) > 0
    partial.replace(output)
    return written, left


def write_summarised(source: Path, output: Path, *, replace: bool = False, owner: tuple[int, int] | None = None) -> int:
    """Write the bundle `source` (tar or folder) with a summary for each node in place of what it stands for; its bytes.

    Raises ForensicsError for what is no bundle, FileExistsError and OSError as `write_bundle` does.
    """
    bundle = open_bundle([source])
    members = open_host_bundle(source, source.name).members
    types = schema_columns()
    by_node: dict[str, list[bytes]] = {}
    gone: set[str] = set()
    for artefact in bundle.artefacts:
        if _may_be_replaced(artefact) and artefact.path in members and artefact.path not in bundle.damaged:
            found = summary_section(artefact, types)
            if found is not None:
                by_node.setdefault(artefact.host or _NO_NODE, []).append(found)
                gone.add(artefact.path)
    with tempfile.TemporaryDirectory(prefix=".forensics-", dir=output.parent) as name:
        contents = [
            raw_content(members[path], Path(name), index)
            for index, path in enumerate(sorted(members, key=member_order))
            if path != CHECKSUMS and path not in gone
        ]
        contents += _files(by_node)
        contents.sort(key=lambda content: member_order(content.path))
        return write_bundle(output, contents, replace=replace, owner=owner)


def _may_be_replaced(artefact: Artefact) -> bool:
    return artefact.path.startswith(("ranks/", "nodes/")) and artefact.shard is None and artefact.summary is None


def _files(by_node: Mapping[str, Sequence[bytes]]) -> Iterator[Content]:
    for node, sections in sorted(by_node.items()):
        yield Content(node_path(node, FILE), b"".join(sections))
