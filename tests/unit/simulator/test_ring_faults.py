"""The faults of Mycroft 7.1: who stops, ends or starts first, in its figure 7, on a reduce_scatter of four ranks."""

from __future__ import annotations

import numpy as np
import pytest

from forensics.fixtures.simulator.job import Floats
from forensics.fixtures.simulator.slices import CREDITS, Slices
from tests.unit.simulator.wires import MB, NEVER, at, job_of, run_ring, sent

SIZE, RANKS, BAD = 256 * MB, 4, 1


def scatter(**changes: Floats) -> Slices:
    return run_ring(job_of(RANKS), "reduce_scatter", SIZE, 0, **changes)


def ends(slices: Slices) -> list[float]:
    """When each rank had consumed its last slice."""
    return [float(slices.consumed[:, slices.lanes.receiver == rank].max()) for rank in range(RANKS)]


def count(slices: Slices, stage: str, time: float) -> list[int]:
    """Slices of each rank's lanes that had reached a stage."""
    times = getattr(slices, stage)
    return [int((times[:, slices.lanes.sender == rank] <= time).sum()) for rank in range(RANKS)]


def test_nic_shutdown_stops_its_rank_first_and_all_soon_after() -> None:
    stop = 2e6
    slices = scatter(nic_stop=at(RANKS, BAD, stop, NEVER))
    moved = np.where(np.isfinite(slices.moved), slices.moved, 0.0)
    last = [float(moved[:, slices.lanes.sender == rank].max()) for rank in range(RANKS)]
    assert last[BAD] <= stop and last[(BAD + 1) % RANKS] > stop
    assert max(last) < stop + 2e6
    assert sent(slices)[BAD] == min(sent(slices))
    later = count(slices, "done", 1e12)
    assert np.isinf(ends(slices)).all() and later == count(slices, "done", stop + 5e6)


def test_nic_shutdown_leaves_what_was_handed_over_undelivered_on_its_rank() -> None:
    slices = scatter(nic_stop=at(RANKS, BAD, 2e6, NEVER))
    transmitted, done = count(slices, "transmitted", 1e12), count(slices, "done", 1e12)
    assert transmitted[BAD] > done[BAD]
    assert transmitted[BAD] - done[BAD] <= 2 * CREDITS
    into_bad = (BAD - 1) % RANKS
    assert all(transmitted[rank] == done[rank] for rank in range(RANKS) if rank not in (BAD, into_bad))


def test_bandwidth_limit_slows_the_group_and_leaves_slices_filled_and_not_transmitted_on_its_rank() -> None:
    """Case 2: GPU_ready > RDMA_transmitted where the NIC sends slowly, and nowhere else."""
    healthy, slices = scatter(), scatter(nic=at(RANKS, BAD, 12.5e9, 50e9))
    assert max(ends(slices)) == pytest.approx(4 * max(ends(healthy)), rel=0.08)
    middle = max(ends(slices)) / 2
    waiting = np.subtract(count(slices, "ready", middle), count(slices, "transmitted", middle))
    assert waiting[BAD] >= 4 and np.delete(waiting, BAD).max() <= 2


def test_a_nic_that_receives_slowly_leaves_slices_transmitted_and_not_done_at_the_other_end() -> None:
    slices = scatter(into=at(RANKS, BAD, 12.5e9, 50e9))
    middle = max(ends(slices)) / 2
    ready, transmitted, done = (np.array(count(slices, stage, middle)) for stage in ("ready", "transmitted", "done"))
    assert (ready - transmitted <= 2).all()
    assert int(np.argmax(transmitted - done)) == BAD - 1
    assert max(ends(slices)) == pytest.approx(4 * max(ends(scatter())), rel=0.08)


@pytest.mark.parametrize("slower, late", [(1 / 0.67, 0.0), (1 / 0.42, 0.0), (1.5, 20e6), (1 / 0.55, 5e6)])
def test_pcie_and_power_make_their_rank_the_last_to_complete(slower: float, late: float) -> None:
    slices = scatter(slowness=at(RANKS, BAD, slower, 1.0), began=at(RANKS, BAD, late))
    assert int(np.argmax(ends(slices))) == BAD
    assert max(ends(slices)) > max(ends(scatter())) + late


def test_a_narrow_path_from_the_gpu_leaves_everything_that_is_filled_delivered() -> None:
    """Case 3: the GPU is what a NIC waits for."""
    slices = scatter(path=at(RANKS, BAD, 12.5e9, NEVER))
    middle = max(ends(slices)) / 2
    ready, transmitted, done = (np.array(count(slices, stage, middle)) for stage in ("ready", "transmitted", "done"))
    assert ready[BAD] - transmitted[BAD] <= 1 and transmitted[BAD] - done[BAD] <= 2
    assert max(ends(slices)) > 3 * max(ends(scatter()))


def test_background_computation_slows_all_groups_of_the_host_alike() -> None:
    slow = [scatter(slowness=at(RANKS, BAD, 2.0, 1.0)) for _ in range(2)]
    assert ends(slow[0]) == ends(slow[1])
    assert int(np.argmax(ends(slow[0]))) == BAD


def test_background_traffic_on_two_hosts_lets_delivered_lag_behind_transmitted_there() -> None:
    nic = np.array([50e9, 20e9, 50e9, 20e9])
    slices = scatter(nic=nic, crowded=np.array([0.0, 1.0, 0.0, 1.0]))
    middle = max(ends(slices)) / 2
    ready, transmitted, done = (np.array(count(slices, stage, middle)) for stage in ("ready", "transmitted", "done"))
    assert (ready - transmitted <= 2).all()
    flying = transmitted - done
    assert flying[[1, 3]].min() > flying[[0, 2]].max()


def test_proxy_delay_lets_its_rank_begin_last_while_its_peers_have_sent_a_part() -> None:
    slices = scatter(late=at(RANKS, BAD, 1e9))
    first = [float(slices.transmitted[0, slices.lanes.sender == rank].min()) for rank in range(RANKS)]
    assert first[BAD] >= 1e9 and max(np.delete(first, BAD)) < 1e6
    waiting = np.array(count(slices, "done", 0.5e9))
    assert waiting[BAD] == 0 and (np.delete(waiting, BAD) > 0).all()
    assert count(slices, "ready", 0.5e9)[BAD] > 0
    assert min(ends(slices)) > 1e9


def test_a_rank_that_never_comes_lets_the_others_send_what_its_buffers_take() -> None:
    slices = scatter(began=at(RANKS, BAD, NEVER), issued=at(RANKS, BAD, NEVER))
    assert count(slices, "ready", 1e12)[BAD] == 0
    assert count(slices, "transmitted", 1e12)[BAD - 1] == 0
    slices = scatter(began=at(RANKS, BAD, NEVER))
    assert count(slices, "transmitted", 1e12)[BAD - 1] == 2 * CREDITS


def test_a_stopped_process_freezes_its_counters_and_a_stopped_gpu_what_it_fills() -> None:
    stop = 2e6
    process = scatter(proxy_stop=at(RANKS, BAD, stop, NEVER))
    frozen = [count(process, stage, stop)[BAD] for stage in ("transmitted", "done")]
    assert frozen == [count(process, stage, 1e12)[BAD] for stage in ("transmitted", "done")]
    gpu = scatter(gpu_stop=at(RANKS, BAD, stop, NEVER))
    assert count(gpu, "ready", stop)[BAD] == count(gpu, "ready", 1e12)[BAD]
    assert count(gpu, "done", 1e12)[BAD] == count(gpu, "ready", 1e12)[BAD]
