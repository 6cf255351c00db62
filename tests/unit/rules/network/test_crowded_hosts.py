"""Hosts over whose NICs others send beside the job, by what ports send in all and what captures say of the ranks, made up."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import pytest

from forensics.model import Cause, Granularity, Impact, Members
from forensics.rules.reductions.epochs.judged import JudgedLink
from forensics.rules.reductions.epochs.links import LinkRate
from forensics.rules.reductions.epochs.slow_links import JudgedLinks
from forensics.rules.reductions.hardware.causes import Hardware
from forensics.rules.reductions.hardware.state import Port
from forensics.rules.reductions.network.captured_uses import CapturedUses
from forensics.rules.reductions.network.crowded_hosts import CrowdedHosts, crowded_hosts, finding_of_crowded
from forensics.rules.reductions.network.line_uses import LineUse
from forensics.rules.reductions.network.other_traffic import PortsReadTwice
from forensics.rules.reductions.ranks.roster import RankFacts, Roster

GB = 1e9
# Four hosts of two ranks, each with a NIC of its own; rings of the even and of the odd ranks.
ROSTER = Roster({rank: RankFacts(rank, host=f"n{rank // 2}") for rank in range(8)}, 8)
RINGS = ((0, 2), (2, 4), (4, 6), (6, 0), (1, 3), (3, 5), (5, 7), (7, 1))
AT_1_AND_2 = ((0, 2), (2, 4), (4, 6), (1, 3), (3, 5), (5, 7))
ALIKE = (7.0,) * 4


def found(
    sent: Sequence[float],
    own: Sequence[float] = ALIKE,
    slow: Sequence[tuple[int, int]] = AT_1_AND_2,
    of_nic: Mapping[int, float] | None = None,
) -> CrowdedHosts:
    """By what each port of a host sends and its ranks move (GB/s); `of_nic` is what the port of a rank sends in its place."""
    sends = {rank: (of_nic or {}).get(rank, sent[rank // 2]) for rank in range(8)}
    ports = (
        Port(f"n{rank // 2}", f"m{rank}", "m/1", 2.0, {"port_xmit_data": int(gb * GB * 2 / 4)}, f"ib#{rank}")
        for rank, gb in sends.items()
    )
    uses = (LineUse(f"n{rank // 2}", f"m{rank}", (rank,), 5 * own[rank // 2] * GB, 0.2, 50 * GB, "x") for rank in range(8))
    links = (
        JudgedLink(LinkRate(*ends, 11 * GB if ends in slow else 15 * GB, GB, 10, 10**9, ends[0], "x"), 15 * GB, 7, ends in slow)
        for ends in RINGS
    )
    return crowded_hosts(PortsReadTwice(tuple(ports)), CapturedUses(tuple(uses)), JudgedLinks(tuple(links)), ROSTER)


def test_hosts_whose_ports_all_send_more_than_their_ranks_account_for_the_links_to_them() -> None:
    hosts = found([4, 14, 14, 4])
    assert [(each.host, each.ranks, each.nics) for each in hosts] == [("n1", (2, 3), 2), ("n2", (4, 5), 2)]
    said = finding_of_crowded(hosts, (), Hardware(), Impact(None, 0.1, None, "arrival"))
    assert (said.ranks, said.cause, said.members) == ((2, 3, 4, 5), Cause.NETWORK_CONGESTION, Members.EACH)
    assert said.granularity is Granularity.LINK


def test_one_host_may_be_crowded_alone() -> None:
    slow = [ends for ends in RINGS if {2, 3} & {*ends}]
    assert [each.host for each in found([4, 14, 4, 4], slow=slow)] == ["n1"]


@pytest.mark.parametrize(
    ("sent", "own", "slow", "of_nic"),
    [
        ([4, 8, 8, 4], ALIKE, AT_1_AND_2, None),
        ([4, 14, 14, 4], (7, 14, 14, 7), AT_1_AND_2, None),
        ([4, 14, 14, 4], ALIKE, RINGS, None),
        ([14, 14, 14, 4], ALIKE, RINGS, None),
        ([4, 14, 14, 4], ALIKE, AT_1_AND_2, {4: 4.0}),
        ([4, 14, 14, 4], ALIKE, ((0, 2), (2, 4)), None),
        ([4, 14, 14, 4], ALIKE, (), None),
    ],
    ids=[
        "little", "their ranks move more", "links elsewhere are slow", "on most hosts", "not on all ports of them",
        "one slow NIC", "nothing is slow",
    ],
)  # fmt: skip
def test_what_does_not_account_for_all_slow_links_names_no_host(
    sent: Sequence[float],
    own: Sequence[float],
    slow: Sequence[tuple[int, int]],
    of_nic: Mapping[int, float] | None,
) -> None:
    assert not found(sent, own, slow, of_nic)
