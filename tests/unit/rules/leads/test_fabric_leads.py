"""Where to begin in a fabric: an address that nobody reaches, a port that is slower than its peers."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.recordings.verdicts import pasted, unnamed

USING = "node-{0}:40{0}:40{0} [0] NCCL INFO Bootstrap : Using bond0:10.3.0.1{0}<0>\n"
FAILED = (
    "node-{0}:40{0}:41{0} [0] misc/socket.cc:484 NCCL WARN socketStartConnect: Connect to 10.3.0.1{1}<44311> failed : {2}\n"
)
UNHEARD = ["No route to host", "Connection refused", "Connection timed out"]


@pytest.mark.parametrize("why", UNHEARD)
@pytest.mark.parametrize(
    ("pairs", "node"),
    [([(1, 4), (2, 4), (3, 4)], 4), ([(1, 4), (4, 1)], None), ([(1, 4), (1, 4)], None), ([(1, 4), (2, 4), (2, 3)], None)],
    ids=["nobody reaches one", "each other", "one host alone", "two are not reached"],
)
def test_an_address_that_nobody_reaches(tmp_path: Path, pairs: list[tuple[int, int]], node: int | None, why: str) -> None:
    lines = [*map(USING.format, range(1, 5)), *(FAILED.format(own, peer, why) for own, peer in pairs)]
    found = [lead for lead in pasted(tmp_path, "".join(lines)).leads if "could not connect" in lead]
    assert [f"node-{node} (address 10.3.0.1{node})" in lead for lead in found] == ([True] if node else [])


IBSTAT = (
    "CA '{}'\n\tCA type: MT4129\n\tNumber of ports: 1\n\tPort 1:\n\t\tState: {}\n\t\tPhysical state: LinkUp\n\t\tRate: {}\n"
)


@pytest.mark.parametrize(
    ("rates", "slow"),
    [
        ({"node-1": 400, "node-2": 400, "node-3": 200}, "node-3"),
        ({"node-1": 400, "node-2": 400, "node-3": 400}, None),
        ({"node-1": 400, "node-2": 200}, None),
        ({"node-1": 400, "node-2": 200, "node-3": 200}, None),
        ({"node-1": 400, "node-2": 200, "node-3": 100}, None),
    ],
    ids=["one", "none", "two hosts alone", "most of them", "all unlike"],
)
def test_a_port_that_is_slower_than_that_of_its_name_elsewhere(tmp_path: Path, rates: dict[str, int], slow: str | None) -> None:
    texts = {f"{host}/ibstat.txt": IBSTAT.format("mlx5_2", "Active", rate) for host, rate in rates.items()}
    found = [lead for lead in unnamed(tmp_path, texts).leads if "Gb/s" in lead]
    assert [f"mlx5_2/1 of {slow}" in lead for lead in found] == ([True] if slow else [])


def test_a_port_of_another_use_on_each_host_is_not_slow(tmp_path: Path) -> None:
    both = IBSTAT.format("mlx5_0", "Active", 400) + IBSTAT.format("mlx5_4", "Active", 100)
    assert not unnamed(tmp_path, {f"node-{n}/ibstat.txt": both for n in range(4)}).leads


def test_a_port_that_is_down_runs_at_no_rate(tmp_path: Path) -> None:
    up, down = IBSTAT.format("mlx5_2", "Active", 400), IBSTAT.format("mlx5_2", "Down", 10)
    leads = unnamed(tmp_path, {"h-1/ibstat.txt": up, "h-2/ibstat.txt": up, "h-3/ibstat.txt": down}).leads
    assert not any("Gb/s" in lead for lead in leads)


PROMPT = "[root@{0} ~]# {1}\n"
SPEED = "Settings for {0}:\n\tSpeed: {1}Mb/s\n\tDuplex: Full\n\tLink detected: yes\n"
LINK = "{0} {1}\n\t\tLnkCap:\tPort #0, Speed 32GT/s, Width x16, ASPM not supported\n\t\tLnkSta:\tSpeed {2}, Width {3}\n"
NIC, GPU = "Infiniband controller: Mellanox Technologies MT2910", "3D controller: NVIDIA Corporation GH100 (rev a1)"
FULL, HALF, IDLE = ("32GT/s", "x16 (ok)"), ("16GT/s (downgraded)", "x8 (downgraded)"), ("2.5GT/s (downgraded)", "x16 (ok)")


@pytest.mark.parametrize(
    ("speeds", "expected"),
    [([100_000, 100_000, 25_000], "ens1/1 of node-2"), ([100_000] * 3, None), ([25_000] * 3, None)],
    ids=["one", "none", "all"],
)
def test_speeds_of_interfaces_below_their_prompts(tmp_path: Path, speeds: list[int], expected: str | None) -> None:
    hosts = (PROMPT.format(f"node-{at}", "ethtool ens1") + SPEED.format("ens1", each) for at, each in enumerate(speeds))
    # What a host is managed by is slower on all of them.
    managed = (PROMPT.format(f"node-{at}", "ethtool eno1") + SPEED.format("eno1", 1000) for at in range(3))
    leads = pasted(tmp_path, "slow since ten\n\n" + "".join([*hosts, *managed])).leads
    assert [expected in lead for lead in leads] == [True] if expected else not leads


@pytest.mark.parametrize(
    ("device", "links", "expected"),
    [
        (NIC, [FULL, FULL, FULL, HALF], "0000:18:00.0 of node-3"),
        (NIC, [HALF] * 4, None),
        (NIC, [FULL, FULL, HALF, HALF], None),
        (GPU, [FULL, FULL, FULL, HALF], "GPU-0000:18:00.0 of node-3"),
        (GPU, [IDLE] * 4, None),
        (GPU, [FULL, FULL, FULL, IDLE], None),
    ],
    ids=["a NIC", "built so", "two", "a GPU", "all save power", "one saves power"],
)
def test_slots_below_their_prompts(tmp_path: Path, device: str, links: list[tuple[str, str]], expected: str | None) -> None:
    hosts = (
        PROMPT.format(f"node-{at}", "lspci -vv | egrep 'controller|Lnk'") + LINK.format("18:00.0", device, *link)
        for at, link in enumerate(links)
    )
    leads = pasted(tmp_path, "slow since ten\n\n" + "".join(hosts)).leads
    assert [expected in lead for lead in leads] == [True] if expected else not leads


FABRIC = '          20   {0:2}[  ] ==( {1}X      106.25 Gbps Active/  LinkUp)==>     10{0}    1[  ] "{2}" ( {3})\n'


@pytest.mark.parametrize(
    ("slow", "expected"),
    [({"hx-2 mlx5_3"}, "mlx5_3/1 of hx-2"), ({"hx-2 mlx5_3", "hx-3 mlx5_3"}, None), ({"MF0;spine-1:MQM9700/U1"}, None)],
    ids=["a NIC", "two", "a switch"],
)
def test_a_link_that_its_ends_could_run_faster(tmp_path: Path, slow: set[str], expected: str | None) -> None:
    ends = [*(f"hx-{at} mlx5_{at + 1}" for at in range(5)), "hx-3 mlx5_3", "MF0;spine-1:MQM9700/U1"]
    rows = [
        FABRIC.format(at, 1, end, "Could be 4X ") if end in slow else FABRIC.format(at, 4, end, "")
        for at, end in enumerate(ends)
    ]
    leads = pasted(tmp_path, "Switch: 0xb83fd20300a1c210 MF0;leaf-3:MQM9700/U1:\n" + "".join(rows)).leads
    assert [expected in lead for lead in leads] == [True] if expected else not leads
