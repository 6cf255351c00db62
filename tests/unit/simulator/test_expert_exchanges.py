"""Exchanges of tokens between experts: what routers draw is what shim logs, recorders, profilers and NICs say was moved."""

from __future__ import annotations

import gzip
import io
import json
import pickle
from collections import defaultdict
from dataclasses import replace
from functools import cache
from typing import Any

import numpy as np
import pytest

from forensics.fixtures.simulator.bundle import options_of
from forensics.fixtures.simulator.exchanges import is_routed, place_of, splits, whole
from forensics.fixtures.simulator.faults import parse
from forensics.fixtures.simulator.groups import create_groups, groups_of
from forensics.fixtures.simulator.job import MS, Model, Parallelism, TrainingJob
from forensics.fixtures.simulator.network import Network
from forensics.fixtures.simulator.simulation import Simulation, simulate
from forensics.fixtures.simulator.transfers import transfers
from forensics.fixtures.simulator.writers.flight_recorder import flight_recorder
from forensics.fixtures.simulator.writers.kineto import kineto
from forensics.fixtures.simulator.writers.shim_log import shim_log
from tests.unit.ingest.reading import read

MODEL = Model(4, 20 * MS, 8 << 20, 64 << 20, is_moe=True, routing_skew=0.3)
JOB = TrainingJob(
    "experts", Parallelism(tensor=2, pipeline=2, data=4, expert=4), MODEL, microbatches=2, gpus_per_host=2, data_mode="zero1"
)
FAULTS = (
    "none", pytest.param("expert-imbalance@rank2:3", marks=pytest.mark.slow),
    pytest.param("order-swap@random", marks=pytest.mark.slow),
)  # fmt: skip
Moved = dict[tuple[int, int], list[float]]
"""Amounts by sender and receiver, one exchange after the other."""


@cache
def case(fault: str, job: TrainingJob = JOB) -> Simulation:
    return simulate(job, [parse(fault)], 4, iterations=4)


def axis_of(made: Simulation, rank: int, axis: str) -> int:
    groups = groups_of(create_groups(made.job, options_of(made).code.style), made.job.parallel.world)[rank]
    return next(number for number, group in enumerate(groups) if group.axis == axis)


@cache
def in_shim_logs(fault: str) -> tuple[Moved, Moved, dict[int, list[tuple[int, int]]]]:
    """Bytes sent, bytes received, and the sums of each exchange of each rank."""
    made = case(fault)
    sent: Moved = defaultdict(list)
    got: Moved = defaultdict(list)
    sums: dict[int, list[tuple[int, int]]] = defaultdict(list)
    for rank, (path, content) in enumerate(shim_log(made.run, made.places, made.capture_ns, options_of(made))):
        members = made.job.parallel.members("ep", rank)
        totals: dict[Any, list[int]] = defaultdict(lambda: [0, 0])
        rows = read(content, path).rows("operations")
        slot = next(row["communicator"] for row in rows if row["kind"] == "send" and row["peer"] == members.index(rank))
        for row in sorted((row for row in rows if row["communicator"] == slot), key=lambda row: int(row["sequence"])):
            peer, is_recv = members[row["peer"]], row["kind"] == "recv"
            (got if is_recv else sent)[(peer, rank) if is_recv else (rank, peer)].append(row["bytes"])
            totals[row["thread"], row["group_call"]][is_recv] += row["bytes"]
        sums[rank] = [(given, taken) for given, taken in totals.values()]
    return sent, got, sums


@pytest.mark.slow
@pytest.mark.parametrize("fault", FAULTS)
def test_what_a_member_sends_to_another_the_other_gets_from_it(fault: str) -> None:
    sent, got, _ = in_shim_logs(fault)
    assert sent.keys() == got.keys() and len({size for sizes in sent.values() for size in sizes}) > 20
    for pair, sizes in sent.items():
        count = min(len(sizes), len(got[pair]))
        assert sizes[:count] == got[pair][:count] and count > 4


@pytest.mark.parametrize("fault", FAULTS)
def test_recorders_have_the_sums_of_the_calls_of_shim_logs(fault: str) -> None:
    made, (*_, sums) = case(fault), in_shim_logs(fault)
    for rank, (_, dump) in enumerate(flight_recorder(made.run, made.places, made.capture_ns, options_of(made))):
        entries = pickle.load(io.BytesIO(dump))["entries"]  # noqa: S301
        stated = [
            tuple(2 * int(np.prod(entry[sizes][0])) for sizes in ("input_sizes", "output_sizes"))
            for entry in entries if entry["profiling_name"] == "nccl:all_to_all"
        ]  # fmt: skip
        count = min(len(stated), len(sums[rank]))
        assert count > 4 and stated[-count:] == sums[rank][-count:]
        assert len({given for given, _ in stated}) > 2 and len({taken for _, taken in stated}) > 2


@pytest.mark.parametrize("fault", FAULTS[:2])
def test_nics_move_what_the_loads_of_a_run_say(fault: str) -> None:
    made = case(fault)
    effects = made.effects if fault != "none" else ()
    found = 0
    loads = {(each.stage, each.iteration): each.loads for each in made.run.recordings}
    for transfer in transfers(Network(made.run, effects, made.capture_ns, 1), 0.0, made.capture_ns):
        if not is_routed(transfer.op):
            continue
        (stage,) = transfer.numbers
        lanes, first = transfer.slices.lanes, stage * made.job.parallel.width
        for lane, size in enumerate(transfer.slices.sizes.sum(axis=0).tolist()):
            sender, receiver = int(lanes.sender[lane]), int(lanes.receiver[lane])
            members = np.array(made.job.parallel.members("ep", sender)) - first
            given, _ = splits(transfer.op, loads[stage, transfer.iteration], sender - first, members)
            width = transfer.op.bytes // transfer.op.rows
            assert size == pytest.approx(
                given[members.tolist().index(receiver - first)] * width, abs=2 * len(transfer.slices.sizes)
            )
            found += 1
    assert found > 100


def test_profilers_say_the_same_parts_as_recorders() -> None:
    made = case("none")
    for rank, (_, packed) in enumerate(kineto(made.run, made.places, made.capture_ns, options_of(made), steps=2)):
        events = json.loads(gzip.decompress(packed))["traceEvents"]
        calls = [each["args"] for each in events if each.get("args", {}).get("Collective name") == "all_to_allv"]
        assert calls
        for call in calls:
            parts = json.loads(call["In split size"]), json.loads(call["Out split size"])
            width = JOB.model.activation_bytes // 2 // 4096
            assert call["In msg nelems"] == sum(parts[0]) * width and call["Out msg nelems"] == sum(parts[1]) * width
            own = made.job.parallel.members("ep", rank).index(rank)
            assert parts[0][own] == parts[1][own], "what stays on a rank"


def test_tokens_are_whole_and_none_is_lost() -> None:
    load = np.exp(np.random.default_rng(1).normal(0, 0.5, JOB.parallel.width))
    found = whole(JOB.parallel, load, 4096) * 4096 / JOB.parallel.expert
    assert found == pytest.approx(np.rint(found), abs=1e-9)
    assert found.reshape(-1, 4, 1, 2).sum(axis=1) == pytest.approx(4096)


def test_stages_have_experts_of_their_own() -> None:
    recordings: dict[int, Any] = {each.stage: each for each in case("none").run.recordings if each.iteration == 3}
    op = next(op for op in recordings[0].ops if is_routed(op))
    assert not np.array_equal(recordings[0].loads[place_of(op)], recordings[1].loads[place_of(op)])


def test_more_tokens_for_some_experts_are_fewer_for_the_others_of_their_group() -> None:
    job = replace(JOB, model=replace(MODEL, routing_skew=0.0), parallel=replace(JOB.parallel, pipeline=1))
    made = simulate(job, [parse("expert-imbalance@rank2:3+before")], 4, iterations=3)
    for load in made.run.recordings[-1].loads.values():
        assert load == pytest.approx(np.repeat([2 / 3, 2.0, 2 / 3, 2 / 3], 2), rel=2e-3)
