"""Which host to begin with in a job that may be slow, by its cores and by guests on its GPUs."""

from __future__ import annotations

from collections.abc import Collection, Mapping

import pytest

from forensics.rules.leads.hosts import host_leads
from forensics.rules.reductions.hardware.causes import Hardware, Oddity, Sign
from forensics.rules.reductions.hardware.cores import BusyHosts, TakenCores
from forensics.rules.reductions.ranks.roster import RankFacts, Roster

ROSTER = Roster({rank: RankFacts(rank, host=f"n{rank // 2}") for rank in range(8)}, 8)


def leads(waiting: Mapping[str, float], guests: Collection[int] = ()) -> tuple[str, ...]:
    busy = BusyHosts({host: TakenCores(host, share, 0.5, f"{host}.json") for host, share in waiting.items()})
    sign = (Sign(Oddity.SHARED, "a guest", "smi.xml"),)
    return host_leads(busy, Hardware(dict.fromkeys(guests, sign)), ROSTER)


@pytest.mark.parametrize(
    ("waiting", "host"),
    [
        ({"n1": 34.0, "n0": 15.0}, "n1"),
        ({"n1": 15.0}, None),
        ({"n1": 34.0, "n0": 50.0}, None),
        ({"login": 60.0}, None),
        ({}, None),
    ],
    ids=["plainly", "a fifth", "two", "a host without ranks", "none"],
)
def test_the_one_host_that_is_plainly_short_of_cores(waiting: Mapping[str, float], host: str | None) -> None:
    assert [host in each for each in leads(waiting) if host] == ([True] if host else [])
    assert bool(leads(waiting)) is (host is not None)


@pytest.mark.parametrize(
    ("guests", "hosts"),
    [((2, 3), "n1"), ((2, 3, 4, 5), "n1, n2"), ((2,), None), ((2, 3, 4), "n1"), (range(6), None), ((2, 3, 4, 6), None)],
    ids=["one host", "two of four", "on one GPU", "another here and there", "most hosts", "on many"],
)
def test_hosts_with_a_guest_on_every_gpu_where_most_have_none(guests: Collection[int], hosts: str | None) -> None:
    found = leads({}, guests)
    assert [f"on the GPUs of {hosts}:" in each for each in found] == ([True] if hosts else [])
