"""No bytes make an ingester raise, and no bytes keep a case from being built."""

from __future__ import annotations

import io
import json
import pickle
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from forensics.bundle.artefact import Artefact
from forensics.case.build import read_artefact
from forensics.case.columns import CaseWriter
from forensics.case.database import new_case
from forensics.ingest import discover
from forensics.ingest.interface import Batch, Identity, Problem
from tests.property.examples import EXAMPLES

SAMPLES = sorted(
    path for path in (Path(__file__).parents[2] / "fixtures" / "samples").rglob("*") if path.parent.name != "samples"
)
CASE = new_case()
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=8), inner, max_size=4),
    max_leaves=12,
)


def artefact(content: bytes, path: str) -> Artefact:
    return Artefact(path, len(content), lambda: io.BytesIO(content), rank=1, rank_method="path")


def check(content: bytes, path: str) -> None:
    """Every ingester, asked or not, yields only well-formed items; what the chosen one yields fits the tables."""
    for ingester in discover():
        assert 0 <= ingester.sniff(content[:4096], path) <= 100
        for item in ingester.rows(artefact(content, path)):
            assert isinstance(item, (Batch, Problem, Identity))
            if isinstance(item, Batch):
                assert len({len(column) for column in item.columns.values()}) == 1
    reading = read_artefact(artefact(content, path))
    assert not any("ingester failed" in problem.message for problem in reading.problems)
    writer = CaseWriter(CASE)
    for batch in reading.batches:
        writer.add(batch.table, batch.columns, {"source_id": 1, "rank": 1, "host": None})
    writer.flush()


@pytest.mark.parametrize("sample", SAMPLES, ids=lambda path: f"{path.parent.name}/{path.name}")
@settings(max_examples=2 * EXAMPLES, deadline=None, derandomize=True)
@given(data=st.data())
def test_cut_and_overwritten_samples(sample: Path, data: st.DataObject) -> None:
    content = bytearray(sample.read_bytes())
    for _ in range(data.draw(st.integers(0, 3))):
        at = data.draw(st.integers(0, len(content) - 1))
        content[at : at + 1] = data.draw(st.binary(max_size=4))
    check(bytes(content[: data.draw(st.integers(0, len(content)))]), sample.name)


@settings(max_examples=10 * EXAMPLES, deadline=None, derandomize=True)
@given(content=st.binary(max_size=200))
def test_any_bytes(content: bytes) -> None:
    check(content, "train.log")
    check(b"\x80\x02" + content, "rank1")


KEYS = (
    *("entries", "version", "pg_config", "pg_status", "profiling_name", "process_group", "pg_id", "frames", "input_sizes"),
    *("input_dtypes", "collective_seq_id", "time_created_ns", "duration_ms", "is_p2p", "state", "retired", "thread_name"),
    *("name", "ranks", "desc", "schema", "rank", "processes", "threads", "tid", "env", "clocks", "node", "status", "nodes"),
    *("os_thread_id", "pid", "filename", "line"),
)


def reshaped(document: Any, draw: st.DrawFn) -> Any:
    """The document with some values, keys or lists replaced by others."""
    if draw(st.integers(0, 9)) == 0:
        return draw(JSON)
    if isinstance(document, dict):
        changed = {key: reshaped(value, draw) for key, value in document.items() if draw(st.integers(0, 19))}
        return changed | ({draw(st.sampled_from(KEYS)): draw(JSON)} if draw(st.integers(0, 5)) == 0 else {})
    return [reshaped(item, draw) for item in document] if isinstance(document, (list, tuple)) else document


@st.composite
def reshaped_samples(draw: st.DrawFn) -> tuple[str, Any]:
    path = draw(st.sampled_from([path for path in SAMPLES if path.suffix == ".json" and is_document(path)]))
    return path.name, reshaped(json.loads(path.read_bytes()), draw)


def is_document(path: Path) -> bool:
    """Whether a sample is JSON: some writers leave what only resembles it."""
    try:
        json.loads(path.read_bytes())
    except ValueError:
        return False
    return True


@settings(max_examples=10 * EXAMPLES, deadline=None, derandomize=True)
@given(sample=reshaped_samples())
def test_documents_with_values_of_other_types(sample: tuple[str, Any]) -> None:
    name, document = sample
    check(json.dumps(document).encode(), name)
    check(pickle.dumps(document, 2), name)
