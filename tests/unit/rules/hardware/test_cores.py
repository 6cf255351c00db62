"""What cores that are taken tell of slow transfers and proxies that pause: on findings and node facts made up."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import orjson
import pytest

from forensics.case.build import open_case
from forensics.model import Belief, Cause, Component, Confidence, Evidence, Finding, Granularity, Members, StageRef
from forensics.rules.reductions.hardware.cores import BusyHosts, TakenCores, busy_hosts, late_by_hosts, shown_by_cores
from forensics.rules.reductions.ranks.roster import RankFacts, Roster

PLACES = Roster(ranks={rank: RankFacts(rank, host=f"n{rank // 2}") for rank in range(8)}, world_size=8)
SLOW = Finding(
    ranks=(1, 3, 5), cause=Cause.NETWORK_SLOW, stage=StageRef(), belief=Belief.GROUP_SYMPTOM, confidence=Confidence.SUSPECT,
    evidence=(), granularity=Granularity.GROUP, members=Members.ONE_OF,
)  # fmt: skip
PAUSES = replace(SLOW, ranks=(2,), cause=Cause.PROXY_DELAY, members=Members.EACH, granularity=Granularity.RANK)


def busy(**waiting: float) -> BusyHosts:
    return BusyHosts({host: TakenCores(host, share, 0.4, "node.json") for host, share in waiting.items()})


def test_one_of_several_on_a_host_plainly_short_of_cores_is_named_with_its_host() -> None:
    found = shown_by_cores(SLOW, busy(n1=42.0), PLACES)
    assert (found.ranks, found.members, found.granularity) == ((2, 3), Members.EACH, Granularity.HOST)
    assert (found.cause, found.confidence) == (Cause.CPU_CONTENTION, Confidence.SUSPECT)


def test_proxies_that_pause_on_a_host_short_of_cores_have_that_cause() -> None:
    found = shown_by_cores(PAUSES, busy(n1=12.0), PLACES)
    assert (found.ranks, found.cause) == ((2,), Cause.CPU_CONTENTION)


@pytest.mark.parametrize(
    ("finding", "hosts"),
    [
        (SLOW, busy(n1=15.0)),
        (SLOW, busy(n0=42.0, n1=42.0)),
        (SLOW, busy(n3=42.0)),
        (replace(SLOW, members=Members.EACH), busy(n1=42.0)),
        (replace(SLOW, cause=Cause.PCIE_DEGRADED), busy(n1=42.0)),
        (PAUSES, busy(n0=42.0)),
    ],
    ids=["busy with data", "two hosts", "none of theirs", "all of them", "another cause", "another host"],
)
def test_nothing_changes(finding: Finding, hosts: BusyHosts) -> None:
    assert shown_by_cores(finding, hosts, PLACES) is finding


def late(rank: int, cause: Cause = Cause.UNKNOWN) -> Finding:
    doubt = Evidence("start times were not recorded", None, supports=False)
    return replace(PAUSES, ranks=(rank,), cause=cause, evidence=(Evidence(f"rank {rank} is last"), doubt))


ON_DEVICE = replace(late(3, Cause.COMPUTE_SLOW), stage=StageRef(component=Component.COMPUTE))


def test_late_ranks_of_a_host_plainly_short_of_cores_are_late_by_that() -> None:
    """A rank of it that starts its device late is no fault of its own, and those that were in time wait for cores as well."""
    in_step = replace(late(2), ranks=(2, 3), members=Members.ONE_OF)
    assert [each.ranks for each in late_by_hosts([in_step], busy(n1=42.0), PLACES)] == [(2, 3)]
    (found,) = late_by_hosts([late(2), late(3, Cause.HOST_STALL)], busy(n1=42.0), PLACES)
    assert (found.ranks, found.members, found.granularity) == ((2, 3), Members.EACH, Granularity.HOST)
    assert (found.cause, found.confidence) == (Cause.CPU_CONTENTION, Confidence.LIKELY)
    assert [each.statement[:13] for each in found.evidence] == ["rank 3 is las", "rank 2 is las", "n1 is short o"]
    in_a_pass = late(3, Cause.COMPUTE_SLOW)  # by its stacks: its host is there, whatever its device does
    assert [each.ranks for each in late_by_hosts([late(2), in_a_pass], busy(n1=42.0), PLACES)] == [(2, 3)]


@pytest.mark.parametrize(
    ("found", "hosts"),
    [
        ([late(2)], busy(n1=42.0)),
        ([late(2), late(4)], busy(n1=42.0)),
        ([late(2), late(3)], busy(n1=15.0)),
        ([late(2), late(3)], busy(n0=42.0)),
        ([late(2), ON_DEVICE], busy(n1=42.0)),
        ([replace(late(2), ranks=(2, 4), members=Members.ONE_OF)], busy(n1=42.0)),
        ([], busy(n1=42.0)),
    ],
    ids=["one rank", "of two hosts", "busy with data", "another host", "its device is late", "one of two hosts", "nobody"],
)
def test_other_late_ranks_stay_what_they_are(found: list[Finding], hosts: BusyHosts) -> None:
    assert list(late_by_hosts(found, hosts, PLACES)) == found


@pytest.mark.parametrize(
    ("waiting", "found"),
    [([40.0, 0.5, 0.4, 0.6], ["n0"]), ([8.0, 0.5, 0.4, 0.6], []), ([40.0, 20.0, 20.0, 20.0], []), ([40.0, 0.5], [])],
    ids=["one", "a little", "all are busy", "too few beside it"],
)
def test_hosts_whose_cores_are_taken(waiting: list[float], found: list[str], tmp_path: Path) -> None:
    for number, share in enumerate(waiting):
        name = f"n{number}"
        facts = {"node": name, "hostname": name, "boot_id": "b", "clocks": [], "processes_seen": 1, "ptrace_scope": 0}
        pressure = {"cpu": {"some": {"avg10": share, "avg60": share, "total_us": 1}}}
        (tmp_path / "nodes" / name).mkdir(parents=True)
        (tmp_path / "nodes" / name / "node.json").write_bytes(orjson.dumps(facts | {"cpu": {"cores": 8, "pressure": pressure}}))
    (tmp_path / "rank0.log").write_text("step 1\n")
    assert sorted(busy_hosts(open_case([tmp_path]))) == found
