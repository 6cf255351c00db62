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
