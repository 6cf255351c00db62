from __future__ import annotations

import io
import json
import os
import pickle
import pickletools
from pathlib import Path
from typing import Any

import pytest

from forensics.case.build import open_case
from tests.unit.ingest.reading import SAMPLES, read, sample

FOLDER = SAMPLES / "flight_recorder"


def dump(*entries: dict[str, Any], **top: Any) -> dict[str, Any]:
    return {"version": "2.10", "comm_lib_version": "", "pg_config": {}, "pg_status": {}, "entries": list(entries), **top}


def entry(**values: Any) -> dict[str, Any]:
    base = {
        "record_id": 0,
        "pg_id": 0,
        "process_group": ["0", "default_pg"],
        "collective_seq_id": 1,
        "p2p_seq_id": 0,
        "op_id": 1,
        "profiling_name": "nccl:all_reduce",
        "time_created_ns": 1758610505592849034,
        "input_sizes": [[7]],
        "input_dtypes": ["Float"],
        "output_sizes": [[7]],
        "output_dtypes": ["Float"],
        "state": "scheduled",
        "time_discovered_started_ns": None,
        "time_discovered_completed_ns": None,
        "retired": False,
        "timeout_ms": 600000,
        "is_p2p": False,
    }
    return base | values


def rows(*entries: dict[str, Any], **top: Any) -> list[dict[str, Any]]:
    return read(json.dumps(dump(*entries, **top)).encode()).rows("operations")


def test_gloo_dump_of_a_waiting_rank() -> None:
    result = sample("flight_recorder/gloo_2.10_rank0.json")
    operations = result.rows("operations")
    assert result.problems == []
    assert [(row["kind"], row["pg_name"], row["sequence"], row["state"]) for row in operations] == [
        ("all_reduce", "0", 1, "done"),
        ("all_reduce", "1", 1, "done"),
        ("all_reduce", "0", 2, "done"),
        ("all_reduce", "1", 2, "done"),
        ("all_reduce", "0", 3, "done"),
        ("all_reduce", "1", 3, "done"),
        ("all_reduce", "0", 4, "pending"),
    ]
    last = operations[-1]
    assert last["backend"] == "gloo"
    assert (last["count"], last["bytes"], last["dtype"], last["input_sizes"]) == (16, 64, "Float", "[[16]]")
    assert last["device_end_ns"] is None
    assert last["timeout_ns"] == 1_800_000_000_000
    assert result.config() == {"flight_recorder.version": "2.10"}


def test_gloo_groups_have_no_members_rather_than_wrong_ones() -> None:
    views = sample("flight_recorder/gloo_2.10_rank1.json").rows("group_views")
    assert [(v["pg_id"], v["pg_name"], v["description"], v["members"]) for v in views] == [
        (0, "0", "default_pg", None),
        (1, "1", "pair", None),
    ]
    assert [(v["last_enqueued"], v["last_started"], v["last_completed"]) for v in views] == [(3, -1, 3), (3, -1, 3)]


def test_members_under_the_nameless_group_are_not_believed() -> None:
    config = {"": {"name": "", "desc": "", "ranks": "[0, 1]"}}
    content = json.dumps(dump(entry(profiling_name="gloo:barrier"), pg_config=config)).encode()
    (view,) = read(content).rows("group_views")
    assert (view["pg_name"], view["members"]) == ("0", None)


def test_pickle_and_json_of_one_moment_agree_but_for_frames() -> None:
    pickled = sample("flight_recorder/gloo_2.10_rank1.pickle")
    plain = sample("flight_recorder/gloo_2.10_rank1.json")
    drop = {"call_path"}
    strip = [{k: v for k, v in row.items() if k not in drop} for row in pickled.rows("operations")]
    assert strip == [{k: v for k, v in row.items() if k not in drop} for row in plain.rows("operations")]
    assert pickled.rows("group_views") == plain.rows("group_views")
    stack = pickled.stack(pickled.rows("operations")[0]["call_path"])
    assert [name for name, _, _ in stack] == ["all_reduce", "wrapper", "step", "main", "<module>"]
    assert stack[2][1] == "/srv/job/train.py"


def test_nccl_dump() -> None:
    result = sample("flight_recorder/handmade_nccl_2.9_rank0.pickle")
    operations = result.rows("operations")
    assert [(row["kind"], row["state"], row["peer"], row["sequence"], row["group_call"]) for row in operations] == [
        ("all_reduce", "done", None, 1, None),
        ("send", "pending", 3, 11981, 11981),
        ("recv", "pending", 3, 11981, 11981),
        ("coalesced", "pending", None, 11981, 11981),
        ("_all_gather_base", "started", None, 5, None),
    ]
    assert operations[0]["duration_ns"] == 1_250_000
    assert operations[0]["bytes"] == 4096 * 5120 * 2
    views = {view["pg_name"]: view for view in result.rows("group_views")}
    assert views["43"]["members"] == (0, 1, 2, 3)
    assert (views["43"]["pg_id"], views["43"]["last_completed"]) == (6, 12006)
    assert result.config()["nccl_version"] == "2.27.3"


@pytest.mark.parametrize("state", ["scheduled", "started", "completed"])
def test_members_of_a_batch_are_where_the_entry_that_closes_it_is(state: str) -> None:
    batch = {"is_p2p": True, "p2p_seq_id": 7}
    found = rows(
        entry(state="completed"),
        entry(profiling_name="nccl:send 0->1", **batch),
        entry(profiling_name="nccl:recv 0<-1", **batch),
        entry(profiling_name="nccl:coalesced", state=state, **batch),
        entry(profiling_name="nccl:send 0->1", is_p2p=True, p2p_seq_id=8),
    )
    stated = {"scheduled": "pending", "started": "started", "completed": "done"}[state]
    assert [row["state"] for row in found] == ["done", stated, stated, stated, "pending"]


def message(number: int, operation: int, name: str = "send 0->1") -> dict[str, Any]:
    return entry(profiling_name=f"nccl:{name}", is_p2p=True, collective_seq_id=3, p2p_seq_id=number, op_id=operation)


def end_of(number: int, operation: int, collective: int = 3, state: str = "completed", **values: Any) -> dict[str, Any]:
    """As torch 2.11 ends a batch: no point-to-point operation by its own word, its collective number is that of the group."""
    numbers = {"collective_seq_id": collective, "p2p_seq_id": number, "op_id": operation}
    return entry(profiling_name="nccl:coalesced", state=state, is_p2p=False, **numbers, **values)


def test_the_end_of_a_batch_of_messages_need_not_call_itself_one() -> None:
    found = rows(message(7, 10), message(7, 11, "recv 0<-1"), end_of(7, 11), message(8, 12), end_of(8, 12, state="scheduled"))
    assert [(row["sequence"], row["is_p2p"], row["group_call"], row["state"]) for row in found] == [
        *[(7, True, 7, "done")] * 3,
        *[(8, True, 8, "pending")] * 2,
    ]


def test_a_batch_of_collectives_after_a_message_is_none_of_messages() -> None:
    """Its message number is that of the last message of the group."""
    found = rows(message(7, 10), end_of(7, 12, collective=4), message(8, 13), end_of(8, 13))
    assert [(row["sequence"], row["is_p2p"], row["state"]) for row in found] == [
        (7, True, "pending"),
        (4, False, "done"),
        (8, True, "done"),
        (8, True, "done"),
    ]


@pytest.mark.parametrize(
    ("collective", "others", "is_p2p"),
    [
        (0, (), True),
        (3, (message(8, 12), end_of(8, 12)), True),
        (3, (), False),
        (3, (message(8, 12), end_of(8, 12), end_of(8, 14, collective=4)), False),
        (3, (message(8, 12), end_of(8, 12), end_of(8, 14, collective=4, pg_id=1, process_group=["1", "dp"])), True),
    ],
    ids=["no collective was made", "as the others", "nothing else", "others are of both kinds", "another group"],
)
def test_the_end_of_a_batch_that_left_the_ring(collective: int, others: tuple[dict[str, Any], ...], is_p2p: bool) -> None:
    assert rows(end_of(7, 11, collective=collective), *others)[0]["is_p2p"] is is_p2p


def test_group_numbers_join_names_by_creation_when_no_entry_tells() -> None:
    views = {view["pg_name"]: view for view in sample("flight_recorder/handmade_nccl_2.10_rank0.json").rows("group_views")}
    assert (views["44"]["pg_id"], views["44"]["last_enqueued"]) == (7, 27)


def test_creation_order_is_not_used_when_an_entry_contradicts_it() -> None:
    config = {name: {"name": name, "desc": "", "ranks": "[0, 1]"} for name in ("1", "2")}
    status = {number: {"last_enqueued_collective": number} for number in ("5", "6")}
    content = json.dumps(dump(entry(pg_id=6, process_group=["1", ""]), pg_config=config, pg_status=status)).encode()
    views = read(content).rows("group_views")
    assert {(view["pg_name"], view["pg_id"]) for view in views} == {("1", 6), ("2", None), (None, 5)}


def test_a_dump_without_entries_still_tells_its_groups() -> None:
    result = sample("flight_recorder/handmade_empty_rank2.json")
    assert result.problems == []
    assert result.rows("operations") == []
    assert {view["pg_name"]: view["members"] for view in result.rows("group_views") if view["pg_name"]} == {
        "0": (0, 1, 2, 3),
        "43": (0, 1, 2, 3),
        "44": (0, 3),
    }


def test_bare_list_of_the_first_schema() -> None:
    result = sample("flight_recorder/handmade_nccl_list_rank0.pickle")
    assert [(row["sequence"], row["record_id"], row["state"]) for row in result.rows("operations")] == [
        (1, 0, "done"),
        (2, 1, "done"),
        (3, 2, "pending"),
    ]


def test_retired_says_done_only_where_nothing_has_events() -> None:
    gloo = entry(profiling_name="gloo:all_reduce", retired=True)
    aborted = entry(retired=True, record_id=1)
    finished = entry(state="completed", retired=True, record_id=2)
    assert [row["state"] for row in rows(gloo, aborted, finished)] == ["done", "pending", "done"]


def test_only_names_are_needed() -> None:
    content = json.dumps({"version": "2.4", "pg_status": {}, "entries": [{"profiling_name": "nccl:barrier"}]}).encode()
    (row,) = read(content).rows("operations")
    assert (row["kind"], row["state"], row["sequence"], row["call_path"]) == ("barrier", "pending", None, None)


def test_sizes_of_unknown_types_count_elements_but_no_bytes() -> None:
    (row,) = rows(entry(input_sizes=[[2, 3], [4]], input_dtypes=["Float", "Mystery"]))
    assert (row["count"], row["bytes"], row["dtype"]) == (10, None, "Float,Mystery")


@pytest.mark.parametrize(
    ("text", "members"), [("[3, 1]", (3, 1)), ("[]", None), ("[0, __import__('os')]", None), ([2, 5], (2, 5))]
)
def test_ranks_are_parsed_and_never_evaluated(text: Any, members: tuple[int, ...] | None) -> None:
    config = {"0": {"name": "0", "desc": "default_pg", "ranks": text}}
    (view,) = read(json.dumps(dump(entry(), pg_config=config)).encode()).rows("group_views")
    assert view["members"] == members


def test_values_of_wrong_types_become_null() -> None:
    wrong = entry(pg_id="x", record_id=1 << 70, input_sizes="7", frames=5, thread_name={}, timeout_ms="a", is_p2p=None)
    (row,) = rows(wrong | {"process_group": 3, "time_created_ns": -4, "duration_ms": float("inf")})
    empty = ("pg_id", "pg_name", "record_id", "input_sizes", "count", "call_path", "enqueued_ns", "timeout_ns", "duration_ns")
    assert [row[name] for name in empty] == [None] * len(empty)


def test_broken_entries_are_numbered_and_the_others_kept() -> None:
    result = read(json.dumps(dump(entry(), 5, {"no": "name"}, entry(record_id=9))).encode())  # type: ignore[arg-type]
    assert [(p.locator, p.fatal) for p in result.problems] == [("entry=1", False), ("entry=2", False)]
    assert [(row["locator"], row["record_id"]) for row in result.rows("operations")] == [(0, 0), (3, 9)]


def test_a_newer_schema_is_read_and_warned_of() -> None:
    result = read(json.dumps(dump(entry(), version="3.1")).encode())
    assert len(result.rows("operations")) == 1
    assert "3.1" in result.problems[0].message


def test_cut_json_keeps_the_complete_entries_and_names_the_byte() -> None:
    content = (FOLDER / "gloo_2.10_rank0.json").read_bytes()
    cut = content.index(b'"record_id":4')
    result = read(content[:cut])
    assert [row["record_id"] for row in result.rows("operations")] == [0, 1, 2, 3]
    (problem,) = result.problems
    assert not problem.fatal
    assert problem.locator is not None and 0 < int(problem.locator.removeprefix("byte=")) <= cut


def test_cut_pickle_keeps_the_complete_entries_and_names_the_byte() -> None:
    content = (FOLDER / "gloo_2.10_rank1.pickle").read_bytes()
    whole = sample("flight_recorder/gloo_2.10_rank1.pickle").rows("operations")
    result = read(content[:-300])
    kept = result.rows("operations")
    assert 0 < len(kept) < len(whole)
    assert [row["record_id"] for row in kept] == [row["record_id"] for row in whole[: len(kept)]]
    assert [row["call_path"] for row in kept] == [row["call_path"] for row in whole[: len(kept)]]
    assert result.rows("group_views") == sample("flight_recorder/gloo_2.10_rank1.pickle").rows("group_views")
    assert [(p.fatal, p.locator) for p in result.problems] == [(False, f"byte={len(content) - 300}")]


class Command:
    def __reduce__(self) -> Any:
        return os.system, ("touch executed",)


def test_a_pickle_that_runs_code_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    content = pickle.dumps(dump(entry(), profiling_name=Command()), 2)
    result = read(content)
    assert result.rows("operations") == []
    (problem,) = result.problems
    assert problem.fatal
    assert "system" in problem.message
    assert not (tmp_path / "executed").exists()


def test_a_cut_pickle_that_runs_code_is_refused_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    content = pickle.dumps({**dump(entry()), "pg_config": Command(), "z": "x" * 100}, 2)[:-50]
    result = read(content)
    assert result.problems[0].fatal
    assert not (tmp_path / "executed").exists()


def hostile(opcodes: bytes) -> bytes:
    """A pickle that starts like a dump and goes on with these opcodes."""
    return b"\x80\x02}(X\x07\x00\x00\x00entriesX\x09\x00\x00\x00pg_config" + opcodes


@pytest.mark.parametrize(
    "opcodes",
    [
        pytest.param(b"]r\xff\xff\xff\x7f.", id="memo of 2^31"),
        pytest.param(b"\x8b\xff\xff\xff\x7f", id="integer of 2^31 bytes"),
        pytest.param(b"\x96\xff\xff\xff\xff\xff\xff\xff\x7f", id="bytearray of 2^63 bytes"),
        pytest.param(b"\x96" + (1 << 40).to_bytes(8, "little"), id="bytearray of 2^40 bytes"),
        pytest.param(b"X\xff\xff\xff\xff", id="string of 2^32 bytes"),
        pytest.param(b"]" * 200_000 + b"a" * 199_999 + b"u.", id="lists 200,000 deep"),
        pytest.param(b"Pid\n.", id="persistent id"),
        pytest.param(b"\x82\x01.", id="extension registry"),
        pytest.param(b"\xff", id="no opcode"),
        pytest.param(b"", id="nothing"),
    ],
)
def test_hostile_pickles_are_warnings(opcodes: bytes, capfd: pytest.CaptureFixture[str]) -> None:
    result = read(hostile(opcodes))
    assert result.rows("operations") == []
    assert result.problems
    assert capfd.readouterr().err == ""


def test_shared_lists_that_would_expand_without_end_are_not_followed() -> None:
    nested: list[Any] = [1]
    for _ in range(60):
        nested = [nested, nested]
    shared: list[Any] = [[7]] * 70_000
    doc = dump(
        entry(input_sizes=nested), entry(input_sizes=shared), entry(process_group=nested, frames=nested, thread_name=nested)
    )
    operations = read(pickle.dumps(doc, 2)).rows("operations")
    assert [row["input_sizes"] for row in operations] == [None, None, "[[7]]"]


def test_deeply_nested_json_is_a_warning() -> None:
    result = read(b'{"pg_config":{},"entries":' + b"[" * 100_000 + b"]" * 100_000 + b"}")
    assert result.problems


def test_equal_frames_get_equal_numbers_whoever_recorded_them() -> None:
    frames: list[dict[str, Any]] = [
        {"name": "step", "filename": "/srv/job/train.py", "line": 8},
        {"name": "<module>", "filename": "/srv/job/train.py"},
    ]
    one = read(pickle.dumps(dump(entry(frames=frames), entry(frames=[dict(f) for f in frames])), 2)).rows("operations")
    other = read(pickletools.optimize(pickle.dumps(dump(entry(frames=frames[:1]), entry(frames=frames)), 4))).rows("operations")
    assert one[0]["call_path"] == one[1]["call_path"] == other[1]["call_path"] != other[0]["call_path"]


def test_unreadable_bytes_are_a_fatal_problem() -> None:
    class Broken(io.BytesIO):
        def read(self, size: int | None = -1, /) -> bytes:
            raise OSError("input/output error")

    from forensics.bundle.artefact import Artefact
    from forensics.ingest.flight_recorder import rows as ingest

    (problem,) = list(ingest(Artefact("dump", 1, Broken)))
    assert getattr(problem, "fatal", False)


def test_a_group_call_that_is_cut_says_nothing_of_its_members(tmp_path: Path) -> None:
    """The recorder leaves them `scheduled`, and the entry that closes the call shows that they are done."""
    entry = {"pg_id": 0, "process_group": ["0", "default_pg"], "is_p2p": True, "state": "scheduled", "op_id": 1}
    called = [
        {**entry, "record_id": 3 * call + place, "p2p_seq_id": call, "profiling_name": f"nccl:{name}"}
        for call in range(3)
        for place, name in enumerate(("send 0->1", "recv 0<-1", "coalesced"))
    ]
    entries = [{**one, "state": "completed"} if one["profiling_name"] == "nccl:coalesced" else one for one in called]
    text = json.dumps({"version": "2.10", "entries": entries})
    (tmp_path / "rank0.json").write_text(text[: text.rindex("{")])
    rows = open_case([tmp_path]).execute("SELECT DISTINCT sequence, state FROM operations ORDER BY 1").fetchall()
    assert rows == [(0, "done"), (1, "done")]
