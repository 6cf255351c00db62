"""Slow links between two sets of hosts, and what looks like it: slow hosts, a rail, a network slow for all."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from itertools import product

import pytest

from forensics.model import Impact, StageRef
from forensics.rules.reductions.network.cuts import cuts
from forensics.rules.reductions.network.slow_ends import Link

GPUS, HOSTS = 2, 6
LEAF = range(3)
"""Hosts 0 to 2 are below one switch, 3 to 5 below another."""
FIRST, SECOND = ("n0", "n1", "n2"), ("n3", "n4", "n5")


def host_of(rank: int) -> str:
    return f"n{rank // GPUS}"


def ring(order: Iterable[int]) -> list[Link]:
    """Each rank of a host to that of the same number of the next one."""
    hosts = list(order)
    pairs = zip(hosts, [*hosts[1:], hosts[0]], strict=True)
    return [(GPUS * one + gpu, GPUS * other + gpu) for one, other in pairs for gpu in range(GPUS)]


LINKS = [*ring((0, 3, 1, 4, 2, 5)), *ring(range(3)), *ring(range(3, 6))]


def crosses(link: Link) -> bool:
    return len({rank // GPUS in LEAF for rank in link}) > 1


def sides(slow: Mapping[Link, float], links: Iterable[Link] = LINKS) -> list[tuple[tuple[str, ...], tuple[str, ...]]]:
    return [cut.sides for cut in cuts(slow, [link for link in links if link not in slow], host_of)]


def test_every_link_between_two_switches_is_slow() -> None:
    slow = {link: 9.0 for link in LINKS if crosses(link)}
    assert sides(slow) == [(FIRST, SECOND)]
    (cut,) = cuts(slow, [], host_of)
    stated = cut.finding(StageRef(), Impact(None, None, None, "arrival"), ())
    assert set(cut.links) == set(slow) and "n0, n1, n2 and n3, n4, n5" in stated.evidence[0].statement


def test_a_link_that_waits_for_the_slow_ones_is_none_of_them() -> None:
    slow = {link: 9.0 if crosses(link) else 1.0 for link in LINKS[:-2]}
    assert sides(slow) == [(FIRST, SECOND)]


def test_hosts_that_reach_each_other_well_are_of_one_side() -> None:
    """Pairs that no slow link ties to each other are one cut by the sound links inside the sides."""
    across = [(0, 6), (2, 8), (4, 10)]
    assert sides(dict.fromkeys(across, 9.0), [*across, *ring(range(3)), *ring(range(3, 6))]) == [(FIRST, SECOND)]
    assert sides(dict.fromkeys(across, 9.0), across) == [], "three pairs that nothing joins are three faults as well"


@pytest.mark.parametrize("hosts", [{1}, {1, 4}])
def test_slow_hosts_are_no_cut(hosts: set[int]) -> None:
    assert sides({link: 9.0 for link in LINKS if {rank // GPUS for rank in link} & hosts}) == []


def test_a_rail_is_no_cut() -> None:
    """The links of one GPU of each host are slow, those of the other one between the same hosts are not."""
    assert sides({link: 9.0 for link in LINKS if link[0] % GPUS}) == []


def test_a_sound_link_between_the_sides_speaks_against_it() -> None:
    slow = {link: 9.0 for link in LINKS if crosses(link)}
    slow.pop((0, 6))
    assert sides(slow) == []


def test_links_slow_in_every_direction_have_no_sides() -> None:
    every = {(GPUS * one, GPUS * other): 9.0 for one, other in product(range(HOSTS), repeat=2) if one != other}
    assert sides(every, []) == []
    assert sides({}) == []
