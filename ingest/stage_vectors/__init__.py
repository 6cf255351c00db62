"""Stage vectors: what `forensics.recorder` writes, one file a rank, or several in one (docs/formats/stage-vectors.md)."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import numpy.typing as npt

from forensics.bundle.artefact import Artefact
from forensics.ingest._shared.config import config_batches
from forensics.ingest._shared.content import read_document
from forensics.ingest._shared.packed import Packed, coded_column, number_column
from forensics.ingest._shared.stage_names import problem
from forensics.ingest.interface import Batch, Identity, Ingester, Item, Problem
from forensics.ingest.stage_vectors.sections import Section, sections
from forensics.recorder import layout


def sniff(head: bytes, path: str) -> int:
    """Its magic."""
    return 100 if head.startswith(layout.MAGIC) else 0


def rows(artefact: Artefact) -> Iterator[Item]:
    """Steps and stage spans of every section, in the order of the steps."""
    content = read_document(artefact)
    if isinstance(content, Problem):
        yield content
        return
    if stated := problem():
        yield Problem(stated)
    found = 0
    for item in sections(content):
        if isinstance(item, Problem):
            yield item
            continue
        found += 1
        if found == 1:
            yield Identity(item.rank, item.host)
        yield from _section(item, alone=found == 1)


def _section(section: Section, alone: bool) -> Iterator[Item]:
    yield from _origin(section, alone)
    yield from (Problem(message) for message in section.losses())
    steps = section.steps
    if not len(steps):
        yield Problem(f"rank {section.rank}: no step was recorded")
        return
    shift = section.realtime_ns - section.monotonic_ns
    begin = steps["begin"].astype(np.int64) + shift
    count = len(steps)
    yield Batch(
        "steps",
        {
            **_identity(section, count),
            "step": _numbers(steps["step"]),
            "begin_ns": _numbers(begin),
            "end_ns": _numbers(begin + steps["wall"]),
            "wall_ns": _numbers(steps["wall"]),
            "accumulation": _numbers(steps["accumulation"].astype(np.int64)),
        },
    )
    yield from _spans(section, begin)


def _spans(section: Section, begin: npt.NDArray[np.int64]) -> Iterator[Item]:
    flat = section.flat()
    if not len(flat.span):
        return
    span = flat.span
    device = span["device"].astype(np.int64)
    stages = [name.stage for name in section.names]
    names = np.where(flat.side, flat.home, span["name"])
    shown = [None if name.is_plain else name.text for name in section.names]
    yield Batch(
        "stage_spans",
        {
            **_identity(section, len(span)),
            "step": _numbers(section.steps["step"][flat.row]),
            "stage": _words(names, stages),
            "substage": _words(span["name"], shown),
            "order_index": _numbers(flat.order),
            "schema_hash": _words(flat.schema, flat.hashes),
            "substep": _numbers(span["substep"].astype(np.int64)),
            "group_role": _words(np.zeros(len(span), np.int32), [section.role]),
            "side_channel": Packed(len(span), flat.side),
            "begin_ns": _numbers(begin[flat.row] + span["begin"]),
            "duration_ns": _numbers(span["duration"]),
            "device_ns": number_column(device, (span["flags"] & layout.SPAN_DEVICE_READY) == 0),
            "device_ready": Packed(
                len(span), (span["flags"] & layout.SPAN_DEVICE_READY) > 0, (span["flags"] & layout.SPAN_DEVICE_ASKED) == 0
            ),
        },
    )


def _identity(section: Section, count: int) -> dict[str, Packed]:
    return {} if section.rank is None else {"rank": _numbers(np.full(count, section.rank))}


def _numbers(values: npt.NDArray[np.int64]) -> Packed:
    return number_column(np.ascontiguousarray(values, dtype=np.int64), np.zeros(len(values), dtype=np.bool_))


def _words(codes: npt.NDArray[np.integer], words: list[str | None]) -> Packed:
    """Codes beyond the dictionary are null."""
    return coded_column(np.minimum(codes.astype(np.int32), len(words)), [*words, None])


def _origin(section: Section, alone: bool) -> Iterator[Item]:
    if section.rank is not None:
        place: dict[str, list[Any]] = {
            "rank": [section.rank],
            "host": [section.host],
            "local_rank": [section.local_rank],
            "pid": [section.pid],
        }
        yield Batch("ranks", place)
    if alone:
        yield from config_batches({"world_size": section.world_size})
    if section.realtime_ns and section.host:
        reading: dict[str, list[Any]] = {
            "realtime_ns": [section.realtime_ns],
            "monotonic_ns": [section.monotonic_ns],
            "host": [section.host],
        }
        yield Batch("clocks", reading)


INGESTER = Ingester("stage_vectors", "stage_vectors", sniff, rows)
