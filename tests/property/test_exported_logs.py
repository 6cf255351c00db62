"""Whatever stands in records, an export gives lines or is left alone, and forwards or backwards it gives the same lines."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from forensics.case.exported_logs import lines_of_export

_NAMES = st.sampled_from(
    ["log", "message", "time", "ts", "@timestamp", "stream", "values", "metadata", "pod", "host", "rank", "exc_info",
     "_PID", "field"]
)  # fmt: skip
_TIMES = st.sampled_from(
    ["2026-11-26T03:12:00Z", "9" * 10, "9" * 20, "0" * 13, "0001-01-01T00:00:00Z", "9999-12-31 23:59:59,999999999+14:00", "1e9",
     "2026-13-01T00:00:00Z", "Nov 31, 2026 @ 25:00:00.0", '{"log":"a"}']
)  # fmt: skip
_LEAVES = st.none() | st.booleans() | st.integers(-(2**70), 2**70) | st.text(max_size=12) | _TIMES
_VALUES = st.recursive(
    _LEAVES, lambda inner: st.lists(inner, max_size=4) | st.dictionaries(_NAMES, inner, max_size=5), max_leaves=20
)
_RECORDS = st.lists(st.dictionaries(_NAMES, _VALUES, max_size=5), min_size=1, max_size=5)


def forms(records: list[dict[str, Any]]) -> list[str]:
    return ["\n".join(map(json.dumps, records)), json.dumps(records), json.dumps({"data": {"result": records}})]


@pytest.mark.slow
@given(_RECORDS)
def test_any_records_are_lines_or_left_alone(records: list[dict[str, Any]]) -> None:
    for form in forms(records):
        found = lines_of_export(form.encode())
        assert found is None or found.endswith(b"\n")


@given(st.lists(st.text('ab[]{}:" ', min_size=1, max_size=9), min_size=3, max_size=9))
def test_newest_first_gives_the_same_lines(lines: list[str]) -> None:
    records = [{"time": f"2026-11-26T03:12:{second:02d}Z", "message": line} for second, line in enumerate(lines)]
    forwards, backwards = (lines_of_export(json.dumps(each).encode()) for each in (records, records[::-1]))
    assert forwards is not None and forwards == backwards
