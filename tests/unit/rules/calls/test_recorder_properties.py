"""What Flight Recorder dumps of NCCL jobs are like: coalesced groups, wrapped rings, early dumps, numbers that are local."""

from __future__ import annotations

from pathlib import Path

import pytest

from forensics.model import Cause, Confidence, Verdict
from tests.recordings.coalesced import batch, single
from tests.recordings.collection import loose, whole, write
from tests.recordings.job import SECOND, Group, Job, as_json, as_pickle
from tests.recordings.parallel import Run, Shape
from tests.recordings.places import ALL_REDUCE, HOST_CODE
from tests.recordings.verdicts import blamed, leaders, named, verdict_of, victims


def stage_pairs(world: int = 4, steps: int = 6) -> tuple[Job, Group]:
    """A ring of pipeline stages that exchange in batches, and a reduction of all ranks in every step."""
    job = Job(world, "nccl")
    pipe = job.group(range(world), "PIPE")
    for _ in range(steps):
        for rank in range(world):
            exchange(job, pipe, rank)
            single(job, rank, job.everyone, "all_reduce")
    return job, pipe


def exchange(job: Job, pipe: Group, rank: int, *, done: bool = True, parts: str = "sr", end: str | None = "coalesced") -> None:
    """One batch of a rank: a send to the next stage, a receive from the one before."""
    world = len(pipe.members)
    calls = {"s": f"send {rank}->{(rank + 1) % world}", "r": f"recv {rank}<-{(rank - 1) % world}"}
    batch(job, rank, pipe, [calls[part] for part in parts], done=done, end=end)


@pytest.mark.parametrize("absent", range(4))
@pytest.mark.parametrize("form", ["pickle", "json"])
def test_finished_batches_are_not_pending(tmp_path: Path, absent: int, form: str) -> None:
    """Members of a batch stay scheduled for ever; only its closing entry shows that it is over."""
    job, _ = stage_pairs()
    for rank in range(4):
        if rank != absent:
            single(job, rank, job.everyone, "all_reduce", done=False)
    verdict = verdict_of(loose(job, tmp_path, form=form))
    assert named(verdict) == {absent}
    assert victims(verdict) == {rank: (absent,) for rank in range(4) if rank != absent}


@pytest.mark.parametrize("absent", range(4))
def test_a_rank_that_did_not_come_to_the_batch(tmp_path: Path, absent: int) -> None:
    job, pipe = stage_pairs()
    for rank in range(4):
        if rank != absent:
            exchange(job, pipe, rank, done=False)
    verdict = verdict_of(loose(job, tmp_path))
    assert named(verdict) == {absent}


def test_a_host_that_is_still_inside_the_group_call(tmp_path: Path) -> None:
    """Rank 2 stopped between the members and the closing entry: they are pending, like everybody else's."""
    job, pipe = stage_pairs()
    for rank in range(4):
        exchange(job, pipe, rank, done=False, end=None if rank == 2 else "coalesced")
    assert not blamed(verdict_of(loose(job, tmp_path)))


def test_a_stalled_ring_of_batches_is_one_group(tmp_path: Path) -> None:
    job, pipe = stage_pairs()
    for rank in range(4):
        exchange(job, pipe, rank, done=False)
    (suspect,) = verdict_of(loose(job, tmp_path)).suspects
    assert (suspect.ranks, suspect.members, suspect.confidence) == ((0, 1, 2, 3), "one_of", Confidence.SUSPECT)


def test_a_batch_that_misses_one_member(tmp_path: Path) -> None:
    """Rank 2 leaves its receive out: only rank 1's batch cannot end, everybody else goes on and waits for rank 1."""
    job, pipe = stage_pairs()
    for rank in range(4):
        exchange(job, pipe, rank, done=rank != 1, parts="s" if rank == 2 else "sr")
    for rank in (0, 2, 3):
        single(job, rank, job.everyone, "all_reduce", done=False)
    verdict = verdict_of(loose(job, tmp_path))
    assert {1, 2} <= named(verdict) <= {0, 1, 2, 3}
    assert 2 in leaders(verdict)[0].ranks


def shards(steps: int = 5, members: int = 2) -> tuple[Job, Group]:
    """Fully sharded layers: coalesced gathers of parameters, reductions of gradients."""
    job = Job(4, "nccl")
    shard = job.group(range(4), "FSDP")
    for _ in range(steps):
        for rank in range(4):
            batch(job, rank, shard, ["_all_gather_base"] * members, end="ALLGATHER_coalesced")
            single(job, rank, shard, "_reduce_scatter_base")
    return job, shard


@pytest.mark.parametrize("end", ["coalesced", "ALLGATHER_coalesced"])
def test_coalesced_gathers_that_finished_are_not_pending(tmp_path: Path, end: str) -> None:
    job, shard = shards()
    for rank in (0, 1, 3):
        batch(job, rank, shard, ["_all_gather_base"] * 2, end=end, done=False)
    verdict = verdict_of(loose(job, tmp_path))
    assert named(verdict) == {2} == blamed(verdict)


def test_a_coalesced_gather_of_one_parameter_less(tmp_path: Path) -> None:
    job, shard = shards()
    for rank in range(4):
        batch(job, rank, shard, ["_all_gather_base"] * (1 if rank == 2 else 2), end="ALLGATHER_coalesced", done=False)
    (suspect, *_) = verdict_of(loose(job, tmp_path)).suspects
    assert (suspect.ranks, suspect.cause) == ((2,), Cause.COLLECTIVE_MISMATCH)


def test_the_second_member_of_a_coalesced_reduction_has_another_size(tmp_path: Path) -> None:
    job, shard = shards()
    for rank in range(4):
        kinds = ["_reduce_scatter_base"] * 2
        batch(job, rank, shard, kinds, end="REDUCE_SCATTER_coalesced", done=False, shapes=((64 if rank == 1 else 128,),))
    (suspect, *_) = verdict_of(loose(job, tmp_path)).suspects
    assert (suspect.ranks, suspect.cause) == ((1,), Cause.SHAPE_MISMATCH)


@pytest.mark.parametrize("kind", ["all_gather_into_tensor_coalesced", "reduce_scatter_tensor_coalesced", "allreduce_coalesced"])
def test_the_fast_path_is_one_entry(tmp_path: Path, kind: str) -> None:
    job, shard = shards()
    for rank in (0, 1, 3):
        single(job, rank, shard, kind, done=False, shapes=((8,), (16,)))
    assert named(verdict_of(loose(job, tmp_path))) == {2}


@pytest.mark.parametrize("ring", [3, 4, 5, 7])
def test_a_ring_that_wrapped_inside_a_batch(tmp_path: Path, ring: int) -> None:
    """The oldest batch has lost its first members; the newest entries are all there."""
    job, shard = shards()
    for rank in (0, 1, 3):
        batch(job, rank, shard, ["_all_gather_base"] * 2, end="ALLGATHER_coalesced", done=False)
    assert named(verdict_of(loose(job, tmp_path, ring=ring))) == {2}


@pytest.mark.parametrize("rank", [0, 5, 9, 15])
@pytest.mark.parametrize("ring", [6, 12, 40])
def test_rings_that_wrapped_at_different_places(tmp_path: Path, rank: int, ring: int) -> None:
    """Each rank made another number of calls, so that their buffers begin at different steps. Nobody else is blamed."""
    job = Job(16, "nccl")
    Run(Shape(2, 2, 4, microbatches=2), job).stop(rank, before=19, ahead=2)
    assert blamed(verdict_of(loose(job, tmp_path, ring=ring))) <= {rank}


def test_rings_of_different_lengths(tmp_path: Path) -> None:
    job = Job(4, "nccl")
    job.steps(30)
    job.hang({1})
    files = {f"trace_rank_{rank}": as_pickle(job.dump(rank, ring=4 + 9 * rank)) for rank in range(4)}
    assert named(verdict_of(write(tmp_path, files))) == {1}


@pytest.mark.parametrize("early", [0, 1, 3])
def test_a_dump_that_was_taken_before_the_others_came_to_the_call(tmp_path: Path, early: int) -> None:
    """Ten seconds before: that the call is not in it says nothing of its rank. Rank 2 was dumped last and has not made it."""
    job = Job(4, "nccl")
    job.steps(8)
    before = job.dump(early)
    at_ns = job.now_ns + SECOND
    job.pause(10 * SECOND)
    job.hang({2})
    found = whole(job, dict.fromkeys((0, 1, 3), ALL_REDUCE) | {2: HOST_CODE})
    found.members[f"ranks/{early}/fr/0.json"] = as_json(before)
    (run,) = [run for run in found.runs if run["path"] == f"ranks/{early}/fr/0.json"]
    run |= {"begin_ns": at_ns, "end_ns": at_ns}
    assert named(verdict_of(found.write(tmp_path))) == {2}


def pipeline(done: tuple[bool, bool] = (True, True)) -> tuple[Job, Group]:
    """Rank 1 exchanges with 0 and with 2: its numbers in the group are not those of its peers."""
    job = Job(3, "nccl")
    pipe = job.group(range(3), "PIPE")
    for _ in range(4):
        single(job, 1, pipe, "recv 1<-0", done=done[0])
        single(job, 0, pipe, "send 0->1", done=done[0])
        single(job, 1, pipe, "send 1->2", done=done[1])
        single(job, 2, pipe, "recv 2<-1", done=done[1])
    return job, pipe


def test_both_ends_of_a_transfer_have_different_numbers(tmp_path: Path) -> None:
    """The 5th send of rank 1 is its 9th or 10th point-to-point call, for rank 2 the receive is the 5th."""
    job, pipe = pipeline()
    single(job, 2, pipe, "recv 2<-1", done=False)
    single(job, 0, pipe, "send 0->1", done=False)
    verdict = verdict_of(loose(job, tmp_path))
    assert named(verdict) == {1}
    assert victims(verdict) == {0: (1,), 2: (1,)}


def test_a_send_that_ended_before_its_receive_is_not_missing(tmp_path: Path) -> None:
    """Rank 0 sent twice and is done with the first; rank 1 is still in the first receive, and both are posted."""
    job, pipe = pipeline()
    single(job, 0, pipe, "send 0->1")
    single(job, 0, pipe, "send 0->1", done=False)
    single(job, 1, pipe, "recv 1<-0", done=False)
    single(job, 1, pipe, "recv 1<-0", done=False)
    single(job, 2, pipe, "recv 2<-1", done=False)
    verdict = verdict_of(loose(job, tmp_path))
    assert 0 not in named(verdict) or not blamed(verdict)


def test_numbers_of_groups_are_those_of_each_process(tmp_path: Path) -> None:
    """The second group of rank 1 is another one than the second group of rank 2: only the names are common."""
    job = Job(4, "nccl")
    groups = [job.group(pair, "PAIR") for pair in ((0, 1), (1, 2), (2, 3), (0, 3))]
    for _ in range(5):
        for group in groups:
            job.call(group)
    for group in groups:
        job.call(group, ranks=[rank for rank in group.members if rank != 2], done=2 not in group.members)
    job.hang({2})
    numbers = {rank: {entry["process_group"][0]: entry["pg_id"] for entry in job.dump(rank)["entries"]} for rank in (1, 2)}
    assert numbers[1]["2"] != numbers[2]["2"]
    assert named(verdict_of(loose(job, tmp_path))) == {2}


def split(tmp_path: Path, **other: object) -> Verdict:
    """Ranks 0 and 1 call one thing, 2 and 3 another under the same number."""
    job = Job(4, "nccl")
    job.steps(6)
    usual: dict[str, object] = {"kind": "all_reduce"}
    for rank in range(4):
        job.call(job.everyone, ranks=[rank], done=False, **(usual if rank < 2 else usual | other))  # type: ignore[arg-type]
    return verdict_of(loose(job, tmp_path))


@pytest.mark.parametrize("other", [{"kind": "all_gather"}, {"shapes": ((17,),)}, {"dtype": "BFloat16"}], ids=str)
def test_an_even_vote_is_undecidable(tmp_path: Path, other: dict[str, object]) -> None:
    verdict = split(tmp_path, **other)
    first = verdict.suspects[0]
    assert (first.ranks, first.members, first.confidence) == ((0, 1, 2, 3), "one_of", Confidence.SUSPECT)
    assert any("undecidable" in line.statement for line in first.evidence)
    assert not blamed(verdict)


@pytest.mark.parametrize("more", [1, 2, 3])
def test_an_even_vote_on_the_members_of_a_batch_is_undecidable(tmp_path: Path, more: int) -> None:
    job, shard = shards()
    for rank in range(4):
        batch(job, rank, shard, ["_all_gather_base"] * (2 + rank % 2 * more), end="ALLGATHER_coalesced", done=False)
    first = verdict_of(loose(job, tmp_path)).suspects[0]
    assert (first.ranks, first.members, first.confidence) == ((0, 1, 2, 3), "one_of", Confidence.SUSPECT)
