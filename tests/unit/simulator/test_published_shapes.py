"""Shapes that the papers show of whole jobs: if they do not come out, the simulator is wrong."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from forensics.fixtures.simulator.effects import KernelDelay, NicDown, TransferDelay
from forensics.fixtures.simulator.faults import parse
from forensics.fixtures.simulator.job import MS
from forensics.fixtures.simulator.losses import Losses
from forensics.fixtures.simulator.network import Network
from forensics.fixtures.simulator.physics import Position
from forensics.fixtures.simulator.presets import PRESETS
from forensics.fixtures.simulator.program import program
from forensics.fixtures.simulator.simulation import simulate
from forensics.fixtures.simulator.slices import Slices
from forensics.fixtures.simulator.transfers import transfers
from forensics.fixtures.simulator.truth import truth
from tests.unit.simulator.lower_runs import JOB, case
from tests.unit.simulator.small_jobs import PIPELINE, quiet, run_with


def cost(stage: int, number: int, delay_ms: float) -> float:
    """ms by which one delayed kernel makes an iteration longer."""
    ops = program(PIPELINE, stage, 0)
    late = KernelDelay(PIPELINE, (stage,), position=Position(stage, 0, number, ops[number]), extra_ns=delay_ms * MS)
    plain, found = run_with(PIPELINE, iterations=1), run_with(PIPELINE, late, iterations=1)
    return float(found.ends.max() - plain.ends.max()) / MS


@pytest.mark.slow
def test_bubbles_absorb_delays_up_to_the_slack_of_their_position() -> None:
    """VenusTrace figure 13: at some positions a delay costs nothing until it is long, at others all of it at once."""
    slacks = []
    for stage in range(PIPELINE.parallel.pipeline):
        kernels = [n for n, op in enumerate(program(PIPELINE, stage, 0)) if op.kind == "kernel" and op.stage != "optimizer"]
        for number in kernels[:: max(len(kernels) // 5, 1)]:
            slack = 1_000.0 - cost(stage, number, 1_000.0)
            slacks.append(slack)
            for delay in (1.0, 8.0, 30.0, 90.0):
                assert cost(stage, number, delay) == pytest.approx(max(delay - slack, 0.0), abs=1e-6)
    assert min(slacks) == pytest.approx(0.0, abs=1e-6) and max(slacks) >= 30.0


def test_nic_shutdown_stops_its_group_and_the_others_reduce_normally_and_wait_at_the_next_step() -> None:
    """Mycroft figure 7 (a): machines 1 and 2 are the first pipeline stage, 3 and 4 the second."""
    job = quiet(PRESETS["mycroft"])
    job = replace(job, model=replace(job.model, layers=4), microbatches=2, data_mode="zero1")
    plain = run_with(job, iterations=2)
    stage0 = next(each for each in plain.recordings if (each.stage, each.iteration) == (0, 1))
    scatter = next(n for n, op in enumerate(stage0.ops) if op.name == "reduce_scatter")
    found = run_with(job, NicDown(job, (1,), at_ns=float(stage0.began[scatter, 1])), iterations=3)
    first, second = (next(r for r in found.recordings if (r.stage, r.iteration) == (stage, 1)) for stage in (0, 1))
    stuck = set(np.flatnonzero(np.isinf(first.ended[scatter])).tolist())
    assert stuck == set(job.parallel.members("dp", 1)) == {1, 9}
    assert np.isfinite(first.began[scatter]).all()
    there = next(n for n, op in enumerate(second.ops) if op.name == "reduce_scatter" and op.axis == "dp")
    assert np.isfinite(second.ended[there]).all()
    for recording in (first, second):
        norm = next(n for n, op in enumerate(recording.ops) if op.axis == "world")
        assert np.isinf(recording.ended[norm]).all()
    assert found.hung


@pytest.mark.parametrize(
    ("fault", "seed"),
    [
        ("nic-down@rank2", 1),
        ("nic-down@rank2", 2),
        ("nic-down@rank7", 3),
        ("transmission-hang@rank2/optimizer", 1),
        ("transmission-hang@rank2/forward", 1),
    ],
)
def test_the_mechanism_of_the_truth_is_what_the_stages_of_stuck_flows_show(fault: str, seed: int) -> None:
    """Mycroft table 4: ready > transmitted is not transmitted, transmitted > done is not delivered."""
    made, _ = case(fault, seed)
    network, end = Network(made.run, made.effects, made.capture_ns, 1), made.capture_ns
    (rank,) = made.injections[0].ranks
    states = {
        state for transfer in transfers(network, made.stall_ns - 1.0, end) for state in stuck_states(transfer.slices, rank)
    }
    (stated,) = truth(made, Losses())["faults"]
    assert states == {stated["mechanism"]["state"]}


def test_a_receiver_that_never_asks_leaves_its_message_filled_and_not_transmitted() -> None:
    number, op = next((n, op) for n, op in enumerate(program(JOB, 1, 0)) if op.kind == "recv")
    never = TransferDelay(JOB, (6,), position=Position(1, 2, number, op))
    found = run_with(JOB, never, iterations=4)
    assert found.hung
    end = float(found.ends[1].max())
    all_states = [
        stuck_states(transfer.slices, 6) for transfer in transfers(Network(found, [never], end + 1e12, 1), end, end + 1e12)
    ]
    assert {"not_transmitted"} in all_states and {"not_delivered"} not in all_states


@pytest.mark.parametrize(
    ("fault", "state"),
    [
        ("nic-slow@rank2:25", "not_transmitted"),
        ("background-traffic@link:node0-node1:25", "not_delivered"),
        ("pcie-gpu@rank2:25", "even"),
    ],
)
def test_slow_flows_show_the_state_of_their_cause(fault: str, state: str) -> None:
    """Mycroft 7.1, cases 2, 6 and 3, in how long slices of reductions wait, beside how long they move."""
    job = replace(JOB, model=replace(JOB.model, parameter_bytes=1 << 30))
    made = simulate(job, [parse(fault)], 3, iterations=4)
    end, ranks = float(made.run.ends[-1].min()), made.injections[0].ranks
    network = Network(made.run, made.effects, end, 1)
    filled, flying = [], []
    for transfer in transfers(network, end - 0.2e9, end):
        lanes, slices = transfer.slices.lanes, transfer.slices
        mine = np.isin(lanes.sender, ranks) & lanes.remote
        if transfer.algorithm == "ring" and transfer.axis == "dp" and mine.any():
            took = (slices.moved - slices.moving)[:, mine]
            filled.append(((slices.transmitted - slices.ready)[:, mine] / took).mean())
            flying.append(((slices.moved - slices.transmitted)[:, mine] / took).mean())
    shown = "not_transmitted" if np.mean(filled) > 0.5 else "not_delivered" if np.mean(flying) > 2.0 else "even"
    assert shown == state, (filled, flying)


def stuck_states(slices: Slices, rank: int) -> set[str]:
    """States of the lanes between a rank and others, over NICs, that did not get through."""
    lanes, found = slices.lanes, set()
    for lane in np.flatnonzero(((lanes.sender == rank) | (lanes.receiver == rank)) & lanes.remote).tolist():
        ready, sent, done = (
            int(np.isfinite(times[:, lane]).sum()) for times in (slices.ready, slices.transmitted, slices.done)
        )
        if sent > done:
            found.add("not_delivered")
        elif ready > sent == 0:
            found.add("not_transmitted")
    return found
