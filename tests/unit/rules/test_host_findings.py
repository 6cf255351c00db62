"""What a live rank does while its peers wait for it decides the cause; the same stack in a waiting rank decides nothing."""

from __future__ import annotations

from pathlib import Path

import pytest

from forensics.model import Cause, Confidence, StageName
from tests.recordings.collection import Collection, loose, pid_of, whole
from tests.recordings.job import SECOND, Job
from tests.recordings.places import (
    ALL_REDUCE,
    BARRIER,
    CHECKPOINT,
    FORWARD,
    GRADIENT_HOOK,
    HOST_CODE,
    LIB,
    LOADER_QUEUE,
    LOADER_WORKER,
    RENDEZVOUS,
    TEARDOWN,
    Place,
)
from tests.recordings.verdicts import leaders, named, stated, verdict_of, victims


def stuck(absent: int = 2, world: int = 4, kind: str = "all_reduce") -> Job:
    job = Job(world)
    job.steps(12)
    job.hang({absent}, kind=kind)
    return job


@pytest.mark.parametrize(
    ("place", "cause", "stage", "rule"),
    [
        (LOADER_QUEUE, Cause.DATALOADER_STALL, StageName.DATA, "FX110"),
        (CHECKPOINT, Cause.CHECKPOINT_STALL, StageName.CHECKPOINT, "FX111"),
        (HOST_CODE, Cause.HOST_STALL, StageName.UNKNOWN, "FX112"),
        (FORWARD, Cause.HOST_STALL, StageName.FORWARD, "FX112"),
    ],
)
def test_the_stage_of_the_rank_that_is_behind_is_the_cause(
    tmp_path: Path, place: Place, cause: Cause, stage: StageName, rule: str
) -> None:
    verdict = verdict_of(whole(stuck(), {2: place}).write(tmp_path))
    (first,) = verdict.suspects
    assert (first.ranks, first.cause, first.stage.name, first.rules) == ((2,), cause, stage, (rule,))
    assert first.confidence is Confidence.CONFIRMED
    assert victims(verdict) == {0: (2,), 1: (2,), 3: (2,)}


@pytest.mark.parametrize(
    ("file", "function", "step"),
    [
        ("pdb.py", "_cmdloop", "pid 4120 waits for a command at the prompt of a debugger"),
        ("socket.py", "readinto", "ss -tnp | grep pid=4120"),
        ("subprocess.py", "wait", "ps --ppid 4120"),
        ("multiprocessing/connection.py", "_recv", "read the code of rank 2 at wait_for_license (license.py:12)"),
    ],
)
def test_the_first_step_looks_at_what_the_rank_waits_for(tmp_path: Path, file: str, function: str, step: str) -> None:
    place = ((function, f"{LIB}{file}", 700), *HOST_CODE)
    (first,) = verdict_of(whole(stuck(), {2: place}).write(tmp_path)).suspects
    assert first.rules == ("FX112",) and step in first.next_steps[0]


@pytest.mark.parametrize(("place", "rule"), [(LOADER_QUEUE, "FX110"), (CHECKPOINT, "FX111"), (HOST_CODE, "FX112")])
def test_a_rank_that_is_not_behind_is_not_accused_for_its_stack(tmp_path: Path, place: Place, rule: str) -> None:
    """Its stack was taken late or shows a side job; the recorder has it inside the operation."""
    verdict = verdict_of(whole(stuck(), {2: FORWARD, 3: place}).write(tmp_path))
    assert named(verdict) == {2}
    assert rule not in verdict.suspects[0].rules or rule == "FX112"


def test_the_child_that_reads_explains_the_rank_that_polls_it(tmp_path: Path) -> None:
    found = whole(stuck(), {2: LOADER_QUEUE})
    for number in range(3):
        found.child(2, LOADER_WORKER, 9001, number)
    verdict = verdict_of(found.write(tmp_path))
    assert verdict.suspects[0].cause is Cause.DATALOADER_STALL
    assert "9001" in stated(verdict) and "Shards.__getitem__" in stated(verdict)
    assert any("9001" in step for step in verdict.suspects[0].next_steps)


def test_loader_workers_of_waiting_ranks_are_no_evidence(tmp_path: Path) -> None:
    found = whole(stuck(), {2: HOST_CODE})
    found.child(0, LOADER_WORKER, 9000)
    verdict = verdict_of(found.write(tmp_path))
    assert [(suspect.ranks, suspect.cause) for suspect in verdict.suspects] == [((2,), Cause.HOST_STALL)]


def test_without_stacks_the_rank_is_named_and_the_stage_is_not_invented(tmp_path: Path) -> None:
    verdict = verdict_of(loose(stuck(), tmp_path))
    (first,) = verdict.suspects
    assert (first.ranks, first.stage.name) == ((2,), StageName.UNKNOWN)
    assert any(label.axis == "stacks" for label in verdict.labels)


def test_rank_zero_that_writes_while_the_others_wait_in_a_barrier_is_named_with_the_caveat(tmp_path: Path) -> None:
    """A slow checkpoint looks the same: the report says what to compare."""
    places = dict.fromkeys(range(4), BARRIER) | {0: CHECKPOINT}
    verdict = verdict_of(whole(stuck(0, kind="barrier"), places).write(tmp_path))
    assert [(suspect.ranks, suspect.cause) for suspect in verdict.suspects] == [((0,), Cause.CHECKPOINT_STALL)]
    assert any("slow rather than stuck" in step for step in verdict.suspects[0].next_steps)


def test_all_ranks_in_data_loading_accuse_nobody(tmp_path: Path) -> None:
    """Nobody waits in a collective: shared storage, not one rank."""
    job = Job(4)
    job.steps(12)
    verdict = verdict_of(whole(job, dict.fromkeys(range(4), LOADER_QUEUE)).write(tmp_path))
    assert not verdict.suspects


def starting(rank_places: dict[int, Place]) -> Collection:
    """A job that has not recorded anything yet."""
    found = Collection(4, Job(1).now_ns)
    for rank, place in rank_places.items():
        found.rank(rank)
        found.samples(rank)
        found.stacks(rank, *[place] * 3)
    return found


def test_a_rank_that_never_arrives_at_the_rendezvous_is_named(tmp_path: Path) -> None:
    places = dict.fromkeys(range(4), RENDEZVOUS) | {2: HOST_CODE}
    verdict = verdict_of(starting(places).write(tmp_path))
    assert [(suspect.ranks, suspect.cause) for suspect in leaders(verdict)] == [((2,), Cause.INIT_STALL)]


def test_everybody_in_the_rendezvous_accuses_nobody_in_particular(tmp_path: Path) -> None:
    """The missing one may be on a host that was not collected."""
    verdict = verdict_of(starting(dict.fromkeys(range(4), RENDEZVOUS)).write(tmp_path))
    assert all(suspect.members == "one_of" or len(suspect.ranks) == 4 for suspect in verdict.suspects)
    assert all(suspect.confidence is Confidence.SUSPECT for suspect in verdict.suspects)


def test_a_rendezvous_of_fewer_ranks_than_the_world_names_the_one_that_left_nothing(tmp_path: Path) -> None:
    found = starting(dict.fromkeys(range(3), RENDEZVOUS))
    found.world = 4
    verdict = verdict_of(found.write(tmp_path))
    assert named(verdict) <= {3}
    assert verdict.suspects and verdict.suspects[0].ranks == (3,)


def test_a_rank_in_teardown_that_others_wait_for_left_early(tmp_path: Path) -> None:
    verdict = verdict_of(whole(stuck(), {2: TEARDOWN}).write(tmp_path))
    (first,) = verdict.suspects
    assert (first.ranks, first.cause, first.rules) == ((2,), Cause.EXTRA_OR_MISSING_COLLECTIVE, ("FX114",))


def test_a_rank_in_teardown_after_its_own_exception_raised(tmp_path: Path) -> None:
    found = whole(stuck(), {2: TEARDOWN})
    found.log(
        2, "Traceback (most recent call last):", '  File "/srv/job/pretrain.py", line 9, in <module>', "KeyError: 'tokens'"
    )
    verdict = verdict_of(found.write(tmp_path))
    assert (verdict.suspects[0].ranks, verdict.suspects[0].cause) == ((2,), Cause.PYTHON_EXCEPTION)
    assert "KeyError" in stated(verdict)


def test_the_normal_end_of_a_job_accuses_nobody(tmp_path: Path) -> None:
    job = Job(4)
    job.steps(12)
    verdict = verdict_of(whole(job, dict.fromkeys(range(4), TEARDOWN)).write(tmp_path))
    assert not verdict.suspects


def test_a_native_wait_below_autograd_counts_as_waiting(tmp_path: Path) -> None:
    """DDP hooks leave no frame: three ranks below the engine wait for the one that loads data."""
    places = dict.fromkeys(range(4), GRADIENT_HOOK) | {2: LOADER_QUEUE}
    verdict = verdict_of(whole(stuck(), places).write(tmp_path))
    assert [(suspect.ranks, suspect.cause) for suspect in verdict.suspects] == [((2,), Cause.DATALOADER_STALL)]


def test_ranks_that_were_not_collected_do_not_hide_one_whose_record_lacks_the_call(tmp_path: Path) -> None:
    """Below the engine rank 2 may wait in a hook; a collective would be in its dump, and of ranks 4 and 7 nothing is known."""
    job = stuck(world=8)
    found = Collection(8, job.now_ns + 60 * SECOND)
    for rank in (0, 1, 2, 3, 5, 6):
        found.rank(rank)
        found.samples(rank)
        found.stacks(rank, *[GRADIENT_HOOK if rank == 2 else ALL_REDUCE] * 3)
        found.dump(job, rank)
    verdict = verdict_of(found.write(tmp_path))
    assert [(suspect.ranks, suspect.cause) for suspect in verdict.suspects] == [((2,), Cause.HOST_STALL)]


def test_one_sample_is_less_than_three(tmp_path: Path) -> None:
    once = verdict_of(whole(stuck(), {2: LOADER_QUEUE}, samples=1).write(tmp_path / "once"))
    thrice = verdict_of(whole(stuck(), {2: LOADER_QUEUE}).write(tmp_path / "thrice"))
    assert once.suspects[0].confidence is Confidence.LIKELY
    assert thrice.suspects[0].confidence is Confidence.CONFIRMED


def test_a_chain_of_groups_ends_in_one_rank(tmp_path: Path) -> None:
    """Rank 3 holds up 1 in one group, which holds up 0 in another: only 3 is a root."""
    job = Job(4)
    groups = [job.group((0, 1), "A"), job.group((1, 3), "B"), job.group((2, 3), "C")]
    for _ in range(8):
        for group in groups:
            job.call(group)
    job.hang({1}, groups[0])
    job.hang({3}, groups[1])
    job.hang({3}, groups[2])
    verdict = verdict_of(whole(job, {3: LOADER_QUEUE}).write(tmp_path))
    assert named(verdict) == {3}
    assert victims(verdict) == {0: (1,), 1: (3,), 2: (3,)}


def test_a_waiting_rank_that_a_debugger_stopped_does_not_hide_the_root(tmp_path: Path) -> None:
    found = whole(stuck(), {2: LOADER_QUEUE})
    found.samples(0, "t", tracer=777)
    verdict = verdict_of(found.write(tmp_path))
    assert ((2,), Cause.DATALOADER_STALL) in [(suspect.ranks, suspect.cause) for suspect in leaders(verdict)]


def test_pids_in_next_steps_are_those_of_the_suspect(tmp_path: Path) -> None:
    verdict = verdict_of(whole(stuck(), {2: HOST_CODE}).write(tmp_path))
    assert any(str(pid_of(2)) in step for step in verdict.suspects[0].next_steps)
    assert "wait_for_license (license.py:12)" in stated(verdict)


def test_silence_does_not_outweigh_the_rank_that_is_seen_behind(tmp_path: Path) -> None:
    """Rank 3 left no evidence at all, but rank 2 is known not to have entered."""
    job = stuck()
    found = Collection(4, job.now_ns + 60 * SECOND)
    for rank in (0, 1, 2):
        found.rank(rank)
        found.samples(rank)
        found.stacks(rank, *[LOADER_QUEUE if rank == 2 else ALL_REDUCE] * 3)
        found.dump(job, rank)
    verdict = verdict_of(found.write(tmp_path))
    assert verdict.suspects[0].ranks == (2,)
    assert 3 not in verdict.suspects[0].ranks


def test_bundles_of_two_hosts_are_one_job(tmp_path: Path) -> None:
    """Each host was collected on its own; ranks 0 and 1 wait for 2, which lives on the other one."""
    job = stuck()
    bundles = []
    for node, ranks in (("gpu-017", (0, 1)), ("gpu-018", (2, 3))):
        found = Collection(4, job.now_ns + 60 * SECOND, node=node)
        for rank in ranks:
            found.rank(rank)
            found.samples(rank)
            found.stacks(rank, *[LOADER_QUEUE if rank == 2 else ALL_REDUCE] * 3)
            found.dump(job, rank)
        bundles.append(found.tar(tmp_path / f"{node}.tar"))
    verdict = verdict_of(*bundles)
    assert [(suspect.ranks, suspect.cause, suspect.hosts) for suspect in verdict.suspects] == [
        ((2,), Cause.DATALOADER_STALL, ("gpu-018",))
    ]
    assert victims(verdict) == {0: (2,), 1: (2,), 3: (2,)}


def test_the_bundle_of_one_of_two_hosts_names_the_rank_it_does_not_hold(tmp_path: Path) -> None:
    """Host gpu-018 was not collected: its ranks are missing evidence, the ones that wait are not to blame."""
    job = stuck()
    found = Collection(4, job.now_ns + 60 * SECOND)
    for rank in (0, 1):
        found.rank(rank)
        found.samples(rank)
        found.stacks(rank, *[ALL_REDUCE] * 3)
        found.dump(job, rank)
    verdict = verdict_of(found.write(tmp_path))
    assert not named(verdict) & {0, 1}
    assert all(suspect.members == "one_of" for suspect in verdict.suspects)


@pytest.mark.parametrize(("state", "named_ranks"), [("R", []), ("S", [(0,)]), ("D", [(0,)])])
def test_who_saves_and_runs_is_not_stuck_while_nothing_tells_for_how_long(
    state: str, named_ranks: list[tuple[int, ...]], tmp_path: Path
) -> None:
    found = Collection(4, 60 * SECOND)
    for rank in range(4):
        found.rank(rank)
        found.samples(rank, state if rank == 0 else "S", moving=rank == 0)
        found.stacks(rank, *[CHECKPOINT if rank == 0 else BARRIER] * 3)
    assert [suspect.ranks for suspect in verdict_of(found.write(tmp_path)).suspects] == named_ranks


@pytest.mark.parametrize("late", [0, 1, 3])
def test_a_rank_that_came_late_to_the_rendezvous_is_not_accused_beside_the_one_that_never_comes(
    tmp_path: Path, late: int
) -> None:
    case = starting(dict.fromkeys(set(range(4)) - {late}, RENDEZVOUS) | {2: HOST_CODE})
    case.rank(late)
    case.samples(late)
    case.stacks(late, FORWARD, RENDEZVOUS, RENDEZVOUS)
    verdict = verdict_of(case.write(tmp_path))
    assert [suspect.ranks for suspect in leaders(verdict)] == [(2,)]
    assert victims(verdict) == dict.fromkeys((0, 1, 3), (2,))
