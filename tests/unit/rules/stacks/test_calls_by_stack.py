"""Only stacks, and everybody is in communication: who is in another collective, and what accuses nobody."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import pytest

from forensics.case.build import open_case
from forensics.model import Confidence, Members, Outcome, Verdict
from forensics.rules.diagnosis import diagnose
from tests.recordings.collection import Collection, loose
from tests.recordings.job import START_NS, Job
from tests.recordings.places import ALL_REDUCE, BARRIER, BROADCAST, GRADIENT_HOOK, JOB, RECV, Place
from tests.recordings.verdicts import leaders, named, verdict_of


def seen(folder: Path, places: Mapping[int, Place], *, samples: int = 3, world: int = 4) -> Verdict:
    """Stacks of every rank, and what the kernel tells of its process; no dumps."""
    found = Collection(world, START_NS)
    for rank in range(world):
        found.rank(rank)
        found.samples(rank)
        found.stacks(rank, *[places.get(rank, ALL_REDUCE)] * samples)
    return verdict_of(found.write(folder))


@pytest.mark.parametrize("usual", [ALL_REDUCE, GRADIENT_HOOK])
def test_a_rank_by_itself_in_another_collective_is_a_suspect(usual: Place, tmp_path: Path) -> None:
    """Hooks below the autograd engine reduce gradients."""
    verdict = seen(tmp_path, {0: usual, 1: usual, 2: BARRIER, 3: usual})
    (first,) = leaders(verdict)
    assert (first.ranks, first.rules[0], first.confidence) == ((2,), "FX121", Confidence.SUSPECT)


@pytest.mark.parametrize(
    "places",
    [{}, {2: RECV}, {2: BARRIER, 3: RECV}, {0: BARRIER, 2: BROADCAST}],
    ids=["all in one", "a message", "both", "three calls"],
)
def test_where_others_may_be_in_it_too_nobody_is_distinguished_from_the_rest(
    places: Mapping[int, Place], tmp_path: Path
) -> None:
    assert all(len(suspect.ranks) == 4 and suspect.members == "one_of" for suspect in seen(tmp_path, places).suspects)


def test_of_several_that_are_in_another_collective_one_is_at_fault(tmp_path: Path) -> None:
    """They may be a group of their own, in which one of them, or the network below it, is stuck."""
    first = seen(tmp_path, {4: BARRIER, 5: BARRIER}, world=8).suspects[0]
    assert (first.ranks, first.members, first.confidence) == ((4, 5), Members.ONE_OF, Confidence.SUSPECT)


def test_ranks_in_three_calls_are_members_of_several_groups(tmp_path: Path) -> None:
    """Rank 1 left out a call of its group with rank 0 and is where most are; rank 2 waits for rank 0 in another group."""
    (first,) = seen(tmp_path, {0: BARRIER, 2: BROADCAST}).suspects
    assert (first.ranks, first.members, first.rules) == ((0, 1, 2, 3), Members.ONE_OF, ("FX140",))
    assert "left out a call of its group" in first.next_steps[0]


def test_a_majority_that_came_to_its_call_by_two_ways_tells_nobody(tmp_path: Path) -> None:
    """Rank 1 took the groups in another order: rank 0, alone in its call, is the one that did as it should."""
    elsewhere = (*ALL_REDUCE[:-2], ("main", JOB, 84), ALL_REDUCE[-1])
    (first,) = seen(tmp_path, {0: BARRIER, 1: elsewhere}).suspects
    assert (first.ranks, first.members) == ((0, 1, 2, 3), Members.ONE_OF)


def test_of_two_ranks_either_may_be_wrong(tmp_path: Path) -> None:
    assert all(len(suspect.ranks) == 2 for suspect in seen(tmp_path, {1: BARRIER}, world=2).suspects)


def test_one_sample_is_what_a_moving_job_looks_like(tmp_path: Path) -> None:
    assert not seen(tmp_path, {2: BARRIER}, samples=1).suspects


def test_members_that_all_wait_accuse_nobody_where_one_may_not_be_seen(tmp_path: Path) -> None:
    """gloo does not write down who is in a group: the last rank may have left nothing, and be the one they wait for."""
    job = Job(4)
    job.steps(12)
    job.hang({3})
    dumps = loose(job, tmp_path)
    (dumps / "nccl_trace_rank_3").unlink()
    verdict = verdict_of(dumps)
    assert named(verdict) <= {3}
    assert not [suspect for suspect in verdict.suspects if set(suspect.ranks) & {0, 1, 2}]
    reasons = [each.withheld for each in verdict.assessments if each.rules == ("FX140",)]
    assert reasons == ["how many ranks take part is not known: one that left nothing may be the one that the others wait for"]


def test_waits_that_stand_still_are_a_hang_of_nobody(tmp_path: Path) -> None:
    """The size of the job is not known, and its ranks were seen in the same call twice."""
    found = Collection(3, START_NS)
    for rank in range(3):
        found.rank(rank)
        found.samples(rank)
        found.stacks(rank, ALL_REDUCE, ALL_REDUCE)
    with open_case([found.write(tmp_path)]) as case:
        case.execute("DELETE FROM job_config WHERE key = 'world_size'")
        verdict = diagnose(case)
    assert (verdict.outcome, verdict.suspects) == (Outcome.HANG, ())
    assert "nobody can be named" in verdict.summary
