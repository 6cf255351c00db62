"""Batches as they come out of a pickle, in which they travel between processes."""

from __future__ import annotations

import pickle

import numpy as np
import pytest

from forensics.ingest._shared.packed import Array, Packed, PackedBatch, constant, missing, pack

COLUMNS = {
    "numbers": pack([1, None, -(1 << 62), 4], "BIGINT"),
    "halves": pack([0.5, float("inf"), None, 2.0], "DOUBLE"),
    "flags": pack([True, False, False, None], "BOOLEAN"),
    "texts": pack(["a", None, "\u00e4", "a"], "VARCHAR"),
    "lists": pack([[1, 2], [], None, [3]], "INTEGER[]"),
    "same": constant(7, "BIGINT", 4),
    "word": constant("x", "VARCHAR", 4),
    "nothing": missing("BIGINT", 4),
    "no_word": missing("VARCHAR", 4),
    "every_second": Packed(4, np.arange(8, dtype=np.int64)[::2]),
}


def sent(batch: PackedBatch) -> PackedBatch:
    received = pickle.loads(pickle.dumps(batch, 5))  # noqa: S301 - of this test
    assert isinstance(received, PackedBatch)
    return received


def test_a_batch_has_the_columns_that_were_sent() -> None:
    found = sent(PackedBatch("operations", COLUMNS))
    assert found.table == "operations"
    assert {name: list(column) for name, column in found.columns.items()} == {
        name: list(each) for name, each in COLUMNS.items()
    }
    pairs = [(column, found.columns[name]) for name, column in COLUMNS.items()]
    assert all(
        isinstance(two, Packed) and one.data.dtype == two.data.dtype and one.is_null == two.is_null for one, two in pairs
    )


@pytest.mark.parametrize("data", [np.zeros(3, np.uint16), np.array(["a", None, {}], dtype=object)])
def test_an_array_of_another_type_is_sent_as_it_is(data: Array) -> None:
    found = sent(PackedBatch("operations", {"other": Packed(3, data), "beside": COLUMNS["flags"]}))
    assert list(found.columns["other"]) == data.tolist()
    assert list(found.columns["beside"]) == list(COLUMNS["flags"])


@pytest.mark.parametrize("values", [(), [1, "two", None], ("one",), (1, 2, 3, 4, 5)])
def test_a_column_that_no_table_has_is_sent_as_it_came(values: object) -> None:
    assert isinstance(values, (list, tuple))
    assert sent(PackedBatch("operations", {"unknown": values})).columns["unknown"] == values


def test_a_batch_without_rows_or_columns_is_sent() -> None:
    assert len(sent(PackedBatch("operations", {"none": pack([], "BIGINT")})).columns["none"]) == 0
    assert not sent(PackedBatch("operations", {})).columns
