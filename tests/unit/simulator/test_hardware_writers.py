"""What GPUs and NICs of simulated jobs show of a fault, as the ingesters read it."""

from __future__ import annotations

from functools import cache
from typing import Any

import pytest

from forensics.fixtures.simulator.writers.counters import counters
from tests.unit.ingest.reading import Result, read
from tests.unit.simulator.lower_runs import JOB, case


@cache
def state(fault: str) -> dict[int, tuple[dict[str, int], list[Result]]]:
    """Readings of the GPU of each rank, and both reads of the NICs of its host."""
    made, options = case(fault)
    files = dict(counters(made.run, made.places, made.capture_ns, options, made.effects))
    found = {}
    for rank in range(JOB.parallel.world):
        host = f"nodes/{made.places.host(rank).name}"
        smi = read(files[f"{host}/gpu/nvidia-smi.xml"])
        assert smi.problems == []
        device = f"GPU-{made.places.local_rank(rank)}"
        readings = {row["counter"]: row["value"] for row in smi.rows("counters") if row["device"] == device}
        found[rank] = (readings, [read(files[f"{host}/ib/counters-{number}.json"]) for number in (0, 1)])
    return found


def grown(fault: str, rank: int, counter: str) -> int:
    made, _ = case(fault)
    nic = f"{made.places.gpu(rank).nic}/1"
    values: list[Any] = [each.row("counters", device=nic, counter=counter)["value"] for each in state(fault)[rank][1]]
    return int(values[1] - values[0])


def readings(fault: str, counter: str) -> list[int]:
    return [state(fault)[rank][0][counter] for rank in range(JOB.parallel.world)]


def test_a_healthy_job_shows_equal_gpus_under_load() -> None:
    assert set(readings("none", "pcie_width")) == {16}
    assert set(readings("none", "power_limit_mw")) == {700_000}
    assert min(readings("none", "clock_sm_mhz")) >= 0.94 * 1980
    assert max(readings("none", "power_mw")) <= 700_000


def test_a_power_limit_shows_in_limit_draw_and_clock_of_one_gpu() -> None:
    limits = readings("gpu-throttled@rank3:300", "power_limit_mw")
    assert [rank for rank, limit in enumerate(limits) if limit < 700_000] == [3]
    assert readings("gpu-throttled@rank3:300", "power_mw")[3] <= 300_000
    computing = [clock for clock in readings("gpu-throttled@rank3:300", "clock_sm_mhz") if clock < 0.9 * 1980]
    assert len(computing) <= 1


def test_a_narrow_slot_shows_at_the_nic_of_its_rank_alone() -> None:
    made, _ = case("pcie-nic@rank3:30")
    found = {rank: reads[1] for rank, (_, reads) in state("pcie-nic@rank3:30").items()}
    links = {rank: _link(read, made.places.gpu(rank).nic) for rank, read in found.items()}
    owner = made.places.owner(3)
    assert {rank for rank, link in links.items() if link != (5, 16)} == {r for r in links if made.places.owner(r) == owner}
    assert links[3][0] * links[3][1] < 80


def _link(found: Result, nic: str) -> tuple[int, int]:
    values = {row["counter"]: row["value"] for row in found.rows("counters") if row["device"] == nic}
    return values["pcie_gen"], values["pcie_width"]


def test_another_process_shows_on_each_gpu_of_the_host() -> None:
    made, _ = case("background-compute@node1")
    shared = {rank for rank, (found, _) in state("background-compute@node1").items() if _processes(found) == 2}
    assert shared == set(made.places.ranks(1))
    pids = {name for found, _ in state("background-compute@node1").values() for name in found if name.startswith("process_")}
    assert len(pids) == JOB.parallel.world + len(shared)


def _processes(found: dict[str, int]) -> int:
    return sum(name.startswith("process_memory_bytes.") for name in found)


@pytest.mark.parametrize(("level", "lanes"), [("50", 8), ("25", 4), ("90", 16)])
def test_a_degraded_link_of_a_gpu_has_fewer_lanes(level: str, lanes: int) -> None:
    widths = readings(f"pcie-gpu@rank2:{level}", "pcie_width")
    assert widths == [lanes if rank == 2 else 16 for rank in range(len(widths))]


@pytest.mark.parametrize("fault", ["compute-delay@rank2", "intermittent@rank2", "nic-slow@rank2", "pcie-nic@rank2"])
def test_faults_that_no_tool_sees_leave_gpus_as_they_are(fault: str) -> None:
    for counter in ("pcie_width", "power_limit_mw"):
        assert len(set(readings(fault, counter))) == 1
    assert {_processes(found) for found, _ in state(fault).values()} == {1}


def test_other_traffic_moves_bytes_and_congestion_counters_of_its_hosts_only() -> None:
    fault = "background-traffic@link:node0-node2"
    made, _ = case(fault)
    with_others = {rank for host in (0, 2) for rank in made.places.ranks(host)}
    for rank in range(JOB.parallel.world):
        marks, packets = grown(fault, rank, "np_ecn_marked_roce_packets"), grown(fault, rank, "port_rcv_packets")
        assert (marks > 0.01 * packets) == (rank in with_others)
        assert grown(fault, rank, "rp_cnp_handled") <= 20_000 * 2.0
    assert grown(fault, 0, "port_xmit_data") > 2 * grown("none", 0, "port_xmit_data")


def test_a_slow_nic_of_its_own_marks_nothing() -> None:
    assert grown("nic-slow@rank2", 2, "np_ecn_marked_roce_packets") <= 1e-4 * grown("nic-slow@rank2", 2, "port_rcv_packets") + 5
