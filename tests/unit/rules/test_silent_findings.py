"""Ranks that left nothing: absence is evidence when it is one rank, a gap when it is most of them."""

from __future__ import annotations

from pathlib import Path

import pytest

from forensics.case.build import open_case
from forensics.model import Cause, Confidence, Members, Outcome
from forensics.rules.engine import supply_of
from forensics.rules.reductions.network.failed_queue_pairs import FailedQueuePairs
from forensics.rules.reductions.network.work_requests import QueuePair
from forensics.rules.telemetry.rank_silent import RULE
from tests.recordings.collection import Collection, loose, process_sample, py_spy, whole
from tests.recordings.job import SECOND, Job
from tests.recordings.places import ALL_REDUCE, BARRIER, HOST_CODE, OTHER_CODE, RECV, Place
from tests.recordings.verdicts import named, verdict_of


@pytest.mark.parametrize(("backend", "confidence"), [("nccl", Confidence.LIKELY), ("nccl2", Confidence.SUSPECT)])
def test_absence_says_less_where_a_dump_was_not_to_be_expected(backend: str, confidence: Confidence, tmp_path: Path) -> None:
    """nccl2 dumps only in processes that noticed a failure: whoever waits for nothing leaves none."""
    job = Job(4, backend)
    job.steps(10)
    job.hang({2})
    (first,) = verdict_of(loose(job, tmp_path, ranks=(0, 1, 3))).suspects
    assert (first.ranks, first.cause, first.rules, first.confidence) == ((2,), Cause.UNKNOWN, ("FX150",), confidence)
    doubts = [item.statement for item in first.evidence if not item.supports]
    assert any("leaves none" in doubt for doubt in doubts) is (backend == "nccl2")


@pytest.mark.parametrize(("apart", "ranks", "members"), [(ALL_REDUCE, (0,), Members.EACH), (BARRIER, (0, 2), Members.ONE_OF)])
def test_waiters_in_different_collectives_do_not_agree_on_the_silent_rank(
    apart: Place, ranks: tuple[int, ...], members: Members, tmp_path: Path
) -> None:
    """Nobody sampled rank 0: in one job all others wait in the same call, in the other rank 2 made one of its own."""
    found = Collection(4, 60 * SECOND)
    for rank in (1, 2, 3):
        found.rank(rank)
        found.samples(rank)
        found.stacks(rank, *[apart if rank == 2 else ALL_REDUCE] * 3)
    (first,) = verdict_of(found.write(tmp_path)).suspects
    assert (first.ranks, first.members, first.rules) == (ranks, members, ("FX150",))
    assert first.confidence is (Confidence.SUSPECT if len(ranks) > 1 else Confidence.LIKELY)


def test_silent_ranks_of_one_host_cannot_be_distinguished(tmp_path: Path) -> None:
    job = Job(6)
    job.steps(10)
    job.hang({2, 3})
    verdict = verdict_of(loose(job, tmp_path, ranks=(0, 1, 4, 5)))
    (first,) = verdict.suspects
    assert (first.ranks, first.members, first.confidence) == ((2, 3), "one_of", Confidence.SUSPECT)


@pytest.mark.parametrize(("after_s", "outcome"), [(60.0, Outcome.HANG), (0.01, Outcome.INCONCLUSIVE)])
def test_silent_ranks_here_and_there_are_files_that_were_lost(after_s: float, outcome: Outcome, tmp_path: Path) -> None:
    """No fault of one rank or one host silences ranks 2 and 5 and leaves those between; the others stand still all the same."""
    job = Job(8)
    job.steps(10)
    job.hang({2})
    found = Collection(8, job.now_ns + int(after_s * SECOND))
    for rank in (0, 1, 3, 4, 6, 7):
        found.rank(rank)
        found.dump(job, rank)
    verdict = verdict_of(found.write(tmp_path))
    assert (named(verdict), verdict.outcome) == (set(), outcome)
    assert ("ranks 2,5 left neither dump nor stack" in verdict.summary) is (outcome is Outcome.HANG)


def grid(missing: set[int], *, columns_first: bool = False) -> Job:
    """Three rows and four columns: in the last step ranks are missing in their rows; hosts of the others have gone on.

    With `columns_first` they are missing in their columns, and the rows come behind these.
    """
    job = Job(12, "nccl")
    rows = [job.group(range(first, first + 4), "shards") for first in (0, 4, 8)]
    columns = [job.group(range(first, 12, 4), "replicas") for first in range(4)]
    for _ in range(8):
        for group in (*rows, *columns):
            job.call(group)
    ahead, behind = (columns, rows) if columns_first else (rows, columns)
    for group in ahead:
        there = [rank for rank in group.members if rank not in missing]
        job.call(group, "all_gather", there, done=len(there) == len(group.members))
    for group in behind:
        job.call(group, "all_reduce", [rank for rank in group.members if rank not in missing], done=False)
    return job


@pytest.mark.parametrize(
    ("missing", "lost", "who"),
    [
        ({5}, {5, 10}, {5}),
        ({5}, {5, 10, 3}, {5}),
        ({5}, {5, 9}, {5}),
        ({5, 2}, {5, 2}, set()),
        ({5}, {5, 7, 10}, set()),
    ],
    ids=["a lost victim", "two of them", "one in a later call of it", "two are missing first", "two in one call"],
)
def test_of_silent_ranks_one_is_missing_in_what_others_stand_in_first(
    missing: set[int], lost: set[int], who: set[int], tmp_path: Path
) -> None:
    """Rank 10 may wait in its column, to which rank 6 has not come: it stands in its row, which lacks rank 5."""
    job = grid(missing)
    found = Collection(12, job.now_ns + 60 * SECOND)
    for rank in set(range(12)) - lost:
        found.rank(rank)
        found.dump(job, rank)
    verdict = verdict_of(found.write(tmp_path))
    assert (named(verdict), verdict.outcome) == (who, Outcome.HANG)
    assert {suspect.confidence for suspect in verdict.suspects} <= {Confidence.SUSPECT}


def test_a_silent_rank_may_wait_in_an_earlier_call_for_another_one(tmp_path: Path) -> None:
    """Rank 9 did not come to its column, in which rank 5 may wait for it: that its row lacks rank 5 alone shows nothing."""
    job = grid({9}, columns_first=True)
    assert named(verdict_of(loose(job, tmp_path, ranks=(0, 1, 2, 3, 4, 6, 7)))) == set()


@pytest.mark.parametrize(("kept", "ranks"), [(0.5, (4, 5, 6, 7)), (0.0, (5,))])
def test_a_rank_whose_record_breaks_off_may_have_issued_the_call(kept: float, ranks: tuple[int, ...], tmp_path: Path) -> None:
    job = grid({5})
    found = Collection(12, job.now_ns + 60 * SECOND)
    for rank in set(range(12)) - {9}:
        found.rank(rank)
        found.dump(job, rank)
    dump = found.members["ranks/5/fr/0.json"]
    found.members["ranks/5/fr/0.json"] = dump[: int(kept * len(dump))]
    (suspect,) = verdict_of(found.write(tmp_path)).suspects
    assert (suspect.ranks, suspect.confidence) == (ranks, Confidence.SUSPECT)
    assert suspect.members is (Members.ONE_OF if len(ranks) > 1 else Members.EACH)


@pytest.mark.parametrize(("stacks", "ranks"), [((0, 1, 3, 5), set()), ((0, 1), {2}), ((0, 1, 3, 4, 5), {2})])
def test_a_silent_rank_between_gaps_may_have_been_lost_as_well(
    stacks: tuple[int, ...], ranks: set[int], tmp_path: Path
) -> None:
    """Rank 4 was alive to write its dump and has no stack, though both its neighbours have: what else was lost nobody knows."""
    job = Job(6, "nccl")
    job.steps(10)
    job.hang({2})
    folder = loose(job, tmp_path, ranks=(0, 1, 3, 4, 5))
    for rank in stacks:
        (folder / f"rank{rank}.stacks.txt").write_bytes(py_spy(ALL_REDUCE, 4100 + rank))
    assert named(verdict_of(folder)) == ranks


def test_more_silent_ranks_than_others_accuse_nobody(tmp_path: Path) -> None:
    """Three of four hosts were not collected: that is a gap, not a finding."""
    job = Job(8, "nccl")
    job.steps(10)
    job.hang({5})
    verdict = verdict_of(loose(job, tmp_path, ranks=(0, 1)))
    assert verdict.outcome is Outcome.INCONCLUSIVE
    assert not verdict.suspects


def test_a_rank_without_a_dump_but_inside_the_operation_is_not_silent(tmp_path: Path) -> None:
    """Rank 3 has no dump, its stack shows that it waits like the others; rank 2 is the one that does not."""
    job = Job(4)
    job.steps(10)
    job.hang({2})
    found = Collection(4, job.now_ns + 60 * SECOND)
    for rank in range(4):
        found.rank(rank)
        found.samples(rank)
        found.stacks(rank, *[HOST_CODE if rank == 2 else ALL_REDUCE] * 3)
        if rank != 3:
            found.dump(job, rank)
    assert named(verdict_of(found.write(tmp_path))) == {2}


def test_a_silent_victim_in_a_grid_is_no_second_fault(tmp_path: Path) -> None:
    """TP 2 x DP 2: rank 2 is busy; its partner 3 waits in their pair and left nothing, and rank 1 waits for 3."""
    job = Job(4)
    pairs = [job.group((first, first + 1)) for first in (0, 2)]
    columns = [job.group((first, first + 2)) for first in (0, 1)]
    for _ in range(8):
        for group in (*pairs, *columns):
            job.call(group)
    job.call(pairs[0])
    job.hang({2}, pairs[1])
    job.hang({2}, columns[0])
    job.hang({3}, columns[1])
    found = Collection(4, job.now_ns + 60 * SECOND)
    for rank in (0, 1, 2):
        found.rank(rank)
        found.samples(rank)
        found.dump(job, rank)
        found.stacks(rank, *[HOST_CODE if rank == 2 else ALL_REDUCE] * 3)
    verdict = verdict_of(found.write(tmp_path))
    assert verdict.suspects[0].ranks == (2,)
    assert {suspect.fault for suspect in verdict.suspects} == {1}


def test_a_process_that_ends_while_it_is_looked_at_is_dead(tmp_path: Path) -> None:
    """It ran when the ranks were found, and was a zombie in the later samples."""
    job = Job(4)
    job.steps(10)
    job.hang({2})
    found = whole(job, {})
    for number in range(3):
        del found.members[f"ranks/2/stacks/{number}.json"]
        sample = process_sample(2, found.at_ns + 2 * number * SECOND, state="Z" if number else "R")
        found.members[f"ranks/2/proc/{number}.json"] = sample
    del found.members["ranks/2/fr/0.json"]
    first = verdict_of(found.write(tmp_path)).suspects[0]
    assert (first.ranks, first.cause) == ((2,), Cause.PROCESS_DEAD)


@pytest.mark.parametrize(("name", "is_named"), [("dump (3).txt", False), ("rank0.stacks.json", True)])
def test_a_file_of_an_unknown_rank_may_be_that_of_the_missing_one(name: str, is_named: bool, tmp_path: Path) -> None:
    """Files that a browser has numbered tell no rank; those of a rank that has spoken already are no excuse."""
    job = Job(4)
    job.steps(10)
    job.hang({2})
    folder = loose(job, tmp_path, ranks=(0, 1, 3))
    (folder / name).write_bytes(py_spy(ALL_REDUCE, 4130))
    assert named(verdict_of(folder)) == ({2} if is_named else set())


@pytest.mark.parametrize(("others", "is_named"), [(RECV, False), (ALL_REDUCE, True)])
def test_a_dump_that_stands_where_a_waiting_rank_stands_needs_a_stack(others: Place, is_named: bool, tmp_path: Path) -> None:
    """gloo writes no receive down: 0 and 3 wait in one before they reach the all_reduce; so may 1."""
    job = Job(4)
    job.steps(10)
    for pair in ((0, 1), (3, 1)):
        job.call(job.everyone, "send", pair)
    job.hang({0, 1, 3} if others is RECV else {1})
    found = Collection(4, job.now_ns + 60 * SECOND)
    for rank in range(4):
        found.rank(rank)
        found.dump(job, rank)
        if rank != 1:
            found.stacks(rank, *[ALL_REDUCE if rank == 2 else others] * 3)
    assert named(verdict_of(found.write(tmp_path))) == ({1} if is_named else set())


@pytest.mark.parametrize(("place", "ranks"), [(OTHER_CODE, set()), (HOST_CODE, {2})], ids=["their line", "another line"])
def test_a_rank_without_a_dump_on_the_line_of_those_that_wait_is_not_named(
    tmp_path: Path, place: Place, ranks: set[int]
) -> None:
    """A wait for a device leaves no frame: what its peers are recorded to wait in, it may wait in as well."""
    job = Job(4)
    job.steps(10)
    job.hang({2})
    found = Collection(4, job.now_ns + 60 * SECOND)
    for rank in range(4):
        found.rank(rank)
        found.stacks(rank, *[place if rank == 2 else OTHER_CODE] * 2)
        if rank != 2:
            found.dump(job, rank)
    accused = [suspect for suspect in verdict_of(found.write(tmp_path)).suspects if suspect.members is Members.EACH]
    assert {rank for suspect in accused for rank in suspect.ranks} == ranks


@pytest.mark.parametrize(
    ("ends", "is_named"), [((0, 1), False), ((0, 2), True), ((0, None), True)], ids=["others", "its own", "open"]
)
def test_a_way_of_others_that_failed_in_the_same_call_accounts_for_the_wait(
    ends: tuple[int, int | None], is_named: bool, tmp_path: Path
) -> None:
    job = Job(4, "nccl")
    job.steps(10)
    job.hang({2})
    supply = supply_of(open_case([loose(job, tmp_path, ranks=(0, 1, 3))]))
    rank, peer = ends
    failed = QueuePair(rank, "mlx5_0/7", "mlx5_0", 1, peer, None, 2, SECOND, 12, 129, 0, "log")
    found = list(supply.call(RULE.evaluate, {FailedQueuePairs: FailedQueuePairs((failed,))}))
    assert bool(found) is is_named


@pytest.mark.parametrize(("ranks", "who"), [((0, 1, 2), {3}), ((0, 1), set())])
def test_stacks_of_some_ranks_single_out_no_group_of_the_others(ranks: tuple[int, ...], who: set[int], tmp_path: Path) -> None:
    """Somebody took stacks of half of the ranks, once: all of these are in the reduction, as in a job that moves."""
    for rank in ranks:
        (tmp_path / f"py-spy_{4100 + rank}.txt").write_bytes(py_spy(ALL_REDUCE, 4100 + rank))
        (tmp_path / f"env_{4100 + rank}.txt").write_bytes(f"RANK={rank}\0WORLD_SIZE=4\0".encode())
    verdict = verdict_of(tmp_path)
    assert (named(verdict), verdict.outcome) == (who, Outcome.INCONCLUSIVE)


def test_several_dumps_of_gloo_that_nobody_handed_in_are_a_lead(tmp_path: Path) -> None:
    """Dumps of gloo are asked for: half of those of a sound job look like these, and nothing dates them."""
    job = Job(4, "gloo")
    job.steps(10)
    job.hang({2, 3})
    assert verdict_of(loose(job, tmp_path, ranks=(0, 1))).outcome is Outcome.INCONCLUSIVE
