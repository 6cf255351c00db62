"""Which host to begin with in a job that may be slow, by its cores and by guests on its GPUs."""

from __future__ import annotations

from collections.abc import Collection, Mapping

import pytest

from forensics.case.database import insert_rows, new_case
from forensics.rules.leads.hosts import crowded_leads, host_leads, stopped_leads
from forensics.rules.reductions.hardware.causes import Hardware, Oddity, Sign
from forensics.rules.reductions.hardware.cores import BusyHosts, TakenCores
from forensics.rules.reductions.hardware.cpu import cpu_use
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


@pytest.mark.parametrize(
    ("children", "begins_with"),
    [
        ({1: 4}, "what rank 1 started on n0 (4.0 of the threads that were ready to run): n0 is short of CPU: 7.0 threads"),
        ({0: 3, 1: 3, 2: 3}, "what runs on n0 beside the job: n0 is short of CPU"),
        ({}, "what runs on n0 beside the job: n0 is short of CPU"),
    ],
    ids=["one rank", "each rank has workers", "nobody"],
)
def test_whose_processes_take_the_cores_of_a_host(children: Mapping[int, int], begins_with: str) -> None:
    connection = new_case()
    insert_rows(connection, "sources", "source_id path kind status rows", [(0, "proc.json", "process_facts", "ok", 1)])
    of_ranks = [(rank, 100 + rank, False) for rank in range(3)]
    started = [(rank, 1000 * (rank + 1) + number, True) for rank, count in children.items() for number in range(count)]
    rows: list[tuple[object, ...]] = [
        (0, rank, "n0", pid, pid, is_child, sample, sample * 10**9, "R", 20 * sample)
        for rank, pid, is_child in (*of_ranks, *started)
        for sample in range(3)
    ]
    insert_rows(connection, "processes", "source_id rank host pid thread is_child sample time_ns state cpu_ticks", rows)
    (lead,) = crowded_leads(cpu_use(connection))
    assert lead.startswith(begins_with)


@pytest.mark.parametrize(
    ("states", "expected"),
    [({2: "TTTTTT"}, 1), ({2: "TSTSTS"}, 0), ({2: "T"}, 0), (dict.fromkeys(range(4), "TTT"), 0), ({}, 0)],
    ids=["in all samples", "in some", "in the only one", "all ranks", "nobody"],
)
def test_a_process_that_every_sample_finds_stopped_in_a_job_that_goes_on(states: Mapping[int, str], expected: int) -> None:
    roster = Roster({rank: RankFacts(rank, thread_states=tuple(states.get(rank, "SSSSSS"))) for rank in range(4)}, 4)
    leads = list(stopped_leads(roster))
    assert len(leads) == expected
    assert all(lead.startswith("what stops rank 2 again and again") for lead in leads)
