"""Hosts of which nearly all NICs lack rate with every peer, distinguished from single NICs, single directions, and chance."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import permutations

import numpy as np
import pytest

from forensics.rules.reductions.epochs.links import LinkRate, LinkRates
from forensics.rules.reductions.epochs.slow_hosts import slow_hosts
from forensics.rules.reductions.epochs.slow_links import JudgedLinks, judged_links
from forensics.rules.reductions.ranks.nic_users import CapturedUsers, NicUsers

_HOSTS, _BEST = 4, 16e9


def judged(
    can: Mapping[int, float], rails: int = 8, spread: float = 0.04, seed: int = 1, sends: Sequence[int] = ()
) -> JudgedLinks:
    """An exchange on each rail with a ring over it: a link moves what the slower of its NICs can; `sends` that way only."""
    random = np.random.default_rng(seed)
    links = []
    for rail in range(rails):
        for a, b in permutations(range(_HOSTS), 2):
            sender, receiver = rails * a + rail, rails * b + rail
            part = min(can.get(sender, 1.0), 1.0 if receiver in sends else can.get(receiver, 1.0))
            rate = _BEST * part * float(np.exp(random.normal(0, spread)))
            volume = 5e9 if b == (a + 1) % _HOSTS else 1e9
            links.append(LinkRate(sender, receiver, rate, volume, 100, 10**10, sender, f"{sender}", "mlx5_0"))
    return judged_links(LinkRates(tuple(links), (), 32_000), CapturedUsers(NicUsers()))


def named(links: JudgedLinks, rails: int = 8) -> list[str]:
    return [each.host for each in slow_hosts(links, {rank: f"n{rank // rails}" for rank in range(_HOSTS * rails)})]


def test_two_hosts_whose_nics_lose_unequally_are_named_and_those_behind_them_are_not() -> None:
    lost = np.random.default_rng(3).uniform(0.1, 0.35, 16)
    assert named(judged({rank: 1 - float(part) for rank, part in enumerate(lost)})) == ["n0", "n1"]


def test_a_nic_of_a_host_that_others_leave_alone_does_not_clear_it() -> None:
    can = dict.fromkeys(range(8), 0.75) | {3: 1.0}
    assert named(judged(can)) == ["n0"]


@pytest.mark.parametrize("seed", range(12))
@pytest.mark.parametrize("spread", [0.02, 0.06])
def test_sound_hosts_are_not_named(seed: int, spread: float) -> None:
    assert named(judged({}, spread=spread, seed=seed)) == []


@pytest.mark.parametrize(
    "can",
    [{0: 0.4}, {0: 0.5, 1: 0.5, 2: 0.5}, dict.fromkeys(range(8), 0.92), dict.fromkeys(range(24), 0.7)],
    ids=["one NIC", "three of eight", "all of a host by a few per cent", "most hosts"],
)
def test_less_than_a_host_and_more_than_half_of_the_hosts_are_not_named(can: dict[int, float]) -> None:
    assert named(judged(can)) == []


def test_hosts_of_two_nics_are_left_to_what_single_nics_show() -> None:
    assert named(judged(dict.fromkeys(range(2), 0.7), rails=2), rails=2) == []


def test_a_host_that_only_sends_slowly_reaches_the_full_rate_as_it_receives() -> None:
    assert named(judged(dict.fromkeys(range(8), 0.7), sends=range(8))) == []


@pytest.mark.parametrize(("part", "found"), [(0.2, []), (0.75, ["n0"])], ids=["far slower", "as slow as the host"])
def test_a_host_in_a_ring_with_a_nic_elsewhere_that_is_far_slower_may_wait_for_it(part: float, found: list[str]) -> None:
    assert named(judged(dict.fromkeys(range(8), 0.75) | {16: part})) == found
