"""Standalone collectives of Pulse D.10 to D.12, and a machine whose cores are taken away (7.2.2): what moves, and who waits."""

from __future__ import annotations

from dataclasses import replace
from functools import cache

import numpy as np
import pytest

from forensics.fixtures.simulator.bundle import options_of
from forensics.fixtures.simulator.effects import NicFactor
from forensics.fixtures.simulator.faults import parse
from forensics.fixtures.simulator.network import Network
from forensics.fixtures.simulator.physics import GOODPUT
from forensics.fixtures.simulator.presets import PRESETS
from forensics.fixtures.simulator.simulation import Simulation, makespans, simulate
from forensics.fixtures.simulator.transfers import transfers
from forensics.fixtures.simulator.wiring import pairs
from forensics.fixtures.simulator.writers.shim_log import shim_log
from tests.unit.ingest.reading import read
from tests.unit.simulator.small_jobs import DENSE, quiet, run_with
from tests.unit.simulator.wires import MB, at, job_of, run_ring

NAMES = ("neighbour-exchange", "all-to-one", "one-to-all")
BYTES = 64 * MB


@cache
def case(name: str, fault: str = "none") -> Simulation:
    job = PRESETS[name]
    job = replace(job, model=replace(job.model, activation_bytes=BYTES), microbatches=4)
    made = simulate(job, [parse(fault)], 3, iterations=4)
    return made if made.hung else replace(made, capture_ns=float(made.run.ends[-1].min()) - 1.0)


@pytest.mark.parametrize(
    ("name", "messages"),
    [
        ("neighbour_exchange", {(0, 1), (0, 2), (1, 0), (1, 3), (2, 0), (2, 3), (3, 1), (3, 2)}),
        ("gather", {(1, 0), (2, 0), (3, 0)}),
        ("scatter", {(0, 1), (0, 2), (0, 3)}),
    ],
)
def test_who_sends_to_whom(name: str, messages: set[tuple[int, int]]) -> None:
    senders, receivers = pairs(name, 4)
    assert set(zip(senders.tolist(), receivers.tolist(), strict=True)) == messages


@pytest.mark.parametrize("name", NAMES)
def test_each_message_moves_its_bytes_at_the_share_of_the_busiest_end(name: str) -> None:
    made = case(name)
    (transfer, *_) = transfers(Network(made.run, (), made.capture_ns, 1), 0.0, made.capture_ns)
    sent = transfer.slices.sizes.sum(axis=0)
    busiest = max(np.bincount(ranks).max() for ranks in (transfer.slices.lanes.sender, transfer.slices.lanes.receiver))
    assert sent == pytest.approx(np.full(len(transfer.slices.lanes), BYTES), rel=1e-4)
    assert transfer.end - transfer.begin == pytest.approx(busiest * BYTES / (GOODPUT * made.job.rates.nic) * 1e9, rel=0.15)


@pytest.mark.parametrize("name", NAMES)
def test_calls_of_the_two_ends_of_a_message_have_the_same_number(name: str) -> None:
    made = case(name)
    sent: set[tuple[int, ...]] = set()
    got: set[tuple[int, ...]] = set()
    for rank, (path, content) in enumerate(shim_log(made.run, made.places, made.capture_ns, options_of(made))):
        found = read(content, path)
        assert found.problems == []
        for row in found.rows("operations"):
            ends = (rank, row["peer"]) if row["kind"] == "send" else (row["peer"], rank)
            (sent if row["kind"] == "send" else got).add((*ends, row["pair_number"], row["bytes"]))
        flows = {(row["sequence"], row["peer"], row["direction"]) for row in found.rows("flows")}
        stated = {(row["sequence"], row["peer"], row["kind"]) for row in found.rows("operations")}
        assert flows and flows <= stated
    assert sent and len(sent ^ got) <= 16


def test_only_messages_of_a_rank_whose_nic_is_down_stay_undone() -> None:
    for name, stuck in (("neighbour-exchange", {0, 1, 3}), ("all-to-one", {0, 1}), ("one-to-all", {0, 1})):
        made = case(name, "nic-down@rank1")
        assert made.hung
        last = next(recording for recording in made.run.recordings if np.isinf(recording.ended).any())
        first = int(np.isinf(last.ended).any(axis=1).argmax())
        assert set(np.flatnonzero(np.isinf(last.ended[first])).tolist()) == stuck


def test_incast_hides_a_slow_sender_until_its_nic_gives_less_than_its_share() -> None:
    spans = {level: makespans(case("all-to-one", f"pcie-nic@rank1:{level}+before").run)[-1] for level in (70, 20)}
    healthy = makespans(case("all-to-one").run)[-1]
    assert spans[70] == pytest.approx(healthy, rel=0.05) and spans[20] == pytest.approx(healthy * 5 / 3, rel=0.15)


@pytest.mark.parametrize("away", [0.3, 0.5])
def test_a_proxy_without_a_core_makes_gaps_and_leaves_the_time_in_which_data_moves_as_it_is(away: float) -> None:
    healthy, slices = (run_ring(job_of(4), "reduce_scatter", 2048 * MB, away=at(4, 1, share)) for share in (0.0, away))
    assert slices.last().max() == pytest.approx(healthy.last().max() / (1 - away), rel=0.08)
    busy, usual = (np.bincount(s.lanes.sender, (s.moved - s.moving).sum(axis=0)) for s in (slices, healthy))
    assert busy == pytest.approx(usual, rel=0.01)
    assert (slices.moving[1:] - slices.moved[:-1]).max() > 3e6


def test_a_machine_with_busy_cores_lengthens_the_reductions_of_its_groups_only() -> None:
    job = replace(DENSE, gpus_per_host=8, data_mode="zero1", parallel=replace(DENSE.parallel, tensor=8, pipeline=1, data=4))
    made = {fault: simulate(job, [parse(fault)], 2, iterations=5) for fault in ("none", "cpu-contention@node1:100+before")}
    took = {}
    for fault, each in made.items():
        recording = each.run.recordings[-1]
        number = next(n for n, op in enumerate(recording.ops) if op.axis == "dp")
        took[fault] = float((recording.ended - recording.began)[number].min())
    assert took["cpu-contention@node1:100+before"] > 1.7 * took["none"]


def test_a_slow_nic_costs_only_what_crosses_hosts_there() -> None:
    job = replace(
        quiet(DENSE), gpus_per_host=8, data_mode="zero1", parallel=replace(DENSE.parallel, tensor=4, pipeline=1, data=4)
    )
    slow = NicFactor(job, (5,), draw=lambda count, random: np.full(count, 0.25))
    plain, found = run_with(job, iterations=1), run_with(job, slow, iterations=1)
    for number, op in enumerate(plain.recordings[0].ops):
        took = [(run.recordings[0].ended - run.recordings[0].began)[number] for run in (plain, found)]
        if op.axis == "dp":
            members = job.parallel.members("dp", 5)
            assert took[1][list(members)].max() > 3 * took[0][list(members)].max()
            others = [rank for rank in range(16) if rank not in members and rank not in job.parallel.members("tp", 5)]
            assert took[1][others].min() == pytest.approx(took[0][others].min(), rel=0.1)
            return
    raise AssertionError("no reduction")
