"""Ports with errors, GPUs whose results differ, replicas that ended: pointed at where nobody can be named, never accused."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import pytest

from tests.recordings.verdicts import unnamed, verdict_of
from tests.unit.ingest.reading import read

ERROR = "ERROR:megatron.core.rerun_state_machine:"
DIFFERS = (
    ERROR + "Rank {0}, node gn-02, device {1}, iteration #3: First rerun: unexpected result is not reproducible within it\n"
)
AGAIN = (
    ERROR
    + "Rank {0}, node gn-02, device {1}, iteration #3: First rerun: unexpected result is reproducible within it (nan = nan)\n"
)
STEPS = " [2026-05-27 03:11:00] iteration        2/     100 | consumed samples: 16 | lm loss: 1.02E+01 |\n"
REPLICA = "E 2026-02-08 The replica {0} exited with a non-zero status of {1}. Termination reason: Error.\n"


def port(errors: int, lid: int = 14) -> str:
    return (
        f"# Port counters: Lid {lid} port 1 (CapMask: 0x5A00)\nPortSelect:......................1\n"
        f"SymbolErrorCounter:..............{errors}\nLinkDownedCounter:...............0\n"
        f"PortRcvErrors:...................{errors // 4}\nPortXmitWait:....................8111\n"
    )


LINKS = "index, pci.bus_id, pcie.link.gen.current, pcie.link.gen.max, pcie.link.width.current, pcie.link.width.max, {0}\n"


def gpus(*links: tuple[int, int], load: int = 100) -> str:
    """What nvidia-smi says of GPUs with these generations and lanes."""
    rows = [f"{n}, 00000000:{n + 16:x}:00.0, {gen}, 5, {width}, 16, {load} %\n" for n, (gen, width) in enumerate(links)]
    return LINKS.format("utilization.gpu [%]") + "".join(rows)


def listens(host: str, rank: int, interface: str, address: str, ranks: int = 3) -> str:
    front = f"{host}:70{rank}:70{rank} [0] NCCL INFO"
    init = f"ncclCommInitRank comm 0x5{rank} rank {rank} nranks {ranks} cudaDev 0 nvmlDev 0 busId 1000 commId 0x7 - Init START"
    return f"{front} Bootstrap : Using {interface}:{address}<0>\n{front} {init}\n"


EVENTS = """LAST SEEN   TYPE     REASON      OBJECT           MESSAGE
52m         Normal   Preempted   pod/j-worker-3   Preempted by pod 7d1c on node n9
"""
ENDED = "Name:         j-worker-6\nNamespace:    ml\nContainers:\n  main:\n    State:      Terminated\n      Exit Code:    1\n"
INSIDE = {f"n{n}.log": listens(f"n{n}", n, "bond0", f"10.4.0.{n}") for n in range(2)}


def first(folder: Path, files: Mapping[str, str]) -> str:
    for name, text in files.items():
        (folder / name).parent.mkdir(exist_ok=True, parents=True)
        (folder / name).write_text(text)
    verdict = verdict_of(folder)
    assert not verdict.suspects
    return verdict.would_change[0]


def test_counters_of_perfquery() -> None:
    rows = read((port(7) + port(9, 15)).encode(), "perfquery.txt").rows("counters")
    assert [(row["device"], row["value"]) for row in rows if row["counter"] == "symbol_error"] == [
        ("lid14/1", 7),
        ("lid15/1", 9),
    ]


@pytest.mark.parametrize(
    ("files", "said"),
    [
        ({f"cn-{n}/perfquery.txt": port(65535 if n == 3 else 0) for n in range(1, 5)}, "lid14/1 of cn-3"),
        ({"a.log": STEPS + DIFFERS.format(12, 4)}, "the GPU of rank 12"),
        ({"a.log": STEPS + REPLICA.format("workerpool1-1", 137)}, "the log of pod workerpool1-1"),
        ({"a.log": STEPS + REPLICA.format("worker 2", 1)}, "the log of pod worker-2"),
        ({"events.txt": EVENTS, "describe.txt": ENDED}, "the log of pod j-worker-3, which was evicted"),
        ({"gpus.csv": gpus((5, 16), (5, 16), (1, 4), (5, 16)), "a.log": STEPS}, "the PCIe slot of GPU-2"),
        (
            {"n0.log": listens("n0", 0, "bond0", "10.4.0.0", 2), "n1.log": listens("n1", 1, "docker0", "172.17.0.1", 2)},
            "NCCL_SOCKET_IFNAME and the interfaces of n1",
        ),
        (INSIDE | {"n2.log": listens("n2", 2, "docker0", "172.17.0.1")}, "NCCL_SOCKET_IFNAME and the interfaces of n2"),
    ],
)
def test_who_is_looked_at_first(tmp_path: Path, files: Mapping[str, str], said: str) -> None:
    assert first(tmp_path, files).startswith(said)


@pytest.mark.parametrize(
    "files",
    [
        {f"cn-{n}/perfquery.txt": port(65535 if n < 3 else 0) for n in range(1, 5)},
        {f"cn-{n}/perfquery.txt": port(65535 if n == 1 else 0) for n in range(1, 3)},
        {f"cn-{n}/perfquery.txt": port(20 if n == 1 else 0) for n in range(1, 5)},
        {"a.log": STEPS + AGAIN.format(12, 4)},
        {"a.log": STEPS + DIFFERS.format(12, 4) + DIFFERS.format(13, 5)},
        {"a.log": STEPS + REPLICA.format("worker 2", 0)},
        {"a.log": STEPS + REPLICA.format("worker 2", 1) + REPLICA.format("worker 1", 1)},
    ],
    ids=["two ports", "two hosts", "few errors", "the same again", "two ranks", "no error", "two replicas"],
)
def test_what_points_at_nobody(tmp_path: Path, files: Mapping[str, str]) -> None:
    assert not first(tmp_path, files).startswith(("lid14/1", "the GPU", "the log of pod"))


def _grepped(lanes: int, at: int) -> str:
    nic = "/sys/class/infiniband/mlx5_0/"
    speeds = f"{nic}device/current_link_speed:32.0 GT/s PCIe\n{nic}device/max_link_speed:32.0 GT/s PCIe\n"
    widths = f"{nic}device/current_link_width:{lanes}\n{nic}device/max_link_width:16\n"
    return f"{nic}ports/1/rate:400 Gb/sec (4X NDR)\n{nic}ports/1/counters/port_xmit_wait:{at}\n{speeds}{widths}"


def test_the_one_narrow_slot_of_several_hosts(tmp_path: Path) -> None:
    files = {f"gpu-{at}/nic.txt": _grepped(4 if at == 2 else 16, at) for at in range(4)}
    assert first(tmp_path, files).startswith("the slot of mlx5_0 (lanes, generation, riser, BIOS)")


def test_slots_that_several_hosts_have_are_not_pointed_at(tmp_path: Path) -> None:
    files = {f"gpu-{at}/nic.txt": _grepped(4 if at > 1 else 16, at) for at in range(4)}
    assert "slot of" not in first(tmp_path, files)


def _started(nic: str, gbits: str, at: int = 2) -> str:
    limit = ", limited by 8.0 GT/s PCIe x8 link at 0000:16:00.0" if gbits < "2" else ""
    return f"[   1{at}.345678] mlx5_core {nic}: {gbits} Gb/s available PCIe bandwidth{limit} (16.0 GT/s PCIe x16 link)\n"


def test_the_one_nic_to_which_pcie_carries_less_by_kernel_logs(tmp_path: Path) -> None:
    files = {f"gpu-{at}/dmesg.txt": _started("0000:17:00.0", "063.008" if at == 1 else "252.048", at) for at in range(4)}
    found = first(tmp_path, files)
    assert "slot of NIC 0000:17:00.0" in found and "gpu-1/dmesg.txt" in found and "63 Gb/s, to 3 others 252 or more" in found


def test_a_nic_of_another_kind_on_the_only_host_is_not_pointed_at(tmp_path: Path) -> None:
    text = _started("0000:01:00.0", "063.008") + "".join(_started(f"0000:{at}7:00.0", "252.048") for at in range(1, 5))
    assert "slot of" not in first(tmp_path, {"gpu-1/dmesg.txt": text})


@pytest.mark.parametrize(
    "files",
    [
        {"gpus.csv": gpus((1, 16), (1, 16), (1, 16), (1, 16), load=0), "a.log": STEPS},
        {"gpus.csv": gpus((5, 16), (1, 16), (5, 16), (5, 16), load=0), "a.log": STEPS},
        {"gpus.csv": gpus((5, 8), (5, 8), (5, 16), (5, 16)), "a.log": STEPS},
        {f"n{n}.log": listens(f"n{n}", n, "docker0", "172.17.0.1") for n in range(3)},
        INSIDE | {"n2.log": listens("n2", 2, "eth0", "10.4.9.2")},
    ],
    ids=["idle GPUs", "an idle GPU", "two with few lanes", "all inside", "another network"],
)
def test_links_and_addresses_that_point_nowhere(tmp_path: Path, files: Mapping[str, str]) -> None:
    assert not any(word in first(tmp_path, files) for word in ("PCIe slot", "NCCL_SOCKET_IFNAME"))


def link_errors(*errors: int) -> str:
    """`nvidia-smi nvlink -e`, with two links a GPU."""
    rows = (
        "".join(f"\t Link {link}: {kind} Errors: {each}\n" for link in (0, 1) for kind in ("Replay", "CRC")) for each in errors
    )
    text = "".join(f"GPU {at}: NVIDIA H100 80GB HBM3 (UUID: GPU-1{at}-aa)\n{row}" for at, row in enumerate(rows))
    return f"[root@dgx-04 ~]# nvidia-smi nvlink -e\n{text}"


@pytest.mark.parametrize(
    ("errors", "is_lead"),
    [
        ((0, 0, 90_000, 3), True),
        ((0, 0, 3, 0), False),
        ((0, 90_000, 90_000, 0), False),
        ((0, 90_000), False),
        ((0, 0, 0, 0), False),
    ],
    ids=["one", "few", "both ends", "two GPUs alone", "none"],
)
def test_the_one_gpu_whose_nvlinks_count_errors(tmp_path: Path, errors: tuple[int, ...], is_lead: bool) -> None:
    leads = unnamed(tmp_path, {"nvlink.txt": link_errors(*errors)}).leads
    assert any("NVLinks of GPU-2 of dgx-04" in lead for lead in leads) is is_lead


@pytest.mark.parametrize(("gpus", "is_lead"), [((2,), True), ((2, 2), True), ((2, 3), False), ((), False)])
def test_the_one_gpu_that_a_device_plugin_found_unhealthy(tmp_path: Path, gpus: tuple[int, ...], is_lead: bool) -> None:
    row = "I0311 02:39:51.101122  1 health.go:159] XidCriticalError: Xid=48 on Device=GPU-754{0}-11aa; marking it unhealthy.\n"
    text = "pre-7b stands since 02:40\n\n$ kubectl logs -n kube-system plugin-tw2td\n" + "".join(map(row.format, gpus))
    (tmp_path / "ticket.md").write_text(text + "".join(f"step {at}/900 loss 2.{at}\n" for at in range(20)))
    assert any("GPU-7542-11aa" in lead for lead in verdict_of(tmp_path).leads) is is_lead
