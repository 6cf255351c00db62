"""Identities that hold for pipelines and rings whatever the numbers."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from forensics.fixtures.simulator.effects import HostDelay, KernelDelay
from forensics.fixtures.simulator.faults import parse
from forensics.fixtures.simulator.groups import create_groups
from forensics.fixtures.simulator.job import GB, MS, Parallelism, Schedule, TrainingJob
from forensics.fixtures.simulator.local import Local
from forensics.fixtures.simulator.physics import Deviation, Position
from forensics.fixtures.simulator.presets import PRESETS
from forensics.fixtures.simulator.program import Op, program
from forensics.fixtures.simulator.recording import Recording
from forensics.fixtures.simulator.routes import over_nic, own_ns
from forensics.fixtures.simulator.schedule import Slot, slots
from forensics.fixtures.simulator.simulation import simulate
from forensics.fixtures.simulator.standing import standing, standings
from tests.unit.simulator.small_jobs import DENSE, PIPELINE, quiet, run_with


@pytest.mark.parametrize("schedule", ["gpipe", "1f1b"])
@pytest.mark.parametrize(("stages", "microbatches"), [(2, 4), (4, 6), (4, 2)])
def test_makespan_of_a_pipeline_is_the_closed_form(schedule: Schedule, stages: int, microbatches: int) -> None:
    job = replace(PIPELINE, parallel=replace(PIPELINE.parallel, pipeline=stages), schedule=schedule, microbatches=microbatches)
    forward = job.model.forward_ns
    backward = forward * job.model.backward_ratio
    found = run_with(job, iterations=1)
    assert found.ends.max() == pytest.approx((microbatches + stages - 1) * (forward + backward), rel=1e-6)


def test_a_ring_moves_twice_the_bytes_but_one_share() -> None:
    op = Op("collective", "all_reduce", "backward", axis="dp", bytes=10**9)
    for size in (2, 4, 8):
        job = replace(DENSE, parallel=Parallelism(data=size), gpus_per_host=1, rates=replace(DENSE.rates, step_latency_ns=0.0))
        rates = np.full(size, GB), np.full(size, 10 * GB)
        assert own_ns(job, 0, op, *rates) == pytest.approx(np.full(size, 1e9 * 2 * (size - 1) / size))


def test_members_of_one_host_share_the_crossings_of_their_ring_among_their_nics() -> None:
    job = replace(DENSE, parallel=Parallelism(data=16), gpus_per_host=8, rates=replace(DENSE.rates, step_latency_ns=0.0))
    op = Op("collective", "all_reduce", "backward", axis="dp", bytes=10**9)
    volume, fast = 2 * 15 / 16 * 1e9, np.full(16, 1e30)
    assert own_ns(job, 0, op, np.full(16, GB), fast) == pytest.approx(np.full(16, volume / 8))
    assert own_ns(job, 0, op, fast, np.full(16, GB)) == pytest.approx(np.full(16, volume * 7 / 8))
    slow = np.where(np.arange(16) == 3, GB / 4, GB)
    assert own_ns(job, 0, op, slow, fast)[3] == pytest.approx(volume / 2)


def test_a_small_all_reduce_uses_the_nics_of_the_first_ranks_of_hosts_only() -> None:
    job = replace(DENSE, parallel=Parallelism(tensor=8, data=4), gpus_per_host=8)
    small = Op("collective", "all_reduce", "optimizer", axis="world", bytes=4)
    assert np.flatnonzero(over_nic(job, 0, small)).tolist() == [0, 8, 16, 24]
    assert not over_nic(job, 0, Op("collective", "all_reduce", "forward", axis="tp", bytes=10**9)).any()
    assert over_nic(job, 0, Op("collective", "all_reduce", "backward", axis="dp", bytes=10**9)).all()


def test_a_bubble_absorbs_a_delay() -> None:
    job = quiet(DENSE)
    last = job.parallel.pipeline - 1
    plain = run_with(job, iterations=1).ends.max()
    ops = program(job, 0, 0)
    waits = max(n for n, op in enumerate(ops) if op.kind == "kernel" and op.is_forward and op.microbatch == 1)
    in_bubble = KernelDelay(job, range(job.parallel.width), position=Position(0, 0, waits, ops[waits]), extra_ns=5 * MS)
    assert run_with(job, in_bubble, iterations=1).ends.max() == pytest.approx(plain, rel=0.02)
    ops = program(job, last, 0)
    first = next(n for n, op in enumerate(ops) if op.kind == "kernel")
    ranks = range(job.parallel.width, job.parallel.world)
    on_path = KernelDelay(job, ranks, position=Position(last, 0, first, ops[first]), extra_ns=50 * MS)
    assert run_with(job, on_path, iterations=1).ends.max() == pytest.approx(plain + 50 * MS, rel=0.02)


def test_a_host_that_stops_freezes_those_who_need_it_and_nobody_else_at_once() -> None:
    job = quiet(DENSE)
    rank = 3
    ops = program(job, 0, 1)
    number = next(n for n, op in enumerate(ops) if op.axis == "tp" and op.is_forward and op.microbatch == 2)
    found = run_with(job, HostDelay(job, (rank,), position=Position(0, 1, number, ops[number])))
    (column,) = [column for iteration, column in found.of_rank(rank) if iteration == 1]
    assert np.isfinite(column.issued[:number]).all() and np.isinf(column.issued[number:]).all()
    stuck = {
        other
        for other in range(job.parallel.width)
        for iteration, seen in found.of_rank(other)
        if iteration == 1 and np.isfinite(seen.issued[number]) and np.isinf(seen.ended[number])
    }
    assert stuck == set(job.parallel.members("tp", rank)) - {rank}
    assert found.hung and len(found.ends) == 2


def test_an_unfinished_message_has_no_end_on_either_side() -> None:
    job = quiet(DENSE)
    ops = program(job, 1, 0)
    number = next(n for n, op in enumerate(ops) if op.kind == "recv")
    rank = job.parallel.rank(1, 0)
    found = run_with(job, HostDelay(job, (rank,), position=Position(1, 0, number, ops[number])))
    (_, sender), *_ = found.of_rank(0)
    send = next(n for n, op in enumerate(sender.ops) if op.kind == "send")
    assert np.isfinite(sender.issued[send]) and np.isinf(sender.ended[send])


@pytest.mark.parametrize(("size", "held"), [(8 << 20, False), (64 << 20, True)])
def test_a_message_that_fits_into_no_buffers_holds_up_its_sender_until_the_receiver_takes_it(size: int, held: bool) -> None:
    """NCCL's kernel of a send ends when the receiver's buffers took the data: eight slices a channel, 16 MB on two."""
    job = quiet(replace(DENSE, model=replace(DENSE.model, activation_bytes=size)))
    ops, first = program(job, 1, 0), program(job, 0, 0)
    number = next(n for n, op in enumerate(ops) if op.kind == "recv")
    send = next(n for n, op in enumerate(first) if op.kind == "send")
    after = next(n for n, op in enumerate(first) if op.kind == "kernel" and n > send)
    late = HostDelay(job, (job.parallel.rank(1, 0),), position=Position(1, 0, number, ops[number]), extra_ns=1e9)
    plain, found = (run_with(job, *faults, iterations=1).recordings[0].began[after, 0] for faults in ((), (late,)))
    assert (found - plain > 0.8e9) == held


@pytest.mark.parametrize("schedule", ["gpipe", "1f1b", "interleaved", "zero-bubble"])
@pytest.mark.parametrize("pipeline", [2, 4, 8])
@pytest.mark.first(4)
def test_large_messages_never_let_a_schedule_wait_for_itself(schedule: Schedule, pipeline: int) -> None:
    model = replace(DENSE.model, activation_bytes=64 << 20, layers=2 * pipeline)
    for microbatches in (pipeline, 2 * pipeline):
        job = replace(
            DENSE, parallel=Parallelism(pipeline=pipeline, data=2), model=model, microbatches=microbatches, schedule=schedule,
            chunks=2 if schedule == "interleaved" else 1, evaluate_every=1, gpus_per_host=2,
        )  # fmt: skip
        assert np.isfinite(run_with(job, iterations=2).ends).all()


@pytest.mark.parametrize("name", ["ddp-8", "llama-interleaved", "fsdp-64", "venustrace"])
@pytest.mark.first(2)
def test_following_every_rank_gives_the_same_times(name: str) -> None:
    job = quiet(PRESETS[name])
    job = replace(job, gpus_per_host=job.parallel.world)  # operations share NICs only where stages are followed together
    job = replace(job, microbatches=min(job.microbatches, 4), model=replace(job.model, layers=8))
    together = run_with(job, iterations=2)
    each = run_with(job, deviations=(Deviation(1, 1, list),), iterations=2)
    assert np.allclose(together.ends, each.ends, rtol=1e-9)
    for one, other in zip(together.recordings, each.recordings, strict=True):
        assert np.allclose(one.ended, other.ended, rtol=1e-9)


def test_a_skipped_call_shifts_the_later_ones_of_its_group() -> None:
    job = quiet(DENSE)
    ops = program(job, 0, 1)
    number = next(n for n, op in enumerate(ops) if op.axis == "tp" and op.is_forward and op.microbatch == 1)
    left_out = Deviation(3, 1, lambda common: [op for at, op in enumerate(common) if at != number])
    found = run_with(job, deviations=(left_out,))
    (own,) = [column for iteration, column in found.of_rank(3) if iteration == 1]
    assert found.hung and len(own.ops) == len(ops) - 1
    peer = next(column for iteration, column in found.of_rank(2) if iteration == 1)
    assert np.isfinite(peer.ended[number]), "the next call of the odd rank answers: it has the same kind and size"
    assert np.isinf(found.ends[-1]).all()


def test_hosts_stand_where_their_calls_say() -> None:
    found = run_with(DENSE)
    for at in np.linspace(0.05, 0.98, 9) * found.ends.max():
        everyone = standings(found, at)
        assert everyone == [standing(found, rank, at) for rank in range(DENSE.parallel.world)]
        for rank, here in enumerate(everyone):
            if here.op is None:
                continue
            column = dict(found.of_rank(rank))[here.iteration]
            assert column.ops[here.number] is here.op
            through = column.ended if here.op.kind in ("host", "sync") else column.issued
            assert through[here.number] > at


def test_members_leave_a_collective_one_after_the_other() -> None:
    found = run_with(DENSE)
    spreads = []
    for recording in found.recordings:
        for number, op in enumerate(recording.ops):
            if op.kind == "collective" and op.axis == "tp":
                spreads += np.ptp(recording.ended[number].reshape(-1, DENSE.parallel.tensor), axis=1).tolist()
    assert 0 < np.median(spreads) < 50_000
    assert len(set(spreads)) > 0.9 * len(spreads)


def test_a_reduction_takes_as_long_when_one_replica_comes_late_to_it() -> None:
    """Messages of the other replicas, long before all are there, take nothing from its NICs."""
    model = replace(PRESETS["venustrace"].model, layers=16)
    job = quiet(replace(PRESETS["venustrace"], model=model, parallel=Parallelism(tensor=4, pipeline=4, data=4)))
    slot = next(n for n, op in enumerate(program(job, 3, 1)) if op.kind == "kernel" and op.stage == "backward")
    late = KernelDelay(job, (59,), position=Position(3, 1, slot, program(job, 3, 1)[slot]), extra_ns=20_000 * MS)
    took = [[_reduction_ns(job, recording) for recording in run_with(job, *each).recordings] for each in ((), (late,))]
    assert np.max(took[1]) <= 2 * np.max(took[0])


def _reduction_ns(job: TrainingJob, recording: Recording) -> float:
    """The longest time from the last arrival at a reduction behind the computation to its end."""
    numbers = [n for n, op in enumerate(recording.ops) if op.axis == "dp"]
    there = [job.parallel.group_max(recording.began[n], "dp") for n in numbers]
    return float(max((recording.ended[n] - met).max() for n, met in zip(numbers, there, strict=True)))


def test_a_zero_bubble_schedule_leaves_less_waiting_with_the_same_work() -> None:
    """ZB-H1: the bubble is (stages - 1) times forward, plus gradients of inputs, less those of weights (Qi et al., table 2)."""
    stages, microbatches = 4, 8
    job = replace(PIPELINE, microbatches=microbatches, parallel=replace(PIPELINE.parallel, pipeline=stages))
    flat = replace(job, schedule="zero-bubble")
    for stage in range(stages):
        work = [sum(op.work_ns for op in program(each, stage, 0)) for each in (job, flat)]
        assert work[0] == pytest.approx(work[1])
        order = slots(flat, stage)
        assert len(order) == len(set(order)) == 3 * microbatches
        for microbatch in range(microbatches):
            passes = [Slot(True, microbatch, 0), Slot(False, microbatch, 0), Slot(False, microbatch, 0, weights=True)]
            assert sorted(order.index(one) for one in passes) == [order.index(one) for one in passes]
    forward = job.model.forward_ns
    part = forward * job.model.backward_ratio / 2
    ends = run_with(flat, iterations=1).ends.max()
    assert ends == pytest.approx(microbatches * (forward + 2 * part) + (stages - 1) * (forward + part - part), rel=1e-6)
    assert ends < run_with(job, iterations=1).ends.max()


def test_hybrid_shards_gather_inside_and_reduce_across() -> None:
    job = quiet(replace(PRESETS["fsdp-64"], parallel=Parallelism(data=16, shard=8), data_mode="hsdp", gpus_per_host=8))
    ops = program(replace(job, model=replace(job.model, layers=4)), 0, 0)
    calls = {(op.name, op.axis) for op in ops if op.kind == "collective" and op.layer is not None}
    assert calls == {("all_gather", "shard"), ("reduce_scatter", "shard"), ("all_reduce", "replica")}
    assert job.parallel.members("shard", 9) == tuple(range(8, 16)) and job.parallel.members("replica", 9) == (1, 9)
    gather = next(op for op in ops if op.name == "all_gather")
    assert not over_nic(job, 0, gather).any(), "parameters stay inside the host"
    names = {group.axis: group.description for group in create_groups(job, "mesh")}
    assert names == {"world": "default_pg", "shard": "mesh_dp_shard", "replica": "mesh_dp_replicate"}


def test_a_shared_expert_hides_a_part_of_the_travel() -> None:
    job = quiet(PRESETS["mixtral-8x7b"])
    job = replace(job, model=replace(job.model, layers=4, routing_skew=0.0), microbatches=2)
    plain, overlapped = (run_with(replace(job, overlap_experts=flag), iterations=1).ends.max() for flag in (False, True))
    assert plain * 0.8 < overlapped < plain


@pytest.mark.parametrize(("name", "fault", "ahead"), [
    ("gpipe-small", "cpu-contention@random", 16), ("ddp-8", "pcie-gpu@random", 512), ("venustrace", "gpu-throttled@random", 64),
    ("hsdp-64", "none", 512), ("mycroft", "host-delay@random", 512), ("ddp-8", "kernel-hang@random", 16),
])  # fmt: skip
def test_operations_worked_out_together_have_the_times_that_each_has_alone(
    name: str, fault: str, ahead: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    preset = PRESETS[name]
    model = replace(preset.model, layers=preset.parallel.pipeline * preset.chunks * 2)
    job = replace(preset, ahead=ahead, model=model, microbatches=min(preset.microbatches, 4))
    wanted = [] if fault == "none" else [parse(fault)]
    together = simulate(job, wanted, 5, iterations=4).run
    monkeypatch.setattr(Local, "until", lambda _, stage: stage.at)
    alone = simulate(job, wanted, 5, iterations=4).run
    for one, other in zip(together.recordings, alone.recordings, strict=True):
        for times in ("issued", "began", "ended"):
            assert np.array_equal(getattr(one, times), getattr(other, times)), (one.stage, one.iteration, times)
