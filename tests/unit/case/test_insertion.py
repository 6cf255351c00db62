"""Lists that are inserted: each once where they come again, row by row where they do not, and not too many at a time."""

from __future__ import annotations

import numpy as np
import pytest

from forensics.case import columns
from forensics.case.columns import CaseWriter
from forensics.case.database import new_case
from forensics.ingest._shared.packed import Packed

VALUES = [[number, number + 1] for number in range(40)]


def written(lists: list[str | None]) -> list[tuple[object, ...]]:
    """The lists of `nic_epochs` after they were inserted as text."""
    words = tuple(dict.fromkeys(lists))
    codes = np.array([words.index(each) for each in lists], dtype=np.int32)
    rows = len(lists)
    connection = new_case()
    writer = CaseWriter(connection)
    for part in np.array_split(np.arange(rows), 4):
        chosen = {"capture_id": [0] * len(part), "first_epoch": part.tolist()}
        writer.add("nic_epochs", {**chosen, "values": Packed(len(part), codes[part], None, words)}, {})
    writer.flush()
    return connection.execute("SELECT first_epoch, values FROM nic_epochs ORDER BY ALL").fetchall()


@pytest.mark.parametrize("times", [1, 5])
@pytest.mark.parametrize("letters", [columns.FLUSH_LETTERS, 30])
def test_lists_are_the_same_however_often_they_come(times: int, letters: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(columns, "FLUSH_LETTERS", letters)
    lists = VALUES * times
    assert written([str(each) for each in lists]) == list(enumerate(lists))


def test_what_is_no_list_is_null() -> None:
    assert written(["[1, 2]", None, "[1,", "[3]", "[4]", "[5]"]) == [
        *enumerate([[1, 2], None, None, [3], [4], [5]]),
    ]
