"""Only the end of a dump: what is open, the last call of each group, whole group calls, and a count of what was left out."""

from __future__ import annotations

import pickle
from typing import Any

import pytest

from tests.unit.ingest.reading import Result, read

BEGIN_NS, EVERY_NS = 1_758_610_500_000_000_000, 1_000_000


def entry(number: int, **values: Any) -> dict[str, Any]:
    base = {
        "frames": [{"name": "step", "filename": "train.py", "line": number % 5}],
        "record_id": number,
        "pg_id": 0,
        "process_group": ("0", "default_pg"),
        "collective_seq_id": number,
        "p2p_seq_id": 0,
        "op_id": number,
        "profiling_name": "nccl:all_reduce",
        "time_created_ns": BEGIN_NS + number * EVERY_NS,
        "input_sizes": [[7 + number % 3]],
        "input_dtypes": ["Float"],
        "output_sizes": [[7]],
        "state": "completed",
        "retired": True,
        "is_p2p": False,
    }
    return base | values


def end_of(newest_ns: int | None, changed: dict[int, dict[str, Any]], count: int = 100) -> Result:
    """The end of a dump of so many calls, one a millisecond, some of them changed."""
    content = pickle.dumps(
        {"version": "2.10", "pg_config": {}, "entries": [entry(each, **changed.get(each, {})) for each in range(count)]}
    )
    return read(content, "nccl_trace_rank_3", newest_ns=newest_ns)


def test_calls_of_the_last_milliseconds_are_read_as_they_are_in_the_whole() -> None:
    whole, end = end_of(None, {}), end_of(20 * EVERY_NS, {})
    assert end.rows("operations") == whole.rows("operations")[79:]
    assert end.rows("group_views") == whole.rows("group_views")
    assert [(row["kind"], row["status"], row["reason"]) for row in end.rows("coverage")] == [
        ("recorder_history", "partial", "79 older calls not read; --full reads them")
    ]
    assert whole.rows("coverage") == []


@pytest.mark.parametrize(
    ("changed", "first"),
    [
        ({70: {"state": "scheduled", "retired": False}}, 70),
        ({60: {"process_group": ("1", "checkpoint"), "pg_id": 1}}, 60),
        ({each: {"process_group": ("1", "pp"), "pg_id": 1, "collective_seq_id": 900, "profiling_name": name}
          for each, name in ((75, "nccl:send 0->1"), (76, "nccl:recv 0<-1"), (85, "nccl:coalesced"))}, 79),
        ({each: {"collective_seq_id": 900, "profiling_name": name}
          for each, name in ((75, "nccl:send 0->1"), (79, "nccl:recv 0<-1"), (85, "nccl:coalesced"))}, 75),
    ],
)  # fmt: skip
def test_what_is_open_and_the_last_call_of_a_group_and_whole_group_calls_are_read(
    changed: dict[int, dict[str, Any]], first: int
) -> None:
    assert end_of(20 * EVERY_NS, changed).rows("operations") == end_of(None, changed).rows("operations")[first:]


def test_states_are_told_by_all_entries() -> None:
    """Gloo has no events, NCCL has: that its last calls are only retired does not make them done."""
    changed = {each: {"state": "scheduled", "retired": True} for each in range(10, 100)}
    assert len(end_of(20 * EVERY_NS, changed).rows("operations")) == 100, "open calls are kept"


@pytest.mark.parametrize(
    ("newest_ns", "changed"),
    [
        (60 * EVERY_NS, {}),
        (20 * EVERY_NS, {0: {"state": "started"}}),
        (20 * EVERY_NS, {99: {"time_created_ns": None}}),
        (1 << 62, {}),
        (-1, {}),
        (20 * EVERY_NS, {5: {"time_created_ns": (1 << 63) - 1}}),
    ],
)
def test_a_dump_is_read_whole_where_little_would_be_left_out(newest_ns: int, changed: dict[int, dict[str, Any]]) -> None:
    result = end_of(newest_ns, changed)
    assert len(result.rows("operations")) == 100
    assert not result.problems


def test_a_cut_dump_is_read_as_far_as_it_goes() -> None:
    content = pickle.dumps({"version": "2.10", "entries": [entry(each) for each in range(1500)]})
    result = read(content[:-200], "nccl_trace_rank_3", newest_ns=0)
    assert result.problems
    assert len(result.rows("operations")) >= 1000
    assert result.rows("coverage") == []


def test_no_entries_have_no_end() -> None:
    assert end_of(5, {}, 0).rows("operations") == []
