"""Jobs on accelerators: the host enqueues ahead of the device, groups cross, and only active entries may be recorded."""

from __future__ import annotations

from pathlib import Path

import pytest

from forensics.model import Cause, Outcome
from tests.recordings.collection import loose, whole, write
from tests.recordings.job import Group, Job, as_json, as_pickle
from tests.recordings.places import HOST_CODE, LOADER_QUEUE, RECV
from tests.recordings.verdicts import leaders, named, verdict_of, victims


def grid(steps: int = 6) -> tuple[Job, list[Group], list[Group]]:
    """Tensor parallel pairs (0,1) and (2,3), data parallel pairs (0,2) and (1,3)."""
    job = Job(4, "nccl")
    tensor = [job.group((0, 1), "TENSOR"), job.group((2, 3), "TENSOR")]
    data = [job.group((0, 2), "DATA"), job.group((1, 3), "DATA")]
    for _ in range(steps):
        for group in tensor:
            job.call(group)
            job.call(group, "all_gather")
        for group in data:
            job.call(group)
    return job, tensor, data


def ahead(absent: int = 1, *, steps: int = 2) -> Job:
    """The rank `absent` stops issuing; the hosts of the others go on and enqueue `steps` whole steps."""
    job, tensor, data = grid()
    for step in range(steps):
        for group in tensor:
            issuing = [rank for rank in group.members if rank != absent]
            finished = step == 0 and absent not in group.members
            job.call(group, ranks=issuing, done=finished)
            job.call(group, "all_gather", issuing, done=finished)
        for group in data:
            job.call(group, ranks=[rank for rank in group.members if rank != absent], done=False)
    return job


@pytest.mark.parametrize("absent", range(4))
@pytest.mark.parametrize("form", ["pickle", "json"])
def test_only_the_missing_rank_is_named_in_a_grid_of_groups(tmp_path: Path, absent: int, form: str) -> None:
    """Its peer in the data group finished its own tensor group; the fourth rank did too, and waits for a victim."""
    verdict = verdict_of(loose(ahead(absent), tmp_path, form=form))
    assert named(verdict) == {absent}
    data, tensor = absent ^ 2, absent ^ 1
    assert victims(verdict) == {tensor: (absent,), data: (absent,), 3 - absent: (tensor,)}


@pytest.mark.parametrize("steps", [1, 3, 10])
def test_however_far_the_hosts_ran_ahead(tmp_path: Path, steps: int) -> None:
    assert named(verdict_of(loose(ahead(1, steps=steps), tmp_path))) == {1}


def test_dumps_of_active_entries_only(tmp_path: Path) -> None:
    """The rank that hangs has no active entry: an empty list is legal, and its counters tell that it is behind."""
    folder = loose(ahead(1), tmp_path, form="json", name="rank{rank}.json", only_active=True)
    assert b'"entries"' not in (folder / "rank1.json").read_bytes()
    assert named(verdict_of(folder)) == {1}


def test_an_empty_list_of_entries_in_a_pickle(tmp_path: Path) -> None:
    assert named(verdict_of(loose(ahead(1), tmp_path, only_active=True))) == {1}


def test_active_entries_without_counters(tmp_path: Path) -> None:
    """No pg_status and no entries: the missing rank is known by its configuration only, and nobody else is named."""
    job = ahead(1)
    files = {f"nccl_trace_rank_{rank}": as_pickle(job.dump(rank, only_active=True, status=False)) for rank in range(4)}
    assert named(verdict_of(write(tmp_path, files))) <= {1}


def test_the_dump_of_the_missing_rank_is_missing_too(tmp_path: Path) -> None:
    verdict = verdict_of(loose(ahead(1), tmp_path, ranks=(0, 2, 3)))
    assert named(verdict) == {1}
    assert verdict.suspects[0].rules == ("FX150",)


@pytest.mark.parametrize("lost", [0, 2, 3])
def test_the_dump_of_a_victim_is_missing(tmp_path: Path, lost: int) -> None:
    """A rank without evidence is not blamed while a rank that is known to be behind explains the stall."""
    verdict = verdict_of(loose(ahead(1), tmp_path, ranks=[rank for rank in range(4) if rank != lost]))
    assert not verdict.suspects or verdict.suspects[0].ranks == (1,)


def test_started_is_not_finished(tmp_path: Path) -> None:
    """With timing on, the recorder also says that the device has begun."""
    job = Job(4, "nccl")
    job.steps(8)
    job.call(job.everyone, ranks=(0, 1, 3), done=False, started=True)
    verdict = verdict_of(loose(job, tmp_path))
    assert named(verdict) == {2}
    assert victims(verdict) == {0: (2,), 1: (2,), 3: (2,)}


def test_a_wrapped_ring_that_lost_the_group_proves_nothing_against_its_rank(tmp_path: Path) -> None:
    """Rank 3 has used TENSOR, but its ring only remembers DATA: it may well have entered what rank 2 waits in."""
    job = Job(4, "nccl")
    tensor, data = job.group((2, 3), "TENSOR"), job.group((0, 1, 2, 3), "DATA")
    job.call(tensor)
    job.steps(3, data)
    job.call(tensor, done=False)
    job.call(data, ranks=(3,), done=False)
    job.call(data, ranks=(3,), done=False)
    files = {f"nccl_trace_rank_{rank}": as_pickle(job.dump(rank, ring=2, status=False)) for rank in range(4)}
    assert 3 not in named(verdict_of(write(tmp_path, files)))


def test_a_moving_job_is_not_hung_though_its_hosts_run_ahead(tmp_path: Path) -> None:
    job = ahead(1)
    files = {f"rank{rank}.fr.0.json": as_json(job.dump(rank)) for rank in range(4)}
    later, *_ = grid(steps=9)
    files |= {f"rank{rank}.fr.1.json": as_json(later.dump(rank)) for rank in range(4)}
    verdict = verdict_of(write(tmp_path, files))
    assert verdict.outcome is Outcome.INCONCLUSIVE
    assert not verdict.suspects and "it moves" in verdict.summary and "speed not measured" in verdict.summary


def pipeline() -> tuple[Job, list[Group], list[Group]]:
    """Two pipelines of two stages, 0 -> 2 and 1 -> 3, and data parallel pairs (0,1) and (2,3)."""
    job = Job(4, "nccl")
    pipe = [job.group((0, 2), "PIPE"), job.group((1, 3), "PIPE")]
    data = [job.group((0, 1), "DATA"), job.group((2, 3), "DATA")]
    for _ in range(5):
        for group in pipe:
            send(job, group)
        for group in data:
            job.call(group)
    return job, pipe, data


def send(job: Job, group: Group, *, sender: bool = True, done: bool = True) -> None:
    """First member to second, in group-local numbers."""
    first, second = group.members
    if sender:
        job.call(group, "send 0->1", (first,), done=done)
    job.call(group, "recv 1<-0", (second,), done=done)


def starved() -> Job:
    """Stage 0 of the first pipeline does not send; its receiver waits, and the data parallel peers of both wait for them."""
    job, pipe, data = pipeline()
    send(job, pipe[1])
    send(job, pipe[0], sender=False, done=False)
    job.call(data[0], ranks=(1,), done=False)
    job.call(data[1], ranks=(3,), done=False)
    return job


def test_a_receiver_waits_for_its_sender(tmp_path: Path) -> None:
    verdict = verdict_of(loose(starved(), tmp_path))
    assert named(verdict) == {0}
    assert victims(verdict) == {1: (0,), 2: (0,), 3: (2,)}


def test_the_stage_that_does_not_send_is_named_with_its_cause(tmp_path: Path) -> None:
    verdict = verdict_of(whole(starved(), {0: LOADER_QUEUE, 2: RECV}).write(tmp_path))
    assert [(suspect.ranks, suspect.cause) for suspect in verdict.suspects] == [((0,), Cause.DATALOADER_STALL)]


def test_a_receiver_that_queued_its_reduction_behind_the_receive_is_still_a_victim(tmp_path: Path) -> None:
    job, pipe, data = pipeline()
    send(job, pipe[1])
    send(job, pipe[0], sender=False, done=False)
    job.call(data[1], done=False)
    job.call(data[0], ranks=(1,), done=False)
    assert named(verdict_of(loose(job, tmp_path))) == {0}


def test_gloo_receives_leave_no_entry_and_show_in_stacks(tmp_path: Path) -> None:
    """Rank 1 waits in a receive that no recorder describes; rank 0, which should send, loads data."""
    job = Job(3)
    job.steps(8)
    job.hang({0, 1})
    verdict = verdict_of(whole(job, {0: LOADER_QUEUE, 1: RECV}).write(tmp_path))
    assert named(verdict) == {0}


def test_a_device_that_does_not_come_out_is_its_ranks(tmp_path: Path) -> None:
    """All entered and most finished: what is left is the device of the one that did not."""
    job = Job(4, "nccl")
    job.steps(8)
    job.call(job.everyone, ranks=(0, 1, 3))
    job.call(job.everyone, ranks=(2,), done=False)
    job.call(job.everyone, ranks=(0, 1, 3), done=False)
    verdict = verdict_of(whole(job, {}).write(tmp_path))
    assert leaders(verdict)[0].ranks == (2,)
    assert leaders(verdict)[0].cause is Cause.COMPUTE_HANG


def test_two_pairs_without_common_groups_are_distinguished(tmp_path: Path) -> None:
    """Ranks 1 and 2 are stuck for reasons of their own, in groups that share nobody."""
    job = Job(4, "nccl")
    low, high = job.group((0, 1), "LOW"), job.group((2, 3), "HIGH")
    for _ in range(6):
        job.call(low)
        job.call(high)
    job.hang({1}, low)
    job.hang({2}, high)
    verdict = verdict_of(whole(job, {1: LOADER_QUEUE, 2: HOST_CODE}).write(tmp_path))
    found = {suspect.ranks: suspect.cause for suspect in leaders(verdict)}
    assert found == {(1,): Cause.DATALOADER_STALL, (2,): Cause.HOST_STALL}
    assert victims(verdict) == {0: (1,), 3: (2,)}
