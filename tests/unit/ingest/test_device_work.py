"""Device work is charged to the stage that launched it; collectives are operations, whatever the trace says of them."""

from __future__ import annotations

import json
import sqlite3
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from forensics.ingest._shared.collective_kernels import kind_of_call, kind_of_kernel, moves_data
from forensics.ingest._shared.device_work import DeviceWork
from tests.unit.ingest.reading import Result, read

HEAD = {"schemaVersion": 1, "distributedInfo": {"backend": "nccl", "rank": 2, "world_size": 4}, "baseTimeNanoseconds": 10**18}
HOST, STREAM = {"pid": 9, "tid": 9}, {"pid": 0, "tid": 7}


def array(*values: int) -> Any:
    return np.array(values, dtype=np.int64)


def event(category: str, name: str, begin: float, length: float, **args: Any) -> dict[str, Any]:
    place = HOST if category in ("user_annotation", "cuda_runtime", "cpu_op") else STREAM
    return {"ph": "X", "cat": category, "name": name, **place, "ts": begin, "dur": length, "args": args}


def kineto(*events: dict[str, Any]) -> Result:
    return read(json.dumps({**HEAD, "traceEvents": list(events)}, indent=1).encode(), "t.json")


def launched(name: str, at: float, begin: float, length: float, number: int) -> list[dict[str, Any]]:
    return [
        event("cuda_runtime", "cudaLaunchKernel", at, 1, correlation=number),
        event("kernel", name, begin, length, correlation=number),
    ]


STEP = [
    event("user_annotation", "ProfilerStep#3", 0, 100),
    event("user_annotation", "## forward ##", 10, 20),
    event("user_annotation", "## backward ##", 40, 50),
]


def test_work_side_by_side_counts_once_and_work_outside_counts_nowhere() -> None:
    work = DeviceWork(array(5, 6, 7, 25, 99), array(100, 110, 200, 300, 400), array(120, 115, 210, 301, 450))
    assert work.of_spans([20, 0], [10, 10]) == [1, 30]
    assert work.of_spans([], []) == []


def test_kernels_belong_to_the_stage_that_launched_them_and_collectives_to_none() -> None:
    found = kineto(
        *STEP,
        *launched("gemm", 12, 45, 8, 1),
        *launched("gemm", 41, 60, 5, 2),
        *launched("ncclDevKernel_AllReduce", 50, 65, 25, 3),
    )
    busy = {row["stage"]: row["device_ns"] for row in found.rows("stage_spans")}
    assert busy == {"forward": 8000, "backward": 5000}


def test_kernels_launched_in_no_stage_are_of_what_lies_in_none() -> None:
    """A graph of the whole step, or passes that nobody annotated."""
    found = kineto(*STEP, *launched("gemm", 12, 45, 8, 1), *launched("graph", 34, 60, 7, 2), *launched("gemm", 120, 130, 5, 3))
    beside = [(row["stage"], row["device_ns"]) for row in found.rows("stage_spans") if row.get("side_channel")]
    assert beside == [("other", 7000)]


def test_without_a_launch_nothing_is_known_of_the_device() -> None:
    found = kineto(*STEP, event("kernel", "gemm", 45, 8, correlation=1))
    assert {row["device_ns"] for row in found.rows("stage_spans")} == {None}


def test_a_kernel_gets_the_call_around_its_launch() -> None:
    calls = [event("user_annotation", "nccl:all_to_all", 49, 4), event("user_annotation", "nccl:all_reduce", 55, 4)]
    found = kineto(
        *STEP, *calls, *launched("ncclKernel_SendRecv_RING_SIMPLE_Sum_int8_t(ncclWorkElem)", 50, 65, 2, 1),
        *launched("ncclDevKernel_AllReduce_Sum_f32_RING_LL", 58, 70, 3, 2), *launched("ncclKernel_SendRecv", 61, 80, 3, 3),
    )  # fmt: skip
    rows = found.rows("operations")
    assert [row["kind"] for row in rows] == ["all_to_all", "all_reduce", "coalesced"]
    assert [row["entered_ns"] and row["entered_ns"] - 10**18 for row in rows] == [49_000, 55_000, None]
    assert {(row["stream"], row["state"], row["backend"]) for row in rows} == {(7, "done", "nccl")}


def test_calls_of_the_host_are_operations_where_no_kernel_is_there_but_waits_are_none() -> None:
    found = kineto(
        *STEP,
        event(
            "cpu_op", "record_param_comms", 50, 2, **{"Collective name": "_allgather_base", "Seq": 7, "Process Group Name": "1"}
        ),
        event("cpu_op", "record_param_comms", 54, 9, **{"Collective name": "wait", "Seq": 7}),
        event("cpu_op", "record_param_comms", 70, 9, **{"Collective name": "send", "Dst Rank": 3, "Seq": 8}),
    )
    assert [(row["kind"], row["sequence"], row["peer"]) for row in found.rows("operations")] == [
        ("all_gather_base", 7, None), ("send", 8, 3),
    ]  # fmt: skip


@pytest.mark.parametrize(("name", "kind"), [
    ("ncclDevKernel_AllReduce_Sum_f32_RING_LL(ncclDevKernelArgsStorage<4096ul>)", "all_reduce"),
    ("ncclKernel_ReduceScatter_RING_LL_Sum_float(ncclWorkElem)", "reduce_scatter_base"),
    ("ncclDevKernel_Generic(ncclDevComm*, ...)", "unknown"), ("rcclGenericKernel<1, false>(...)", "unknown"),
    ("ncclKernel_Reduce_RING_LL_Sum_float(ncclWorkElem)", "reduce"),
])  # fmt: skip
def test_names_of_kernels(name: str, kind: str) -> None:
    assert moves_data(name) and kind_of_kernel(name) == kind


def test_names_of_others() -> None:
    assert not moves_data("void at::native::vectorized_elementwise_kernel") and not moves_data("cutlass::Kernel")
    assert kind_of_call("ncclBcast") == "broadcast" and kind_of_call("ncclGroupEnd") is None


NSIGHT = """
CREATE TABLE StringIds (id INTEGER, value TEXT);
INSERT INTO StringIds VALUES (1, 'ncclDevKernel_SendRecv'), (2, 'gemm'), (3, 'ncclSend'), (4, 'train_step 4'), (5, 'forward');
CREATE TABLE CUPTI_ACTIVITY_KIND_KERNEL (start, end, shortName, streamId, globalPid, correlationId);
INSERT INTO CUPTI_ACTIVITY_KIND_KERNEL VALUES
  (500, 600, 1, 15, 77 << 24, 8), (300, 340, 2, 7, 77 << 24, 9), (0, 9, 2, 7, 5 << 24, 9);
CREATE TABLE CUPTI_ACTIVITY_KIND_RUNTIME (start, end, globalTid, correlationId);
INSERT INTO CUPTI_ACTIVITY_KIND_RUNTIME VALUES (450, 460, (77 << 24) | 80, 8), (110, 120, (77 << 24) | 80, 9);
"""
RANGES = """
CREATE TABLE NVTX_EVENTS (start, end, eventType, textId, globalTid);
INSERT INTO NVTX_EVENTS VALUES
  (440, 470, 59, 3, (77 << 24) | 80), (100, 900, 59, 4, (77 << 24) | 80), (105, 400, 59, 5, (77 << 24) | 80);
"""


def nsight(folder: Path, script: str) -> Result:
    path = folder / "rank_3.sqlite"
    with sqlite3.connect(path) as database:
        database.executescript(script)
    database.close()
    return read(path.read_bytes(), path.name, rank=3)


def test_an_export_gives_operations_and_device_time(tmp_path: Path) -> None:
    found = nsight(tmp_path, NSIGHT + RANGES)
    (row,) = found.rows("operations")
    assert (row["rank"], row["kind"], row["is_p2p"], row["entered_ns"], row["duration_ns"]) == (3, "send", True, 440, 100)
    assert [(row["stage"], row["device_ns"]) for row in found.rows("stage_spans")] == [("forward", 40)]


def test_an_export_without_ranges_still_has_operations(tmp_path: Path) -> None:
    found = nsight(tmp_path, NSIGHT)
    assert [row["kind"] for row in found.rows("operations")] == ["coalesced"]
    assert "no NVTX ranges" in found.problems[0].message
