"""Ranks of a pipeline whose hosts compute, and which work longer than others, by traces without devices."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

from forensics.case.build import open_case
from forensics.model import Cause, Component, StageName
from forensics.rules.diagnosis import diagnose
from forensics.rules.reductions.pipeline.axes import Axis
from forensics.rules.reductions.pipeline.device_work import finding_of
from forensics.rules.reductions.pipeline.host_passes import HostPasses
from forensics.rules.reductions.pipeline.host_work import work_of
from forensics.rules.reductions.pipeline.layout import AxisOf, Layout

Floats = npt.NDArray[np.float64]

MS = 1e6
PIPE = Layout({"pp": AxisOf(Axis.PIPELINE)}, {"pp": (0, 1, 2, 3)})
REPLICAS = Layout(
    {**dict.fromkeys(("dp 0", "dp 1"), AxisOf(Axis.DATA)), **dict.fromkeys(("pp 0", "pp 1"), AxisOf(Axis.PIPELINE))},
    {"dp 0": (0, 2), "dp 1": (1, 3), "pp 0": (0, 1), "pp 1": (2, 3)},
)


def traced(
    factors: Floats, *, other: Floats | None = None, alike: bool = False, many: tuple[int, ...] = (90, 100, 110, 115)
) -> Mapping[int, HostPasses]:
    """Ranks (columns) that compute 100 ms and 200 ms in each step (row) of 800 ms, times a factor; `other` is in no pass."""
    factors = factors * (1 + 0.05 * np.random.default_rng(3).random(factors.shape))
    more = np.zeros(factors.shape) if other is None else other
    wall = np.full(len(factors), 800 * MS)
    return {
        rank: HostPasses(
            np.arange(len(factors)), wall, 100 * MS * own, 200 * MS * own, 310 * MS * own + more[:, rank],
            48 if rank in (0, 3) and not alike else 96, many[rank], f"rank{rank}.json",
        )
        for rank, own in enumerate(factors.T)
    }  # fmt: skip


def slowed(steps: int = 4, **factors: float) -> Floats:
    """Factors of ranks as `r2=1.7`."""
    found = np.ones((steps, 4))
    for name, factor in factors.items():
        found[:, int(name[1:])] = factor
    return found


def named(factors: Floats, layout: Layout = PIPE, **how: Any) -> list[int]:
    return [item.rank for item in work_of(traced(factors, **how), layout).found]


def test_a_stage_that_works_longer_than_all_others() -> None:
    (item,) = work_of(traced(slowed(r2=1.8)), PIPE).found
    finding = finding_of(item)
    assert (item.rank, item.peers, finding.cause, finding.stage.component) == (
        2, (0, 1, 3), Cause.COMPUTE_SLOW, Component.COMPUTE,
    )  # fmt: skip
    assert any("larger layers" in each.statement for each in finding.evidence if not each.supports)
    assert named(slowed(r2=1.8), many=(90, 100, 150, 115)) == []  # a stage with more layers


def test_without_a_group_of_the_pipeline_its_messages_show_its_ends() -> None:
    assert named(slowed(r1=1.8), Layout({}, {})) == [1]
    assert named(slowed(r1=1.8), Layout({}, {}), alike=True) == []


@pytest.mark.parametrize(
    "factors",
    [slowed(), slowed(r2=1.4), slowed(r0=1.8), slowed(r3=1.8), slowed(r1=1.8, r2=1.8), slowed(steps=2, r2=1.8)],
    ids=["sound", "some more layers", "an embedding", "a head", "two stages", "two steps"],
)
def test_what_the_model_may_be_like_names_nobody(factors: Floats) -> None:
    assert named(factors) == []


def test_other_load_in_some_steps_is_no_slow_stage() -> None:
    factors = slowed(r2=1.0)
    factors[1:, 2] = 1.9
    assert named(factors) == []


def test_a_rank_is_compared_with_its_equal_in_another_replica() -> None:
    (item,) = work_of(traced(slowed(r3=1.8)), REPLICAS).found
    assert (item.rank, item.peers, item.by_stages) == (3, (1,), False)
    assert named(slowed(r1=1.4, r3=1.6), REPLICAS) == named(slowed(r2=1.8, r3=1.8), REPLICAS) == []


def test_work_outside_of_operators_is_of_the_host() -> None:
    late = np.zeros((4, 4))
    late[:, 2] = 300 * MS
    finding = finding_of(work_of(traced(slowed(), other=late), PIPE).found[0])
    assert (finding.ranks, finding.cause, finding.stage.component, finding.stage.name) == (
        (2,), Cause.UNKNOWN, Component.HOST, StageName.UNKNOWN,
    )  # fmt: skip


def test_a_slow_rank_that_changes_is_named_with_its_steps() -> None:
    factors = slowed()
    factors[[0, 1, 2, 3], [1, 3, 3, 0]] = 2.2
    found = work_of(traced(factors), PIPE).found
    assert [(item.rank, item.steps, item.peers) for item in found] == [(0, 1, ()), (1, 1, ()), (3, 2, ())]
    factors[[0, 3], [1, 0]] = 1
    assert named(factors) == []  # one rank, twice of four times


def test_hosts_that_share_their_cores_work_now_longer_now_shorter() -> None:
    """So it is with short steps on a busy host, of what a rank computes and of what it does besides."""
    factors = slowed()
    factors[[0, 1, 2, 3], [1, 3, 3, 0]] = 2.2
    factors[1, 2] = 1.45
    assert named(factors) == []
    waits = np.zeros((4, 4))
    waits[[0, 1, 2, 3], [1, 3, 3, 0]] = 600 * MS
    assert named(slowed(), other=waits) == []


def trace(rank: int, takes: float) -> dict[str, Any]:
    """Four steps: a message is received, then operators run, for all of which another one is sent."""
    events: list[dict[str, Any]] = []

    def add(cat: str, name: str, begin: float, length: float) -> None:
        events.append({"ph": "X", "cat": cat, "name": name, "pid": 1, "tid": 1, "ts": begin, "dur": length})

    for step in range(4):
        begin = step * 1e6
        add("user_annotation", f"ProfilerStep#{step}", begin, 9.9e5)
        add("user_annotation", "gloo:recv", begin, 8e5 - takes)
        add("cpu_op", "c10d::recv_", begin, 10)
        add("user_annotation", "gloo:send", begin + 8e5 - takes, takes)
        add("cpu_op", "aten::addmm", begin + 8e5 - takes, takes / 3)
        gradient = begin + 8e5 - 2 * takes / 3
        add("cpu_op", "autograd::engine::evaluate_function: AddmmBackward0", gradient, 2 * takes / 3)
        for _ in range(1 if rank in (0, 3) else 2):
            add("user_annotation", "gloo:send", begin + 8e5, 100)
        add("cpu_op", "Waits", begin + 8.1e5, 1.5e5)
        add("cpu_op", "c10d::allreduce_", begin + 8.2e5, 10)
        add("user_annotation", "gloo:all_reduce", begin + 8.2e5, 1.3e5)
    groups = [{"pg_name": "0", "pg_desc": "default_pg", "ranks": [0, 1, 2, 3]}]
    info = {"backend": "gloo", "rank": rank, "world_size": 4, "pg_config": groups}
    return {"schemaVersion": 1, "deviceProperties": [], "distributedInfo": info, "host_name": "a", "traceEvents": events}


@pytest.mark.parametrize(("takes", "ranks"), [(7e5, [(2,)]), (3.2e5, [])])
def test_traces_alone(tmp_path: Path, takes: float, ranks: list[tuple[int, ...]]) -> None:
    """What is sent is under way while its rank computes; an operator that waits in a call of its own is no work."""
    for rank in range(4):
        (tmp_path / f"rank{rank}.json").write_text(json.dumps(trace(rank, takes if rank == 2 else 3e5)))
    with open_case([tmp_path]) as connection:
        verdict = diagnose(connection)
    assert [(suspect.ranks, suspect.stage.name) for suspect in verdict.suspects] == [
        (each, StageName.UNKNOWN) for each in ranks
    ]
