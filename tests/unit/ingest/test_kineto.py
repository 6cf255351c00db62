"""Kineto traces in every layout, whole, cut, broken and hostile."""

from __future__ import annotations

import gzip
import io
import itertools
import json
from typing import Any

import pytest

from forensics.bundle.artefact import Artefact
from forensics.bundle.streams import content_opener
from forensics.ingest import choose
from forensics.ingest.kineto import INGESTER, host_in
from forensics.ingest.kineto import native as trace_native
from tests.unit.ingest.reading import SAMPLES, Result, read, sample

PATH = "kineto/rank-0.pt.trace.json"
STAGES = {"data", "forward", "backward", "callbacks", "optimizer"}


def content() -> bytes:
    return (SAMPLES / PATH).read_bytes()


def spans(found: Result) -> list[tuple[int, str, int]]:
    return [(row["step"], row["stage"], row["duration_ns"]) for row in found.rows("stage_spans")]


def test_steps_stages_and_collectives_of_the_sample() -> None:
    found = sample(PATH)
    assert found.problems == []
    assert [row["step"] for row in found.rows("steps")] == [1, 2, 3, 4, 5, 6]
    assert {row["stage"] for row in found.rows("stage_spans")} == STAGES
    named = {(row["category"], row["name"]) for row in found.rows("spans")}
    assert named >= {("collective", "gloo:all_reduce"), ("collective", "gloo:broadcast")}
    assert {category for category, _ in named} <= {"collective", "computation"}
    assert found.identities[0].rank == 0 and found.identities[0].host == "node1"
    assert found.config() == {"world_size": "4", "trace.operators": "72"}


def test_spans_do_not_overlap_and_lie_in_their_step() -> None:
    found = sample(PATH)
    for step in found.rows("steps"):
        own = sorted((r["begin_ns"], r["duration_ns"]) for r in found.rows("stage_spans") if r["step"] == step["step"])
        assert own[0][0] >= step["begin_ns"] and sum(own[-1]) <= step["end_ns"]
        assert all(begin + length <= following for (begin, length), (following, _) in itertools.pairwise(own))


@pytest.mark.parametrize("options", [{"separators": (",", ":")}, {}, {"indent": 2}, {"indent": 1}])
def test_other_layouts_give_the_same(options: dict[str, Any]) -> None:
    again = json.dumps(json.loads(content()), **options).encode()
    assert spans(read(again, PATH)) == spans(sample(PATH))


def test_a_compressed_trace_that_is_cut_gives_what_came_before() -> None:
    packed = gzip.compress(content())[:-2000]
    opener = content_opener(lambda: io.BytesIO(packed), len(packed))
    found = Result("kineto", list(INGESTER.rows(Artefact(PATH + ".gz", len(packed), opener))))
    assert 0 < len(found.rows("steps")) <= 6
    assert any("what came before was used" in problem.message for problem in found.problems)


@pytest.mark.parametrize("part", [0.2, 0.5, 0.9])
def test_a_cut_trace_says_so(part: float) -> None:
    found = read(content()[: int(part * len(content()))], "rank-0.json.tmp")
    assert any("cut" in problem.message for problem in found.problems)
    assert set(spans(found)) <= set(spans(sample(PATH))) | {s for s in spans(found) if s[1] in ("backward", "forward")}


def test_a_broken_event_costs_only_itself() -> None:
    damaged = content().replace(b'"## data ##"', b'"## da"ta ##"', 1)
    found = read(damaged, PATH)
    assert "1 events are no valid JSON" in found.problems[0].message
    assert len(spans(found)) == len(spans(sample(PATH))) - 1


@pytest.mark.parametrize("is_native", [True, False])
def test_the_end_of_a_list_in_a_broken_event_is_not_the_end_of_the_trace(
    is_native: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    if not is_native:
        monkeypatch.setattr(trace_native, "_library", lambda: None)
    whole = json.dumps(json.loads(content()))
    event = '{"ph": "X", "cat": "kernel", "args": {"a": [{"b": 1}, {"c": 2}]}, "name" "x"}, '
    found = read(whole.replace('"traceEvents": [', f'"traceEvents": [{event}', 1).encode(), PATH)
    assert "no valid JSON" in found.problems[0].message
    assert spans(found) == spans(sample(PATH))


def test_without_annotations_the_engine_tells_forward_and_backward() -> None:
    document = json.loads(content())
    document["traceEvents"] = [e for e in document["traceEvents"] if not str(e.get("name", "")).startswith("## ")]
    found = read(json.dumps(document, indent=1).encode(), PATH)
    assert {"forward", "backward", "optimizer"} <= {row["stage"] for row in found.rows("stage_spans")}
    assert any("not annotated" in problem.message for problem in found.problems)


def test_without_step_marks_the_updates_are_the_marks() -> None:
    document = json.loads(content())
    document["traceEvents"] = [e for e in document["traceEvents"] if not str(e.get("name", "")).startswith("ProfilerStep")]
    found = read(json.dumps(document).encode(), PATH)
    assert len(found.rows("steps")) == 5
    assert "no step marks" in found.problems[0].message


def test_operators_of_a_host_without_devices_are_stretches_that_do_not_wait() -> None:
    """An operator with a call in it may wait; what it consists of counts, gradients apart; other threads do not."""
    marks = [("user_annotation", "ProfilerStep#1", 0, 1000, 1), ("user_annotation", "Optimizer.step#SGD", 950, 10, 1)]
    work = [
        ("cpu_op", "aten::mm", 100, 50, 1), ("cpu_op", "aten::add", 250, 50, 1), ("cpu_op", "aten::mul", 800, 10, 1),
        ("cpu_op", "autograd::engine::evaluate_function: X", 820, 30, 1), ("cpu_op", "aten::mm", 500, 50, 2),
        ("cpu_op", "_Reduce", 400, 300, 1), ("cpu_op", "c10d::allreduce_", 410, 10, 1), ("cpu_op", "aten::copy_", 405, 3, 1),
    ]  # fmt: skip
    events = [
        {"ph": "X", "cat": cat, "name": name, "pid": 1, "tid": tid, "ts": ts, "dur": dur}
        for cat, name, ts, dur, tid in marks + work
    ]
    head = {"schemaVersion": 1, "deviceProperties": [], "distributedInfo": {"rank": 0}}
    found = read(json.dumps({**head, "traceEvents": events}).encode(), PATH)
    rows = [(row["name"], row["begin_ns"], row["end_ns"]) for row in found.rows("spans")]
    assert rows == [("gradients", 820_000, 850_000), ("operators", 100_000, 408_000), ("operators", 800_000, 810_000)]
    assert found.config() == {"trace.operators": "6"}
    head["deviceProperties"] = [{"id": 0}]
    assert not read(json.dumps({**head, "traceEvents": events}).encode(), PATH).rows("spans")


def test_without_a_rank_nothing_is_guessed_silently() -> None:
    document = json.loads(content())
    del document["distributedInfo"]
    found = read(json.dumps(document).encode(), "trace.json")
    assert not found.rows("steps") and "no rank is known" in found.problems[0].message
    named = read(json.dumps(document).encode(), "x_7.json", rank=7, rank_method="guessed")
    assert named.rows("steps") and "guess" in named.problems[0].message


def nccl(**args: Any) -> dict[str, Any]:
    arguments = {"Collective name": "allreduce", "Process Group Name": "0", "Seq": 4, "In msg nelems": 10, "dtype": "Float"}
    return {
        "ph": "X",
        "cat": "kernel",
        "name": "ncclDevKernel",
        "pid": 0,
        "tid": 20,
        "ts": 5.0,
        "dur": 2.5,
        "args": arguments | args,
    }


def test_collectives_of_the_device_are_operations() -> None:
    info = {"backend": "nccl", "rank": 3, "world_size": 8}
    step = {"ph": "X", "cat": "user_annotation", "name": "ProfilerStep#5", "pid": 1, "tid": 1, "ts": 0, "dur": 100}
    trace = {"schemaVersion": 1, "distributedInfo": info, "baseTimeNanoseconds": 10**18, "traceEvents": [step, nccl()]}
    (row,) = read(json.dumps(trace, indent=2).encode(), "t.json").rows("operations")
    assert (row["kind"], row["pg_name"], row["sequence"], row["duration_ns"]) == ("all_reduce", "0", 4, 2500)
    assert row["device_start_ns"] == 10**18 + 5000


ODD: list[Any] = [None, "x", [], {}, -5, 1e300, float("1e18"), True]


@pytest.mark.parametrize("value", ODD, ids=str)
@pytest.mark.parametrize("key", ["ts", "dur", "name", "args", "cat", "ph", "tid"])
def test_odd_values_raise_nothing(key: str, value: Any) -> None:
    document = json.loads(content())
    for event in document["traceEvents"]:
        event[key] = value
    read(json.dumps(document).encode(), PATH)


def test_other_traces_of_chrome_are_recognised_and_other_json_is_not() -> None:
    assert choose(b'{"traceEvents": [{"ph": "X", "cat": "user_annotation"', "t.json") is INGESTER
    assert choose(b'{"hello": 1}', "t.json") is None


@pytest.mark.parametrize(
    ("path", "host"),
    [
        ("traces/gpu-07.cluster_41233.1790857026000000000.pt.trace.json.gz", "gpu-07.cluster"),
        ("node3_900.1790857026123.pt.trace.json", "node3"),
        ("rank_12.1790857026000000000.pt.trace.json", None),
        ("worker_128.1790857026000000000.pt.trace.json", None),
        ("rank12.1790857026000000000.pt.trace.json", None),
        ("gpu-07_41233.json", None),
    ],
)
def test_the_name_that_the_handler_gives_a_file_has_its_host(path: str, host: str | None) -> None:
    assert host_in(path) == host
