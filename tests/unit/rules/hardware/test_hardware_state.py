"""Which hardware is whose, and what is odd of it: on state that is made up, and on a small folder as it is collected."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from forensics.case.build import open_case
from forensics.model import (
    Anomaly,
    Belief,
    Cause,
    Component,
    Confidence,
    Evidence,
    Finding,
    Impact,
    Mechanism,
    Members,
    StageRef,
)
from forensics.rules.reductions.hardware.causes import Hardware, Oddity, Sign
from forensics.rules.reductions.hardware.signs import hardware, hardware_signs
from forensics.rules.reductions.hardware.state import Gpu, Machines, Port, Process, gpu_of_rank, machines

SAMPLES = Path(__file__).parents[4] / "fixtures" / "samples"
WORK = {
    "utilization_percent": 100,
    "clock_sm_mhz": 1965,
    "clock_sm_max_mhz": 1980,
    "power_mw": 610_000,
    "power_limit_mw": 700_000,
    "temperature_c": 60,
    "pcie_width": 16,
    "pcie_width_max": 16,
    "pcie_gen": 5,
    "pcie_gen_max": 5,
}
TRAFFIC = {"port_xmit_packets": 5_000_000, "port_rcv_packets": 5_000_000, "rp_cnp_handled": 20, "np_cnp_sent": 15}


def gpu(number: int, **changed: Any) -> Gpu:
    """A GPU of host a under load, with the process of its rank."""
    base = Gpu("a", f"GPU-{number}", f"smi.xml#GPU-{number}", "H100", f"GPU-{number}abc", WORK)
    return replace(base, processes={100 + number: ("python", 60 << 30)}, **changed)


def reading(**values: int) -> Mapping[str, int]:
    return WORK | values


def of(*gpus: Gpu) -> Hardware:
    """Signs of hosts with these GPUs, one a rank."""
    own = frozenset(range(100, 100 + len(gpus)))
    return hardware_signs(Machines(dict(enumerate(gpus)), own=dict.fromkeys((gpu.host for gpu in gpus), own)))


def kinds(found: Hardware) -> dict[int, list[Oddity]]:
    return {rank: [sign.kind for sign in signs] for rank, signs in found.signs.items()}


def port(number: int, **grown: int) -> Port:
    return Port("a", f"mlx5_{number}", f"mlx5_{number}/1", 2.0, TRAFFIC | grown, f"ib.json#mlx5_{number}/1")


def ports(*found: Port) -> Hardware:
    return hardware_signs(Machines(ports={rank: (each,) for rank, each in enumerate(found)}, all_ports=found))


def finding(cause: Cause, *ranks: int, members: Members = Members.EACH, share: float = 0.25) -> Finding:
    evidence = (Evidence("late", None),)
    return Finding(
        ranks, cause, StageRef(), Belief.BEHIND_AND_BUSY, Confidence.LIKELY, evidence, rule="FX172",
        anomaly=Anomaly.FAIL_SLOW, members=members, impact=Impact(None, share, None, "arrival"),
    )  # fmt: skip


def test_the_process_on_a_gpu_tells_whose_it_is_before_any_number_does() -> None:
    gpus = [gpu(0), gpu(1)]
    crossed = {0: Process("a", 101, 0), 1: Process("a", 100, 1)}
    assert [found.device for found in gpu_of_rank(gpus, crossed).values()] == ["GPU-1", "GPU-0"]


def test_numbers_and_uuids_of_the_environment_tell_it_else() -> None:
    bare = [replace(gpu(number), processes={}) for number in range(4)]
    stated = {0: Process("a", 7, 0, "3"), 1: Process("a", 8, 1, "GPU-2a")}
    assert {rank: found.device for rank, found in gpu_of_rank(bare, stated).items()} == {0: "GPU-3", 1: "GPU-2"}


def test_local_ranks_number_the_gpus_of_a_full_host_only() -> None:
    bare = [replace(gpu(number), processes={}) for number in range(2)]
    ranks = {4: Process("a", 7, 0), 5: Process("a", 8, 1)}
    assert {rank: found.device for rank, found in gpu_of_rank(bare, ranks).items()} == {4: "GPU-0", 5: "GPU-1"}
    assert gpu_of_rank([*bare, gpu(2)], ranks) == {}
    assert gpu_of_rank([bare[0], replace(bare[1], model="A100")], ranks) == {}
    assert gpu_of_rank(bare, {4: Process("a", None, None), 5: Process(None, 8, 1)}) == {}


def test_a_number_that_two_ranks_have_is_nobodys_and_a_process_on_many_gpus_has_none() -> None:
    bare = [replace(gpu(number), processes={}) for number in range(2)]
    assert gpu_of_rank(bare, {0: Process("a", 7, 0, "0"), 1: Process("a", 8, 1, "0")}) == {}
    spread = [replace(gpu(number), model=f"model {number}", processes={100: ("python", 9 << 30)}) for number in range(2)]
    assert gpu_of_rank(spread, {0: Process("a", 100, 0)}) == {}


def test_equal_gpus_have_no_signs() -> None:
    assert of(*(gpu(number) for number in range(4))).signs == {}


def test_clocks_that_heat_or_the_power_brake_hold_down() -> None:
    hot = gpu(
        1, reasons=frozenset({"hw_thermal_slowdown", "hw_slowdown"}), readings=reading(clock_sm_mhz=1155, temperature_c=88)
    )
    found = of(gpu(0), hot, gpu(2), gpu(3))
    assert kinds(found) == {1: [Oddity.THROTTLED]}
    assert "88 C, 1155 MHz of 1980" in found.signs[1][0].statement
    assert of(hot).signs[0][0].kind is Oddity.THROTTLED
    assert of(*(replace(hot, device=f"GPU-{number}", source=str(number)) for number in range(4))).signs == {}


def test_meeting_the_power_limit_is_normal_under_load() -> None:
    capped = frozenset({"sw_power_cap"})
    assert of(gpu(0), gpu(1, reasons=capped), gpu(2), gpu(3)).signs == {}
    slow = gpu(1, reasons=capped, readings=reading(clock_sm_mhz=1200))
    assert kinds(of(gpu(0), slow, gpu(2), gpu(3))) == {1: [Oddity.THROTTLED]}
    assert of(gpu(0, reasons=capped), slow, gpu(2, reasons=capped), gpu(3)).signs == {}
    assert of(slow).signs == {}


def test_a_lower_power_limit_counts_when_it_is_met() -> None:
    limited = gpu(1, readings=reading(power_limit_mw=300_000, power_mw=291_000))
    assert kinds(of(gpu(0), limited, gpu(2))) == {1: [Oddity.THROTTLED]}
    modest = [gpu(number, readings=reading(power_mw=310_000)) for number in (0, 2)]
    assert of(modest[0], gpu(1, readings=reading(power_limit_mw=300_000, power_mw=200_000)), modest[1]).signs == {}


@pytest.mark.parametrize(("busy", "expected"), [(100, {1: [Oddity.THROTTLED]}), (0, {})])
def test_a_limit_far_below_what_peers_draw_counts_in_a_moment_of_waiting_too(
    busy: int, expected: dict[int, list[Oddity]]
) -> None:
    """It draws little while all wait for a save; an idle GPU may have nothing to do."""
    waiting = reading(power_limit_mw=200_000, power_mw=120_000, utilization_percent=busy)
    found = of(*(gpu(number, readings=reading(power_mw=250_000)) for number in (0, 2)), gpu(1, readings=waiting))
    assert kinds(found) == {rank + 1: signs for rank, signs in expected.items()}


@pytest.mark.parametrize(("peers", "factor"), [(610_000, 700 / 300), (280_000, 1.0)])
def test_a_limit_that_peers_exceed_bounds_its_cost_at_a_full_clock(peers: int, factor: float) -> None:
    limited = gpu(1, readings=reading(power_limit_mw=300_000, power_mw=291_000))
    found = of(gpu(0, readings=reading(power_mw=peers)), limited, gpu(2, readings=reading(power_mw=peers)))
    assert found.signs[1][0].factor == pytest.approx(factor)
    slower = replace(limited, readings=reading(power_limit_mw=300_000, power_mw=291_000, clock_sm_mhz=1310))
    assert of(gpu(0), slower, gpu(2)).signs[1][0].factor == 1.5


def test_processes_of_others_are_distinguished_from_those_of_the_job() -> None:
    other = {101: ("python", 60 << 30), 900: ("server", 6 << 30)}
    found = of(gpu(0), replace(gpu(1), processes=other), gpu(2))
    assert kinds(found) == {1: [Oddity.SHARED]}
    assert "process 900 (server)" in found.signs[1][0].statement and "6.0 GiB" in found.signs[1][0].statement
    everywhere = [replace(gpu(n), processes={100 + n: ("python", 60 << 30), 900 + n: ("agent", 1 << 30)}) for n in range(3)]
    assert of(*everywhere).signs == {}


@pytest.mark.parametrize("about", [("server", 10 << 20), ("nvidia-cuda-mps-server", 1 << 30)])
def test_small_contexts_and_servers_of_the_driver_are_no_contention(about: tuple[str, int]) -> None:
    assert of(gpu(0), replace(gpu(1), processes={101: ("python", 60 << 30), 900: about})).signs == {}


def test_numbers_of_another_namespace_are_not_compared() -> None:
    assert of(gpu(0), replace(gpu(1), processes={7: ("python", 60 << 30)})).signs == {}


def test_a_link_is_compared_with_peers_and_its_speed_under_load_only() -> None:
    assert kinds(of(gpu(0), gpu(1, readings=reading(pcie_width=8)), gpu(2))) == {1: [Oddity.NARROW]}
    assert kinds(of(gpu(0), gpu(1, readings=reading(pcie_gen=1)), gpu(2))) == {1: [Oddity.NARROW]}
    assert of(gpu(0), gpu(1, readings=reading(pcie_gen=1, utilization_percent=0)), gpu(2)).signs == {}
    assert of(*(gpu(number, readings=reading(pcie_width=8)) for number in range(3))).signs == {}
    assert of(gpu(0, readings=reading(pcie_width=8))).signs == {}


def test_congestion_is_stated_against_most_other_ports() -> None:
    stated = ports(port(0), port(1, rp_cnp_handled=30_000), port(2), port(3))
    assert kinds(stated) == {1: [Oddity.CONGESTED]}
    assert ports(*(port(number, rp_cnp_handled=30_000) for number in range(4))).signs == {}
    assert ports(port(0), port(1, rp_cnp_handled=90)).signs == {}
    quiet = {"port_xmit_packets": 100, "port_rcv_packets": 100}
    assert ports(port(0), port(1, rp_cnp_handled=30_000, **quiet), port(2)).signs == {}


def test_congestion_is_the_cause_where_it_lasts_as_long_as_what_was_lost() -> None:
    """Each notification holds a NIC back for 300 us: of two seconds 900 of them are a seventh."""
    lasting = ports(port(0), port(1, rp_cnp_handled=30_000), port(2))
    brief = ports(port(0), port(1, rp_cnp_handled=900), port(2))
    slow = (Cause.NETWORK_SLOW,)
    assert lasting.refined(finding(Cause.NETWORK_SLOW, 1, share=0.5), slow).cause is Cause.NETWORK_CONGESTION
    kept = brief.refined(finding(Cause.NETWORK_SLOW, 1, share=0.5), slow)
    assert kept.cause is Cause.NETWORK_SLOW and "cause unknown" in kept.evidence[-1].statement


def test_errors_of_a_link_are_stated_and_change_no_cause() -> None:
    found = ports(port(0), port(1, symbol_error=7), port(2))
    refined = found.refined(finding(Cause.NETWORK_SLOW, 1), (Cause.NETWORK_SLOW,))
    assert refined.cause is Cause.NETWORK_SLOW
    assert [line.statement.partition(" in 2.0 s")[0] for line in refined.evidence[1:]] == [
        "mlx5_1/1 of rank 1 counts 7 symbol errors"
    ]


def test_a_cause_is_refined_by_what_all_accused_ranks_show_or_one_of_several() -> None:
    hot = gpu(1, reasons=frozenset({"hw_thermal_slowdown"}), readings=reading(clock_sm_mhz=1155))
    found, slow = of(gpu(0), hot, gpu(2), gpu(3)), (Cause.COMPUTE_SLOW,)
    assert found.refined(finding(Cause.COMPUTE_SLOW, 1, share=0.6), slow).cause is Cause.COMPUTE_SLOW, "too much for its clock"
    stated = found.refined(finding(Cause.COMPUTE_SLOW, 1), slow)
    assert (stated.cause, stated.evidence[-1].source) == (Cause.GPU_THROTTLED, "smi.xml#GPU-1")
    assert stated.stage.component is Component.COMPUTE
    assert found.refined(finding(Cause.COMPUTE_SLOW, 0, 1), slow).cause is Cause.COMPUTE_SLOW
    assert found.refined(finding(Cause.COMPUTE_SLOW, 0, 1, members=Members.ONE_OF), slow).cause is Cause.GPU_THROTTLED


@pytest.mark.parametrize(
    ("lanes", "share", "cause"),
    [(16, 0.25, Cause.GPU_CONTENTION), (8, 0.25, Cause.COMPUTE_SLOW), (8, 0.7, Cause.UNKNOWN)],
    ids=["a guest alone", "beside a narrow link", "neither accounts for it"],
)
def test_a_guest_is_no_cause_where_a_narrow_link_is_one_as_well(lanes: int, share: float, cause: Cause) -> None:
    """Sound ranks have either: the guest may be idle, and the link may carry little."""
    both = gpu(1, readings=reading(pcie_width=lanes))
    both = replace(both, processes={101: ("python", 60 << 30), 900: ("python", 6 << 30)})
    found = of(gpu(0), both, gpu(2), gpu(3)).refined(finding(Cause.UNKNOWN, 1, share=share), (Cause.UNKNOWN,))
    assert found.cause is cause


@pytest.mark.parametrize(
    ("guests", "hosts", "cause"),
    [
        ({1}, "aabb", Cause.GPU_CONTENTION),
        ({1, 2}, "aaaaaabb", Cause.COMPUTE_SLOW),
        ({1, 6}, "aaaabbbb", Cause.COMPUTE_SLOW),
        ({0, 1, 6}, "aaaabbbb", Cause.GPU_CONTENTION),
    ],
    ids=["a guest alone", "another one beside it", "another one elsewhere", "on half of the host"],
)
def test_a_guest_is_no_cause_where_others_have_one_here_and_there(guests: set[int], hosts: str, cause: Cause) -> None:
    shared = {900: ("python", 6 << 30)}
    gpus = [
        replace(gpu(n), host=host, processes={**gpu(n).processes, **(shared if n in guests else {})})
        for n, host in enumerate(hosts)
    ]
    found = of(*gpus).refined(finding(Cause.COMPUTE_SLOW, 1, share=0.25), (Cause.COMPUTE_SLOW,))
    assert found.cause is cause
    assert any("which is not the job's" in each.statement for each in found.evidence)


@pytest.mark.parametrize("cause", [Cause.DATALOADER_STALL, Cause.UNKNOWN, Cause.NETWORK_SLOW])
def test_other_causes_stay_what_they_are(cause: Cause) -> None:
    found = of(gpu(0), gpu(1, reasons=frozenset({"hw_thermal_slowdown"})), gpu(2), gpu(3))
    before = finding(cause, 1)
    assert found.refined(before, (Cause.COMPUTE_SLOW, Cause.NETWORK_SLOW)) == before


def test_a_narrow_link_explains_a_slow_network_too_and_without_signs_nothing_changes() -> None:
    found, before = of(gpu(0), gpu(1, readings=reading(pcie_width=4)), gpu(2)), finding(Cause.NETWORK_SLOW, 1)
    assert found.refined(before, (Cause.NETWORK_SLOW,)).cause is Cause.PCIE_DEGRADED
    spared = finding(Cause.NETWORK_SLOW, 0)
    assert found.refined(spared, (Cause.NETWORK_SLOW,)) == spared


@pytest.mark.parametrize(
    ("lanes", "cause", "named"),
    [
        ((16, 8, 16, 16, 16), Cause.PCIE_DEGRADED, (1,)),
        ((8, 8, 16, 16, 16), Cause.PCIE_DEGRADED, (0, 1)),
        ((16, 16, 8, 16, 16), Cause.NETWORK_SLOW, (0, 1)),
        ((None, 8, 16, 16, 16), Cause.PCIE_DEGRADED, (0, 1)),
    ],
    ids=["of one", "of both", "of neither", "the other not read"],
)
def test_of_two_whose_transfers_are_slow_the_one_with_the_narrow_link_is_meant(
    lanes: tuple[int | None, ...], cause: Cause, named: tuple[int, ...]
) -> None:
    """Where the other one was read, and nothing of it would account for slow transfers."""
    read = {at: gpu(at, readings=reading(pcie_width=width)) for at, width in enumerate(lanes) if width}
    found = hardware_signs(Machines(read, own={"a": frozenset(range(100, 105))}))
    both = finding(Cause.NETWORK_SLOW, 0, 1, members=Members.ONE_OF)
    one = found.on_one_link(found.refined(both, (Cause.NETWORK_SLOW,), 1.9))
    assert (one.cause, one.ranks, one.members is Members.EACH) == (cause, named, len(named) == 1)


def test_a_rank_whose_data_comes_late_over_a_narrow_link_ends_its_chunks_late() -> None:
    found, before = of(gpu(0), gpu(1, readings=reading(pcie_width=8)), gpu(2)), finding(Cause.PCIE_DEGRADED, 1)
    assert found.on_one_link(before).mechanism == Mechanism("late_end", "local")
    assert found.on_one_link(replace(before, ranks=(0, 1))).mechanism is None
    slot = Sign(Oddity.NARROW_NIC, "the slot of its NIC has fewer lanes", "ib.json")
    both = Hardware({1: (*found.signs[1], slot)}, found.read)
    assert both.on_one_link(before).mechanism is None


def test_a_sign_at_the_other_end_of_a_slow_link_leaves_both_meant() -> None:
    found = of(gpu(0), gpu(1, readings=reading(pcie_width=8)), gpu(2))
    other = Sign(Oddity.ERRORS, "its port counts errors", "ib.json")
    odd = Hardware({**found.signs, 0: (other,)}, found.read)
    narrow = replace(finding(Cause.PCIE_DEGRADED, 0, 1, members=Members.ONE_OF))
    assert odd.on_one_link(narrow) == narrow and found.on_one_link(narrow).ranks == (1,)


def test_a_folder_as_it_is_collected(tmp_path: Path) -> None:
    """Two ranks on two GPUs of which the second is hot, shared and narrow; two reads of their NICs."""
    node = tmp_path / "nodes" / "gpu-017"
    (node / "gpu").mkdir(parents=True)
    (node / "gpu" / "nvidia-smi.xml").write_bytes((SAMPLES / "nvidia_smi" / "handmade_driver_570.xml").read_bytes())
    (node / "ib").mkdir()
    for number in (0, 1):
        content = (SAMPLES / "ib_counters" / f"handmade_counters-{number}.json").read_bytes()
        (node / "ib" / f"counters-{number}.json").write_bytes(content)
    for rank in (0, 1):
        facts = {
            "rank": rank,
            "node": "gpu-017",
            "local_rank": rank,
            "rank_method": "RANK",
            "pid": 41207 + rank,
            "state": "alive",
        }
        (tmp_path / "ranks" / str(rank)).mkdir(parents=True)
        (tmp_path / "ranks" / str(rank) / "rank.json").write_text(json.dumps(facts | {"state_method": None, "env": {}}))
    with open_case([tmp_path]) as connection:
        connection.execute("INSERT INTO queue_pairs (source_id, rank, queue_pair, nic) VALUES (0, 1, 'mlx5_1/7', 'mlx5_1')")
        state = machines(connection)
        assert {rank: found.device for rank, found in state.gpus.items()} == {0: "GPU-0", 1: "GPU-1"}
        assert [each.device for each in state.ports[1]] == ["mlx5_1/1"] and state.ports.keys() == {1}
        found = hardware(connection)
    assert kinds(found) == {
        1: [
            Oddity.THROTTLED,
            Oddity.SHARED,
            Oddity.NARROW,
            Oddity.MEMORY,
            Oddity.MEMORY,
            Oddity.ERRORS,
            Oddity.ERRORS,
            Oddity.ERRORS,
        ]
    }
    assert found.signs[1][0].source == "nodes/gpu-017/gpu/nvidia-smi.xml#GPU-1"
    assert found.signs[1][-1].source == "nodes/gpu-017/ib/counters-1.json#mlx5_1/1"


def test_without_state_there_is_nothing(tmp_path: Path) -> None:
    (tmp_path / "rank0.log").write_text("RuntimeError: CUDA error: out of memory\n")
    with open_case([tmp_path]) as connection:
        assert hardware(connection) == Hardware()
