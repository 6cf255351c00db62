"""Summaries of ranks: a section stands for one artefact and gives the newest of its rows (docs/formats/rank-summary.md)."""

from __future__ import annotations

import zlib
from collections.abc import Iterator, Mapping
from typing import Any

import orjson
import zstandard

from forensics.bundle import summaries
from forensics.bundle.artefact import Artefact
from forensics.ingest._shared.content import read_document
from forensics.ingest.interface import Batch, Identity, Ingester, Item, Problem
from forensics.ingest.rank_summary.call_paths import call_paths
from forensics.ingest.rank_summary.columns import Refused, Rows, decoded
from forensics.ingest.rank_summary.layout import KINDS, TABLES

_MOST_PROBLEMS = 1000
_PATHS = ("call_paths", "frames")


def sniff(head: bytes, path: str) -> int:
    """Its magic."""
    return 100 if head.startswith(summaries.MAGIC) else 0


def rows(artefact: Artefact) -> Iterator[Item]:
    """The rows of one section, of the kind that the artefact had; the reader of bundles gives each section by itself."""
    content = read_document(artefact)
    if isinstance(content, Problem):
        yield content
        return
    try:
        description, columns = _opened(content)
        yield from _facts(description, columns)
    except Refused as error:
        yield Problem(str(error), "byte=0", fatal=True)


def _opened(content: bytes) -> tuple[Mapping[str, Any], bytes]:
    """Description and expanded columns of the section that a file begins with."""
    if len(content) < summaries.HEADER.size:
        raise Refused("cut inside its header")
    _, version, flags, text, stored, expanded, crc, _ = summaries.HEADER.unpack_from(content)
    if version != summaries.VERSION:
        raise Refused(f"version {version} of a section is not known")
    body = content[summaries.HEADER.size :]
    if len(body) < text + stored or text > summaries.MOST_DESCRIPTION:
        raise Refused(f"cut: {text + stored} bytes are announced, {len(body)} are there")
    if zlib.crc32(body[: text + stored]) != crc:
        raise Refused("its bytes are not those that were written: the checksum differs")
    most = max(summaries.FREE_EXPANDED, stored) + summaries.MOST_RATIO * stored
    if expanded > min(most, summaries.MOST_EXPANDED) or (not flags & summaries.ZSTD and expanded != stored):
        raise Refused(f"{stored} bytes that expand to {expanded}")
    try:
        stated = orjson.loads(body[:text])
        columns = body[text : text + stored]
        if flags & summaries.ZSTD:
            columns = zstandard.ZstdDecompressor(max_window_size=summaries.MOST_EXPANDED).decompress(columns, expanded)
    except (orjson.JSONDecodeError, zstandard.ZstdError) as error:
        raise Refused(f"damaged: {error}") from error
    if len(columns) > expanded or not isinstance(stated, dict):
        raise Refused("damaged: it is not of the size that it says")
    return stated, columns


def _facts(description: Mapping[str, Any], columns: bytes) -> Iterator[Item]:
    kind = description.get("kind")
    if not isinstance(kind, str) or kind not in KINDS:
        raise Refused(f"it stands for {str(kind)[:40]!a}, which is never summarised")
    known = summaries.described(orjson.dumps(description))
    yield Identity(known.rank if known.rank_from == "content" else None, known.host, kind)
    yield from _problems(description.get("problems"))
    types = {table: TABLES[table] for table in KINDS[kind]}
    parts: dict[str, Rows] = {}
    found: list[Rows] = []
    for item in decoded(columns, types):
        if isinstance(item, str):
            yield Problem(item)
        elif item.table in _PATHS:
            parts[item.table] = item
        else:
            found.append(item)
    numbers, paths = call_paths(parts)
    for item in found:
        yield Batch(item.table, _renumbered(item, numbers))
    yield from paths


def _problems(listed: Any) -> Iterator[Problem]:
    """What could not be read of the artefact where it was."""
    for row in listed[:_MOST_PROBLEMS] if isinstance(listed, list) else ():
        message, locator = (row.get("message"), row.get("locator")) if isinstance(row, dict) else (None, None)
        if isinstance(message, str):
            yield Problem(message[:1000], locator[:200] if isinstance(locator, str) else None)


def _renumbered(item: Rows, numbers: Mapping[int, int | None]) -> dict[str, Any]:
    """The columns with the call paths of a case: those of strangers may be numbered in any way."""
    columns: dict[str, Any] = dict(item.columns)
    if "call_path" in columns:
        columns["call_path"] = [numbers.get(path) for path in columns["call_path"]]
    return columns


INGESTER = Ingester("rank_summary", "rank_summary", sniff, rows)
