"""Summaries of a fleet: the ends of the dumps of `dumps.py` and recorded stages, of a job that hangs or has a slow rank.

A dump of each position in a tensor group is written, read and cut as it is; those of the other ranks differ from it in names of
groups and in members only, and are made from its columns. Stages are made as columns.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from functools import cache
from io import BytesIO
from pathlib import Path

import numpy as np
import zstandard

from forensics.bundle import summaries
from forensics.bundle.artefact import Artefact
from forensics.case.database import schema_columns
from forensics.case.reading import read_packed
from forensics.case.summaries.shortening import Short, coverage_of, shortened
from forensics.ingest._shared.packed import Packed, constant
from forensics.ingest.rank_summary.columns import Rows, encoded
from forensics.ingest.rank_summary.layout import TABLES
from tests.benchmarks.dumps import START_NS, TENSOR_PARALLEL, culprit, dump

STEPS = 100
STEP_NS = 1_000_000_000
STAGES = (("data", 0.05), ("forward", 0.3), ("backward", 0.5), ("optimizer", 0.1), ("other", 0.05))
SLOW = 0.25
"""Share of its forward pass that the slow rank takes longer."""


def write_fleet(folder: Path, ranks: int, hangs: bool) -> int:
    """Write a summary for each node of eight ranks and give the bytes; in a job that does not hang one rank is slow."""
    folder.mkdir(parents=True)
    total = 0
    for first in range(0, ranks, TENSOR_PARALLEL):
        node = b"".join(part for rank in range(first, first + TENSOR_PARALLEL) for part in rank_sections(rank, ranks, hangs))
        total += (folder / f"node{first // TENSOR_PARALLEL:05}.summary").write_bytes(node)
    return total


def rank_sections(rank: int, ranks: int, hangs: bool) -> Iterator[bytes]:
    """The sections of one rank."""
    stated = {"rank": rank, "host": f"node{rank // TENSOR_PARALLEL:05}"}
    calls = _calls(rank, ranks, hangs)
    yield _section({**stated, "kind": "flight_recorder", "path": f"ranks/{rank}/fr/0.pickle"}, calls)
    stages = _stages(rank, culprit(ranks), hangs)
    yield _section({**stated, "kind": "stage_vectors", "path": f"ranks/{rank}/stages/rank_{rank}.stages"}, stages)


def _section(description: Mapping[str, object], tables: Sequence[Rows]) -> bytes:
    columns = encoded(tables, TABLES)
    return summaries.section(description, zstandard.ZstdCompressor(level=6).compress(columns), len(columns), summaries.ZSTD)


@cache
def _template(rank: int, ranks: int) -> Short:
    content = dump(rank, ranks)
    artefact = Artefact(f"nccl_trace_rank_{rank}", len(content), lambda: BytesIO(content), rank=rank, rank_method="path")
    found = shortened(read_packed(artefact, schema_columns()), schema_columns(), is_timed=True)
    assert found is not None
    return found


def _calls(rank: int, ranks: int, hangs: bool) -> list[Rows]:
    """The end of the dump of a rank; without the hang nobody makes the last call."""
    missing = culprit(ranks)
    like = rank if rank == missing else rank % TENSOR_PARALLEL
    short = _template(missing if not hangs else like, ranks)
    own = {"tensor": str(1 + rank // TENSOR_PARALLEL), "data": str(1 + ranks // TENSOR_PARALLEL + rank % TENSOR_PARALLEL)}
    names = {
        str(1 + like // TENSOR_PARALLEL): own["tensor"],
        str(1 + ranks // TENSOR_PARALLEL + like % TENSOR_PARALLEL): own["data"],
    }
    if not hangs:
        names = {
            str(1 + missing // TENSOR_PARALLEL): own["tensor"],
            str(1 + ranks // TENSOR_PARALLEL + missing % TENSOR_PARALLEL): own["data"],
        }
    first = rank // TENSOR_PARALLEL * TENSOR_PARALLEL
    members = {
        own["tensor"]: list(range(first, first + TENSOR_PARALLEL)),
        own["data"]: list(range(rank % TENSOR_PARALLEL, ranks, TENSOR_PARALLEL)),
    }
    tables = []
    for rows in short.tables:
        columns = dict(rows.columns)
        if "pg_name" in columns:
            columns["pg_name"] = replace(
                columns["pg_name"], words=tuple(names.get(word or "", word) for word in columns["pg_name"].words or ())
            )
        if rows.table == "group_views":
            texts = [str(members[name]) if name in members else None for name in columns["pg_name"]]
            columns["members"] = Packed(rows.count, np.arange(rows.count, dtype=np.int32), None, tuple(texts))
        tables.append(replace(rows, columns=columns))
    stated = coverage_of(short)
    return [*tables, *([stated] if stated else [])]


def _stages(rank: int, slow: int, hangs: bool) -> list[Rows]:
    """Steps in which all meet in the backward pass: who is early waits there."""
    noise = np.random.default_rng(rank).normal(0, 0.003, (STEPS, len(STAGES)))
    shares = np.array([share for _, share in STAGES])
    durations = shares * (1 + noise)
    late = 0.0 if hangs else SLOW * shares[1]
    if rank == slow:
        durations[:, 1] += late
    ready = durations[:, :2].sum(axis=1)
    meeting = shares[:2].sum() + late + 0.01
    durations[:, 2] = shares[2] + np.maximum(0, meeting - ready)
    spans = (durations * STEP_NS).astype(np.int64)
    walls = spans.sum(axis=1)
    length = int((1.02 + late) * STEP_NS)
    begins = START_NS + np.arange(STEPS) * length + rank % 1000
    step = np.arange(STEPS)
    rows = STEPS * len(STAGES)
    inside = begins[:, None] + np.cumsum(spans, axis=1) - spans
    number = {"step": step, "begin_ns": begins, "end_ns": begins + walls, "wall_ns": walls}
    flat = {"step": np.repeat(step, len(STAGES)), "order_index": np.tile(np.arange(len(STAGES)), STEPS)}
    flat |= {"begin_ns": inside.ravel(), "duration_ns": spans.ravel()}
    columns = {name: Packed(rows, values) for name, values in flat.items()}
    columns["stage"] = Packed(
        rows, np.tile(np.arange(len(STAGES), dtype=np.int32), STEPS), None, tuple(name for name, _ in STAGES)
    )
    columns["schema_hash"] = constant("5a5a", "VARCHAR", rows)
    columns["side_channel"] = constant(False, "BOOLEAN", rows)
    return [
        Rows("steps", STEPS, {name: Packed(STEPS, values) for name, values in number.items()}),
        Rows("stage_spans", rows, columns),
    ]
