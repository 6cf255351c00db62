"""Traces of simulated jobs: laid out as the real ones, true to the times of the run, read by other readers and by ours."""

from __future__ import annotations

import gzip
import json
import re
import sqlite3
from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import replace
from decimal import Decimal
from itertools import pairwise
from pathlib import Path
from typing import Any

import duckdb
import numpy as np
import pytest
from duckdb import DuckDBPyConnection

import forensics.fixtures
from forensics.case.build import open_case
from forensics.fixtures.simulator import bundle
from forensics.fixtures.simulator.code_bases import BASES
from forensics.fixtures.simulator.faults import parse
from forensics.fixtures.simulator.simulation import Simulation, simulate
from forensics.fixtures.simulator.writers.interface import Writer
from forensics.fixtures.simulator.writers.kineto import kineto
from forensics.fixtures.simulator.writers.nsight import nsight
from forensics.fixtures.simulator.writers.stage_vectors import stage_vectors
from tests.unit.simulator.small_jobs import DENSE

STYLES = tuple(BASES)
SMALL = replace(DENSE, parallel=replace(DENSE.parallel, data=2), microbatches=2)
RANK = 5


def made(fault: str, seed: int = 3) -> Simulation:
    return simulate(SMALL, [parse(fault)], seed, iterations=4)


def files(case: Simulation, writer: Writer, style: str = "plain", at_ns: float | None = None) -> dict[str, bytes]:
    then = at_ns or (case.capture_ns if case.hung else float(case.run.ends.max()))
    return dict(writer(case.run, case.places, then, bundle.options_of(case, style=style, traced_steps=3)))


def case_of(found: Mapping[str, bytes], folder: Path) -> DuckDBPyConnection:
    for path, content in found.items():
        (folder / path).parent.mkdir(parents=True)
        (folder / path).write_bytes(content)
    connection = open_case([folder])
    assert connection.execute("SELECT path, message FROM ingest_warnings").fetchall() == []
    return connection


def of_rank(found: Mapping[str, bytes], rank: int = RANK) -> bytes:
    (content,) = [content for path, content in found.items() if path.startswith(f"ranks/{rank}/")]
    return content


def trace(found: Mapping[str, bytes], rank: int = RANK) -> Any:
    return json.loads(gzip.decompress(of_rank(found, rank)), parse_float=Decimal)


def database(found: Mapping[str, bytes], rank: int = RANK) -> sqlite3.Connection:
    connection = sqlite3.connect(":memory:")
    connection.deserialize(of_rank(found, rank))
    return connection


def ended(case: Simulation, first: int, until_ns: float, rank: int = RANK) -> list[int]:
    """What the clock of a rank's host shows when each kernel of its iterations from `first` on ends."""
    kinds = ("kernel", "collective", "send", "recv")
    return sorted(
        case.places.wall_of(rank, at)
        for iteration, column in case.run.of_rank(rank)
        for op, at in zip(column.ops, column.ended.tolist(), strict=True)
        if iteration >= first and op.kind in kinds and at <= until_ns
    )


@pytest.fixture(scope="module")
def healthy() -> Simulation:
    return made("none")


@pytest.fixture(scope="module")
def hung() -> Simulation:
    return made("host-hang@rank5/backward")


def shapes(events: Iterable[Mapping[str, Any]]) -> dict[tuple[str, str | None], set[str]]:
    """Keys of events by phase and category."""
    found: dict[tuple[str, str | None], set[str]] = defaultdict(set)
    for event in events:
        found[event["ph"], event.get("cat")] |= event.keys()
    return found


def test_kineto_has_the_layout_of_the_real_writer(healthy: Simulation) -> None:
    sample = Path(forensics.fixtures.__path__[0]) / "samples/kineto/rank-0.pt.trace.json"
    real, ours = json.loads(sample.read_bytes()), trace(files(healthy, kineto))
    assert list(ours) == list(real)
    assert real["distributedInfo"].keys() <= ours["distributedInfo"].keys()
    assert real["distributedInfo"]["pg_config"][0].keys() == ours["distributedInfo"]["pg_config"][0].keys()
    expected, found = shapes(real["traceEvents"]), shapes(ours["traceEvents"])
    for kind in (("X", "cpu_op"), ("X", "user_annotation"), ("M", None)):
        assert found[kind] == expected[kind]
    assert found["s", "ac2g"] < found["f", "ac2g"]
    assert ours["baseTimeNanoseconds"] % 7_889_238_000_000_000 == 0
    text = gzip.decompress(of_rank(files(healthy, kineto)))
    assert len(re.findall(rb"\n  \{", text)) == len(ours["traceEvents"])


def test_kineto_kernels_end_when_those_of_the_run_do(healthy: Simulation) -> None:
    document = trace(files(healthy, kineto))
    base = document["baseTimeNanoseconds"]
    kernels = [event for event in document["traceEvents"] if event.get("cat") == "kernel"]
    times = sorted(base + int((event["ts"] + event["dur"]) * 1000) for event in kernels)
    assert np.abs(np.array(times) - np.array(ended(healthy, 1, np.inf))).max() <= 2
    by_stream = defaultdict(list)
    for event in kernels:
        assert event["pid"] == healthy.places.local_rank(RANK) and event["tid"] == event["args"]["stream"]
        by_stream[event["tid"]].append((event["ts"], event["ts"] + event["dur"]))
    for intervals in by_stream.values():
        intervals.sort()
        assert all(later[0] >= earlier[1] for earlier, later in pairwise(intervals))


def test_kineto_links_kernels_to_launches_and_these_to_operators(healthy: Simulation) -> None:
    events = trace(files(healthy, kineto))["traceEvents"]
    launches = {e["args"]["correlation"]: e for e in events if e.get("cat") == "cuda_runtime"}
    operators = {e["args"]["External id"]: e for e in events if e.get("cat") == "cpu_op"}
    kernels = [e for e in events if e.get("cat") == "kernel"]
    assert len(launches) == sum(e.get("cat") == "cuda_runtime" for e in events) > len(kernels) == len(operators)
    for event in kernels:
        launch, operator = launches[event["args"]["correlation"]], operators[event["args"]["External id"]]
        assert operator["ts"] <= launch["ts"] and launch["ts"] + launch["dur"] <= operator["ts"] + operator["dur"]
        assert launch["ts"] < event["ts"]
        stated = event["args"].get("Collective name")
        assert stated == operator["args"].get("Collective name")
        assert event["name"].startswith("ncclDevKernel") == (stated is not None)
    annotated = {e["args"]["External id"] for e in events if e.get("cat") == "user_annotation"}
    assert {e["args"]["External id"] for e in events if e.get("cat") == "gpu_user_annotation"} <= annotated


def test_kineto_events_of_a_thread_nest(healthy: Simulation) -> None:
    tracks = defaultdict(list)
    for event in trace(files(healthy, kineto))["traceEvents"]:
        if event.get("cat") in ("cpu_op", "user_annotation", "cuda_runtime"):
            tracks[event["tid"]].append((event["ts"], -event["dur"]))
    assert len(tracks) == 2
    for intervals in tracks.values():
        around: list[Decimal] = []
        for begin, length in sorted(intervals):
            while around and around[-1] <= begin:
                around.pop()
            assert not around or begin - length <= around[-1] + Decimal("0.002")
            around.append(begin - length)


def test_other_readers_agree_on_a_kineto_trace(healthy: Simulation, tmp_path: Path) -> None:
    found = files(healthy, kineto)
    path = tmp_path / "trace.json"
    path.write_bytes(gzip.decompress(of_rank(found)))
    counted = duckdb.execute(
        "SELECT count(*), count(*) FILTER (e.ph = 'X'), max(e.dur) FROM (SELECT unnest(traceEvents) e FROM read_json(?, "
        "maximum_object_size=100000000, columns={traceEvents: 'STRUCT(ph VARCHAR, ts DOUBLE, dur DOUBLE)[]'}))",
        [str(path)],
    ).fetchall()
    events = trace(found)["traceEvents"]
    complete = [float(event["dur"]) for event in events if event["ph"] == "X"]
    assert counted == [(len(events), len(complete), max(complete))]


@pytest.mark.parametrize("style", STYLES)
def test_our_reader_has_no_complaint_about_kineto(healthy: Simulation, style: str, tmp_path: Path) -> None:
    connection = case_of(files(healthy, kineto, style), tmp_path)
    world = SMALL.parallel.world
    steps = connection.execute("SELECT step, count(*) FROM steps GROUP BY step ORDER BY step").fetchall()
    assert steps == [(healthy.first_step + number, world) for number in (1, 2, 3)]
    stages = connection.execute("SELECT DISTINCT stage FROM stage_spans ORDER BY stage").fetchall()
    assert [stage for (stage,) in stages] == ["backward", "callbacks", "data", "forward", "optimizer"]
    kinds = ("collective", "send", "recv")
    made = sum(op.kind in kinds for n, column in healthy.run.of_rank(RANK) for op in column.ops if n >= 1)
    assert connection.execute(f"SELECT count(*) FROM operations WHERE rank = {RANK}").fetchall() == [(made,)]
    apart = connection.execute(
        "SELECT pg_name, sequence, count(DISTINCT kind), count(DISTINCT rank), count(*) FROM operations "
        "WHERE NOT is_p2p GROUP BY ALL"
    ).fetchall()
    sizes = {name: len(ranks) for name, ranks in connection.execute("SELECT pg_name, members FROM group_views").fetchall()}
    assert apart and all(kinds == 1 and ranks == rows == sizes[name] for name, _, kinds, ranks, rows in apart)


def test_a_job_that_hangs_has_the_trace_of_steps_that_all_ranks_left(hung: Simulation, tmp_path: Path) -> None:
    found = files(hung, kineto)
    over = [hung.first_step + n for n in range(len(hung.run.ends)) if hung.run.ends[n].max() <= hung.capture_ns]
    connection = case_of(found, tmp_path)
    steps = connection.execute("SELECT step, count(*) FROM steps GROUP BY step ORDER BY step").fetchall()
    assert steps == [(step, SMALL.parallel.world) for step in over[-3:]]
    assert files(hung, kineto, at_ns=float(hung.run.ends[0].min())) == {}


def test_how_many_steps_are_traced_is_a_choice(healthy: Simulation) -> None:
    options = bundle.options_of(healthy, traced_steps=3)
    then = float(healthy.run.ends.max())
    for steps in (1, 2):
        found = dict(kineto(healthy.run, healthy.places, then, options, steps=steps))
        names = [event["name"] for event in trace(found)["traceEvents"] if event.get("cat") == "user_annotation"]
        assert [name for name in names if name.startswith("ProfilerStep#")] == [
            f"ProfilerStep#{healthy.first_step + 4 - back}" for back in range(steps, 0, -1)
        ]


def test_nsight_kernels_end_when_those_of_the_run_do(hung: Simulation) -> None:
    found = files(hung, nsight)
    assert found == files(hung, nsight)
    connection = database(found)
    ((epoch,),) = connection.execute("SELECT utcEpochNs FROM TARGET_INFO_SESSION_START_TIME").fetchall()
    ends = connection.execute('SELECT "end" FROM CUPTI_ACTIVITY_KIND_KERNEL').fetchall()
    first = len(hung.run.begins) - 3
    stated = np.array(sorted(epoch + end for (end,) in ends))
    assert np.abs(stated - np.array(ended(hung, first, hung.capture_ns))).max() <= 2
    launched = connection.execute(
        "SELECT count(*), min(k.start - r.start) FROM CUPTI_ACTIVITY_KIND_KERNEL k JOIN CUPTI_ACTIVITY_KIND_RUNTIME r "
        "ON k.correlationId = r.correlationId AND k.globalPid >> 24 = r.globalTid >> 24"
    ).fetchall()
    assert launched[0][0] == len(ends) and launched[0][1] > 0
    names = "SELECT count(*) FROM CUPTI_ACTIVITY_KIND_KERNEL k JOIN StringIds s ON s.id = k.demangledName"
    assert connection.execute(names).fetchall() == [(len(ends),)]


@pytest.mark.parametrize("style", STYLES)
def test_our_reader_has_no_complaint_about_nsight(hung: Simulation, style: str, tmp_path: Path) -> None:
    connection = case_of(files(hung, nsight, style), tmp_path)
    ranks = connection.execute("SELECT rank, max(step) FROM steps GROUP BY rank ORDER BY rank").fetchall()
    through = np.isfinite(hung.run.ends).sum(axis=0).tolist()
    assert ranks == [(rank, hung.first_step + count - 1) for rank, count in enumerate(through)]
    opened = defaultdict(list)
    for rank, name in connection.execute("SELECT rank, name FROM spans WHERE category = 'open range'").fetchall():
        opened[rank].append(name)
    assert opened[RANK] and not [name for name in opened[RANK] if "nccl" in name]
    assert sorted(opened) == list(range(SMALL.parallel.world))


def test_nsight_sees_a_process_until_it_died() -> None:
    case = made("process-killed@rank6")
    onset = case.injections[0].onset_ns
    connection = database(files(case, nsight), 6)
    ((epoch,),) = connection.execute("SELECT utcEpochNs FROM TARGET_INFO_SESSION_START_TIME").fetchall()
    for table in ("CUPTI_ACTIVITY_KIND_KERNEL", "CUPTI_ACTIVITY_KIND_RUNTIME", "NVTX_EVENTS"):
        ((latest,),) = connection.execute(f'SELECT max(coalesce("end", start)) FROM {table}').fetchall()
        assert epoch + latest <= case.places.wall_of(6, onset)


@pytest.mark.parametrize(
    "fault",
    ["kernel-hang", "process-oom", "extra-collective", "gpu-throttled", "nic-down", "frontier-data"],
)
def test_nothing_tells_the_fault(fault: str) -> None:
    case = made(f"{fault}@random")
    secret = re.compile(rb"simulat|inject|truth|(?<!de)fault[s_ -]|culprit|forensics\.fixtures|" + fault.encode())
    written = [found for writer in (stage_vectors, kineto, nsight) for found in files(case, writer).items()]
    assert {path.split("/")[2] for path, _ in written} == {"stages", "traces"}
    for path, content in written:
        plain = gzip.decompress(content) if path.endswith(".gz") else content
        assert not secret.search(path.encode()) and not secret.search(plain), path
