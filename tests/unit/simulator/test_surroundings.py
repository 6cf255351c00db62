"""Sound jobs are not clean, and nothing that is odd about them knows of a fault."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping
from dataclasses import replace
from functools import cache

import numpy as np
import pytest

from forensics.fixtures.simulator import bundle, lasting, losses
from forensics.fixtures.simulator.faults import parse
from forensics.fixtures.simulator.job import MS, NO_NOISE, Model, Noise, Parallelism, TrainingJob
from forensics.fixtures.simulator.presets import PRESETS
from forensics.fixtures.simulator.program import program
from forensics.fixtures.simulator.simulation import simulate
from forensics.fixtures.simulator.surroundings import ODDITIES, OF_HOSTS, surroundings
from tests.unit.simulator.small_jobs import DENSE, quiet, run_with

SEEDS = 32
FAULTS = ("none", "kernel-hang", "nic-slow", "gpu-throttled")
SMALL = TrainingJob("small", Parallelism(data=8), Model(2, 4 * MS, 1 << 20, 64 << 20), microbatches=1, gpus_per_host=4)
SIGNS = ("power limits", "idle processes", "replays", "corrected errors", "kernel lines", "no look", "marks")


@cache
def signs(fault: str) -> Mapping[str, int]:
    """How often each oddity shows in bundles with a fault, or with none."""
    found: Counter[str] = Counter()
    for seed in range(SEEDS):
        made = simulate(SMALL, [parse(fault)], seed, iterations=4)
        kept = losses.drawn(8, made.random("losses"))
        found += shown(dict(bundle.members(made, bundle.options_of(made), kept)))
    return found


def shown(members: Mapping[str, bytes]) -> Counter[str]:
    smi = [content.decode() for path, content in members.items() if path.endswith("smi.xml")]
    found = Counter({
        "idle processes": sum(text.count("<process_info>") for text in smi) - 8,
        "replays": sum(text.count("<replay_counter>") - text.count("<replay_counter>0<") for text in smi),
        "corrected errors": sum(text.count("<dram_correctable>") - text.count("<dram_correctable>0<") for text in smi),
        "power limits": sum(text.count("<current_power_limit>6") for text in smi),
        "no look": sum(f"ranks/{rank}/stacks/{number}.json" not in members for rank in range(8) for number in range(3)),
        "kernel lines": sum(text.count(b"\n") > 25 for path, text in members.items() if path.endswith("dmesg.txt")),
    })  # fmt: skip
    marks = np.array([marked(members, number) for number in (0, 1)])
    return found + Counter({"marks": int((np.diff(marks, axis=0) > 3).sum())})


def marked(members: Mapping[str, bytes], number: int) -> list[int]:
    documents = [json.loads(text) for path, text in members.items() if path.endswith(f"counters-{number}.json")]
    ports = [nic["ports"]["1"]["hw_counters"] for document in documents for nic in document["devices"].values()]
    return [port["np_ecn_marked_roce_packets"] for port in ports]


@pytest.mark.parametrize("fault", FAULTS[1:])
@pytest.mark.slow
def test_machines_are_as_odd_without_a_fault_as_with_one(fault: str) -> None:
    sound, faulty = signs("none"), signs(fault)
    for name in SIGNS if fault != "kernel-hang" else set(SIGNS) - {"marks"}:
        assert sound[name] > 0, name
        assert abs(sound[name] - faulty[name]) <= 2 + 0.2 * sound[name], name


def test_surroundings_are_those_of_the_seed_whatever_the_fault() -> None:
    for seed in range(6):
        found = [surroundings(simulate(SMALL, [parse(fault)], seed, iterations=3).job) for fault in FAULTS]
        assert found == [found[0]] * len(FAULTS)
    assert surroundings(replace(SMALL, seed=1)) != surroundings(replace(SMALL, seed=2))


def test_every_oddity_occurs_and_none_does_without_noise() -> None:
    counts = Counter[str]()
    for seed in range(20):
        counts += Counter(surroundings(replace(PRESETS["mycroft"], seed=seed)).count())
        assert sum(surroundings(replace(PRESETS["mycroft"], seed=seed, noise=NO_NOISE)).count().values()) == 0
    assert set(counts) == {*ODDITIES, *OF_HOSTS, "bursts", "dropped", "late"}
    assert all(20 * 32 * 0.5 * oddity.chance < counts[name] < 20 * 32 * 2 * oddity.chance for name, oddity in ODDITIES.items())


def test_a_narrow_link_is_odd_only_where_the_nic_needs_no_more() -> None:
    slow, fast = (replace(PRESETS["mycroft"], rates=replace(PRESETS["mycroft"].rates, nic=rate)) for rate in (12.5e9, 50e9))
    assert any(surroundings(replace(slow, seed=seed)).odd["narrow link"] for seed in range(9))
    assert not any(surroundings(replace(fast, seed=seed)).odd["narrow link"] for seed in range(9))


def test_nodes_differ_by_some_per_cent() -> None:
    job = replace(PRESETS["fsdp-64"], noise=Noise(rank_spread=0.0, oddities=0.0))
    spreads = []
    for seed in range(60):
        speeds = lasting.kernel_factors(replace(job, seed=seed), 0).reshape(8, 8)
        assert np.ptp(speeds, axis=1) == pytest.approx(np.zeros(8))
        spreads.append(float(np.ptp(speeds) / speeds.min()))
    assert np.quantile(spreads, 0.1) > 0.02 and np.quantile(spreads, 0.9) < 0.07


def test_first_iterations_of_a_job_are_slow_and_those_of_a_running_one_are_not() -> None:
    cold = replace(DENSE, noise=replace(NO_NOISE, warmup=1.5), first_step=0)
    first, second, *_, last = np.diff(run_with(cold, iterations=8).ends.max(axis=1), prepend=0.0)
    assert first > 1.5 * last and second > 1.02 * last
    warm = np.diff(run_with(replace(cold, first_step=70), iterations=3).ends.max(axis=1), prepend=0.0)
    assert warm == pytest.approx(last, rel=0.01)


def test_members_of_a_tensor_parallel_group_work_on_the_same_documents() -> None:
    job = replace(DENSE, noise=replace(NO_NOISE, documents=0.2))
    found = [lasting.document_factors(job, iteration, microbatch) for iteration in range(50) for microbatch in range(4)]
    groups = np.array(found).reshape(-1, job.parallel.data, job.parallel.tensor)
    assert (groups[:, :, 0] == groups[:, :, 1]).all()
    assert len(np.unique(groups[:, :, 0])) == groups[:, :, 0].size
    assert groups.mean() == pytest.approx(1.0, abs=0.02)


def test_the_last_stage_has_the_head_and_the_first_one_the_embedding() -> None:
    work = [sum(op.work_ns for op in program(DENSE, stage, 0) if op.stage == "forward") for stage in range(2)]
    usual = DENSE.microbatches * DENSE.model.forward_ns
    assert work == pytest.approx([usual * 1.02, usual * 1.08])
    alone = replace(DENSE, parallel=replace(DENSE.parallel, pipeline=1))
    assert sum(op.work_ns for op in program(alone, 0, 0) if op.stage == "forward") == pytest.approx(usual)


def test_an_evaluation_passes_forward_only() -> None:
    job = quiet(replace(DENSE, evaluate_every=2, evaluate_microbatches=3))
    assert not [op for op in program(job, 1, 0) if op.stage == "eval"]
    ops = [op for op in program(job, 1, 1) if op.stage == "eval"]
    assert {op.microbatch for op in ops if op.kind == "kernel"} == {4, 5, 6}
    assert sum(op.work_ns for op in ops if op.kind == "kernel") == pytest.approx(3 * 1.08 * job.model.forward_ns)
    spans = np.diff(run_with(job, iterations=4).ends.max(axis=1), prepend=0.0)
    assert spans[1::2].min() > spans[::2].max() + 2 * job.model.forward_ns


def test_the_first_rank_writes_the_logs() -> None:
    job = replace(DENSE, noise=replace(NO_NOISE, logging=1.0))
    assert len({lasting.first_rank_factor(replace(job, seed=seed)) for seed in range(5)}) == 5
    recording = run_with(job, iterations=1).recordings[0]
    number = next(n for n, op in enumerate(recording.ops) if op.name == "callbacks")
    took = recording.ended[number] - recording.issued[number]
    assert took[0] == pytest.approx(took[1] * lasting.first_rank_factor(job)) and np.ptp(took[1:]) < 1.0


def test_other_work_on_the_cores_shows_in_their_pressure_and_a_lower_clock_in_their_clocks() -> None:
    job = replace(DENSE, noise=replace(DENSE.noise, oddities=0.0))
    for fault, busy, slow in (("none", False, False), ("cpu-contention", True, False), ("cpu-throttling", False, True)):
        made = simulate(job, [parse(f"{fault}@node1+before" if fault != "none" else fault)], 4, iterations=5)
        kept = losses.drawn(16, made.random("losses"), only=("processes",))
        members = dict(bundle.members(made, bundle.options_of(made), kept))
        nodes = [json.loads(members[f"nodes/{host.name}/node.json"])["cpu"] for host in made.places.hosts]
        assert [node["pressure"]["cpu"]["some"]["avg10"] > 20 for node in nodes] == [False, busy, False, False]
        assert [node["mhz"]["median"] < 1_500 for node in nodes] == [False, slow, False, False]
