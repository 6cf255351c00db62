"""What slices must show: volumes, credits, order of the stages, and the gaps of Pulse 2.3 and 6.1."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest

from forensics.fixtures.simulator.lanes import DATA
from forensics.fixtures.simulator.ring import CHUNK_SLICES, ring_plan
from forensics.fixtures.simulator.slices import CREDITS, SLICE_BYTES, TIMES, Slices
from forensics.fixtures.simulator.tree import parents
from tests.unit.simulator.wires import MB, at, gaps, job_of, run_message, run_ring, run_tree, sent

SIZE = 256 * MB
US = 1e3
SLICE_US = SLICE_BYTES / 25e9 * 1e6
"""A slice on one of two channels of a 400 Gb/s NIC: the 40 us of Pulse 6.1."""


def healthy_and_broken() -> list[Slices]:
    job = job_of(4)
    return [
        run_ring(job, "all_reduce", SIZE),
        run_ring(job, "reduce_scatter", SIZE, nic=at(4, 1, 12e9, 50e9), began=at(4, 2, 4e6)),
        run_ring(job, "all_gather", SIZE, nic_stop=at(4, 1, 2e6, np.inf)),
        run_ring(job_of(8, 4), "all_reduce", SIZE, slowness=at(8, 5, 2.0, 1.0)),
        run_tree(job_of(8, 2), 3 * MB, began=at(8, 3, 1e6)),
        run_message(job_of(2), 64 * MB, began=at(2, 1, 3e6)),
        run_ring(job, "all_reduce", SIZE, proxy_stop=at(4, 3, 2e6, np.inf), gpu_stop=at(4, 0, 3e6, np.inf)),
    ]


@pytest.mark.parametrize("slices", healthy_and_broken())
def test_stages_follow_one_another_and_slices_keep_their_order(slices: Slices) -> None:
    for order in (
        ("posted", "ready", "transmitted", "moving", "moved", "done"),
        ("offered", "received", "flushed", "consumed"),
    ):
        for before, after in pairwise(order):
            assert (getattr(slices, before) <= getattr(slices, after)).all(), (before, after)
    assert (slices.moved <= slices.received).all()
    for stage in TIMES:
        times = getattr(slices, stage)
        ordered = times if stage in ("moving", "moved", "ready", "consumed") else np.maximum.accumulate(times)
        assert (ordered[1:] >= ordered[:-1]).all(), stage


@pytest.mark.parametrize("slices", healthy_and_broken())
def test_no_more_than_eight_credits_are_out(slices: Slices) -> None:
    for produced, freed in ((slices.transmitted, slices.consumed), (slices.ready, slices.done)):
        assert (produced[CREDITS:] >= freed[:-CREDITS]).all()


@pytest.mark.parametrize("name, share", [("all_reduce", 2.0), ("reduce_scatter", 1.0), ("all_gather", 1.0)])
@pytest.mark.parametrize("members", [2, 3, 8])
def test_every_rank_of_a_ring_sends_the_volume_of_appendix_b(name: str, share: float, members: int) -> None:
    slices = run_ring(job_of(members), name, SIZE)
    expected = share * (members - 1) / members * SIZE
    assert sent(slices) == pytest.approx(np.full(members, expected), rel=1e-5)
    received = np.bincount(slices.lanes.receiver, (np.isfinite(slices.consumed) * slices.sizes).sum(axis=0))
    assert received == pytest.approx(sent(slices))


def test_a_rank_of_a_tree_sends_the_input_once_to_each_neighbour() -> None:
    slices = run_tree(job_of(8), 3 * MB)
    pairs = np.bincount(slices.lanes.sender, np.broadcast_to(slices.sizes, slices.moved.shape).sum(axis=0))
    assert pairs.sum() == pytest.approx(2 * 7 * 3 * MB, rel=1e-5)
    for channel in range(4):
        tree = parents(8, 4, channel)
        assert sum(parent == -1 for parent in tree) == 1
        assert all(abs(parent // 4 - place // 4) <= 1 for place, parent in enumerate(tree) if parent >= 0)


def test_slices_are_a_megabyte_at_most_and_small_collectives_have_small_ones() -> None:
    plan = ring_plan("all_reduce", 100 * MB + 3, 4, 2)
    assert plan.sizes.max() == SLICE_BYTES and len(plan.sizes) == len(plan.loops) * 6 * CHUNK_SLICES
    assert ring_plan("barrier", 4, 64, 2).sizes.max() == 1


def test_healthy_rings_come_near_the_rate_of_the_nic() -> None:
    slices = run_ring(job_of(4), "reduce_scatter", SIZE)
    ideal = 0.75 * SIZE / (50e9 * DATA) * 1e9
    assert slices.last().max() == pytest.approx(ideal, rel=0.08)


@pytest.mark.parametrize("slower", [1.5, 2, 4, 8, 25])
def test_a_slow_nic_makes_gaps_of_forty_microseconds_times_p_minus_one_on_the_others(slower: float) -> None:
    slices = run_ring(job_of(4), "reduce_scatter", SIZE, nic=at(4, 1, 50e9 / slower, 50e9))
    middle = slice(len(slices.sizes) // 4, 3 * len(slices.sizes) // 4)
    mean = [float(gaps(slices, rank)[middle].mean()) / US for rank in range(4)]
    for rank in (0, 2, 3):
        assert mean[rank] == pytest.approx(SLICE_US * (slower - 1), rel=0.05)
    assert mean[1] < 1.0


def test_operation_times_do_not_tell_who_is_slow_but_time_without_gaps_does() -> None:
    slices = run_ring(job_of(4), "reduce_scatter", SIZE, nic=at(4, 1, 25e9, 50e9))
    ends = [float(slices.consumed[:, slices.lanes.receiver == rank].max()) for rank in range(4)]
    assert max(ends) / min(ends) < 1.06
    busy = np.bincount(slices.lanes.sender, (slices.moved - slices.moving).sum(axis=0))
    assert busy[1] == pytest.approx(2 * busy[[0, 2, 3]].mean(), rel=0.03)


@pytest.mark.parametrize("late_ms", [2.0, 5.0, 20.0])
def test_a_late_receiver_kernel_makes_a_gap_of_milliseconds_after_one_buffer(late_ms: float) -> None:
    slices = run_message(job_of(2), 64 * MB, began=at(2, 1, late_ms * 1e6))
    widest = gaps(slices, 0).max(axis=0)
    assert widest == pytest.approx(np.full(2, late_ms * 1e6 - CREDITS * SLICE_US * US), rel=0.05, abs=1e5)
    before = (slices.moved < late_ms * 1e6).sum(axis=0)
    assert before.tolist() == [CREDITS, CREDITS]


def test_lanes_of_several_gpus_of_a_host_use_all_its_nics() -> None:
    slices = run_ring(job_of(8, 4), "all_reduce", SIZE)
    lanes = slices.lanes
    assert sorted(set(lanes.sender[lanes.remote].tolist())) == list(range(8))
    assert (lanes.sender // 4 != lanes.receiver // 4).tolist() == lanes.remote.tolist()
    assert slices.last().max() < 0.5 * 2 * 7 / 8 * SIZE / 50e9 * 1e9
