"""PCIe links of NICs: which are narrower than they have to be, and for which ranks that explains a slow network."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from forensics.case.build import open_case
from forensics.model import Cause, Mechanism, Members, Resource
from forensics.rules.reductions.hardware.causes import Hardware, Oddity, Sign
from forensics.rules.reductions.hardware.signs import hardware
from tests.unit.rules.hardware.test_hardware_state import finding

FULL = ("32.0 GT/s PCIe", "16")
RATE = "400 Gb/sec (4X NDR)"
Links = dict[str, tuple[tuple[str, str], str]]


def signs(folder: Path, hosts: dict[str, Links]) -> Hardware:
    """Signs of hosts whose NICs have these links and rates; rank n has queue pairs on the nth NIC."""
    ranks = [(host, nic) for host, links in hosts.items() for nic in links]
    for host, links in hosts.items():
        devices = {nic: _device(*link, rate) for nic, (link, rate) in links.items()}
        document = {"schema": "forensics.ib/1", "node": host, "time_ns": 5, "devices": devices}
        (folder / "nodes" / host / "ib").mkdir(parents=True)
        (folder / "nodes" / host / "ib" / "counters-0.json").write_text(json.dumps(document))
    with open_case([folder]) as connection:
        for rank, (host, nic) in enumerate(ranks):
            row = [1, rank, host, f"{nic}/7", nic]
            connection.execute("INSERT INTO queue_pairs (source_id, rank, host, queue_pair, nic) VALUES (?, ?, ?, ?, ?)", row)
        return hardware(connection)


def _device(speed: str, lanes: str, rate: str) -> dict[str, object]:
    link = {"current_link_speed": speed, "current_link_width": lanes, "max_link_speed": FULL[0], "max_link_width": FULL[1]}
    return {"pcie": link, "ports": {"1": {"rate": rate}}}


def of(found: Hardware) -> dict[int, list[Oddity]]:
    return {rank: [sign.kind for sign in signs] for rank, signs in found.signs.items()}


@pytest.mark.parametrize("link", [(FULL[0], "4"), ("8.0 GT/s PCIe", "16"), ("8 GT/s", "8")])
def test_a_link_below_the_line_and_below_its_peers_explains_a_slow_network_alone(tmp_path: Path, link: tuple[str, str]) -> None:
    hosts = {name: {"mlx5_0": (link if name == "b" else FULL, RATE)} for name in "abcd"}
    found = signs(tmp_path, hosts)
    assert of(found) == {1: [Oddity.NARROW_NIC]}
    assert found.refined(finding(Cause.NETWORK_SLOW, 1), (Cause.NETWORK_SLOW,), 3.0).cause is Cause.PCIE_DEGRADED
    slow = finding(Cause.COMPUTE_SLOW, 1)
    assert found.refined(slow, (Cause.COMPUTE_SLOW,), 3.0) == slow


def test_a_link_that_carries_its_line_costs_nothing(tmp_path: Path) -> None:
    rate = "200 Gb/sec (4X HDR)"
    assert of(signs(tmp_path, {name: {"mlx5_0": ((FULL[0], "8" if name == "b" else "16"), rate)} for name in "abc"})) == {}


def test_links_that_all_machines_have_so_are_how_they_were_built(tmp_path: Path) -> None:
    assert of(signs(tmp_path, {name: {"mlx5_0": (("16.0 GT/s PCIe", "8"), RATE)} for name in "abc"})) == {}


def test_a_little_less_does_not_explain_three_times_as_long(tmp_path: Path) -> None:
    hosts = {name: {"mlx5_0": (("16.0 GT/s PCIe", "16") if name == "b" else FULL, RATE)} for name in "abc"}
    refined = signs(tmp_path, hosts).refined(finding(Cause.NETWORK_SLOW, 1), (Cause.NETWORK_SLOW,), 3.0)
    assert refined.cause is Cause.NETWORK_SLOW
    assert any("accounts for" in each.statement for each in refined.evidence)


def test_nics_of_another_line_are_no_peers(tmp_path: Path) -> None:
    narrow = (("8.0 GT/s PCIe", "8"), "25 Gb/sec (1X EDR)")
    assert of(signs(tmp_path, {name: {"mlx5_0": (FULL, RATE), "mlx5_1": narrow} for name in "ab"})) == {}


def test_alone_a_nic_is_held_against_its_own_best(tmp_path: Path) -> None:
    assert of(signs(tmp_path, {"a": {"mlx5_0": ((FULL[0], "4"), RATE)}})) == {0: [Oddity.NARROW_NIC]}


def test_a_virtual_function_knows_no_link(tmp_path: Path) -> None:
    hosts = {name: {"mlx5_0": (("Unknown", "0") if name == "b" else FULL, RATE)} for name in "ab"}
    assert of(signs(tmp_path, hosts)) == {}


@pytest.mark.parametrize(
    ("factor", "at", "named"), [(3.2, (1,), (1,)), (1.4, (1,), (0, 1)), (3.2, (0, 1), (0, 1)), (3.2, (), (0, 1))],
    ids=["one", "too little", "both", "neither"],
)  # fmt: skip
def test_of_two_ends_of_a_slow_link_the_one_with_the_narrow_slot_is_meant(
    factor: float, at: tuple[int, ...], named: tuple[int, ...]
) -> None:
    """All that it moves goes through the slot, which does not carry what others move."""
    odd = Hardware({rank: (Sign(Oddity.NARROW_NIC, "4 lanes", f"ib.json#mlx5_{rank}", factor),) for rank in at}, frozenset())
    link = replace(finding(Cause.NETWORK_SLOW, 0, 1, members=Members.ONE_OF), mechanism=Mechanism("slow_flow", "unknown"))
    found = odd.refined(link, (Cause.NETWORK_SLOW,), 3.2)
    assert (found.ranks, found.members is Members.EACH) == (named, named == (1,) or len(at) == 2)
    if named == (1,):
        assert found.resource == Resource(nic="mlx5_1", peer_ranks=(0,)) and found.mechanism == Mechanism("slow_flow", "local")
