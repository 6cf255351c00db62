"""The same call from another place of the program: who parted from the others, and which differences are nobody's fault."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import pytest

from forensics.model import Cause, Confidence, Verdict
from tests.recordings.collection import loose, py_spy, whole, write
from tests.recordings.job import Frame, Job, Shapes
from tests.recordings.places import HOST_CODE, SEND, Place, collective
from tests.recordings.verdicts import named, stated, verdict_of

JOB = "/srv/job/train.py"
MAIN: Frame = ("<module>", JOB, 140)
TRAIN: tuple[Frame, ...] = (("train", JOB, 91), MAIN)
WARM_UP: tuple[Frame, ...] = (("warm_up", JOB, 88), MAIN)
EVALUATE: tuple[Frame, ...] = (("evaluate", JOB, 120), MAIN)


def together(job: Job, places: Mapping[int, tuple[Frame, ...]], kind: str = "all_reduce", *, done: bool = True) -> None:
    """Everybody issues one call; ranks in `places` from there, the others from the training loop."""
    for rank in range(job.world):
        job.call(job.everyone, kind, [rank], frames=places.get(rank, TRAIN), done=done)


def trained(world: int = 8, steps: int = 12) -> Job:
    job = Job(world)
    for _ in range(steps):
        job.call(job.everyone, frames=TRAIN)
    return job


def stuck(job: Job, tmp_path: Path, places: Mapping[int, Place] | None = None) -> Verdict:
    job.pause(60_000_000_000)
    return verdict_of(collected(job, tmp_path, places or {}))


def collected(job: Job, tmp_path: Path, places: Mapping[int, Place]) -> Path:
    """Everybody's dump as a file with frames, and stacks that tell nothing of their own."""
    found = whole(job, places)
    loose(job, tmp_path / "dumps")
    for rank in range(job.world):
        for path in [path for path in found.members if path.startswith(f"ranks/{rank}/fr/")]:
            found.members[path] = (tmp_path / "dumps" / f"nccl_trace_rank_{rank}").read_bytes()
    return found.write(tmp_path / "bundle")


def rules(verdict: Verdict) -> set[str]:
    return {rule for suspect in verdict.suspects for rule in suspect.rules}


@pytest.mark.parametrize("odd", [0, 2, 7])
def test_the_rank_in_another_function_is_named_with_both_lines(odd: int, tmp_path: Path) -> None:
    job = trained()
    together(job, {odd: WARM_UP}, "broadcast", done=False)
    verdict = stuck(job, tmp_path)
    first = verdict.suspects[0]
    assert (first.ranks, first.cause, first.rules[0]) == ((odd,), Cause.COLLECTIVE_MISMATCH, "FX122")
    assert first.confidence is Confidence.LIKELY
    statement = f"rank {odd} calls broadcast at warm_up (train.py:88); the other 7 at train (train.py:91)"
    assert first.evidence[0].statement.startswith(statement)


def test_the_first_number_of_the_run_of_differences_is_named(tmp_path: Path) -> None:
    job = trained()
    for done in (True, True, False):
        together(job, {3: WARM_UP}, done=done)
    first = stuck(job, tmp_path).suspects[0]
    assert first.ranks == (3,)
    assert first.stage.sequence == 13
    assert any("up to number 15" in item.statement for item in first.evidence)


def test_two_odd_ranks_that_parted_one_after_the_other(tmp_path: Path) -> None:
    """Rank 3 has been elsewhere for a while; rank 5 joins it, and leaves no frames before that."""
    job = trained()
    together(job, {3: WARM_UP, 5: ()})
    together(job, {3: WARM_UP, 5: WARM_UP}, done=False)
    first = stuck(job, tmp_path).suspects[0]
    assert (first.ranks, first.rules[0]) == ((3, 5), "FX122")


def test_a_missing_call_among_equal_ones_shows_in_what_comes_next(tmp_path: Path) -> None:
    """Train, train, evaluate: rank 5 left one training step out and is in the evaluation."""
    job = trained()
    for rank in range(8):
        places = (EVALUATE, WARM_UP) if rank == 5 else (TRAIN, EVALUATE)
        for place in places:
            job.call(job.everyone, ranks=[rank], frames=place, done=False)
    first = stuck(job, tmp_path).suspects[0]
    assert (first.ranks, first.cause) == ((5,), Cause.EXTRA_OR_MISSING_COLLECTIVE)


def test_a_root_with_a_line_of_its_own_is_no_divergence(tmp_path: Path) -> None:
    """Rank 0 broadcasts from another line than the receivers, every time; the network fails in one of them."""
    job = Job(8)
    for _ in range(6):
        job.call(job.everyone, frames=TRAIN)
        together(job, {0: WARM_UP}, "broadcast")
    job.call(job.everyone, frames=TRAIN)
    together(job, {0: WARM_UP}, "broadcast", done=False)
    assert "FX122" not in rules(stuck(job, tmp_path))


def test_a_first_broadcast_with_a_branch_for_the_root_is_only_a_suspicion(tmp_path: Path) -> None:
    job = trained()
    together(job, {0: (("train", JOB, 60), MAIN)}, "broadcast", done=False)
    assert all(s.confidence is Confidence.SUSPECT for s in stuck(job, tmp_path).suspects)


def test_logging_around_the_same_line_accuses_nobody(tmp_path: Path) -> None:
    job = trained()
    logged: tuple[Frame, ...] = (TRAIN[0], ("<module>", JOB, 150))
    together(job, {0: logged}, done=False)
    assert "FX122" not in rules(stuck(job, tmp_path))


def test_frames_of_libraries_do_not_vote(tmp_path: Path) -> None:
    job = trained()
    inner: Frame = ("all_reduce", "/opt/venv/lib/python3.11/site-packages/torch/distributed/distributed_c10d.py", 2900)
    together(job, {4: (inner, *TRAIN)}, done=False)
    assert "FX122" not in rules(stuck(job, tmp_path))


@pytest.mark.parametrize("odd", [{0, 1, 2}, {0, 1, 2, 3}])
def test_less_than_two_thirds_decide_nothing(odd: set[int], tmp_path: Path) -> None:
    job = trained()
    together(job, dict.fromkeys(odd, WARM_UP), done=False)
    assert "FX122" not in rules(stuck(job, tmp_path))


def test_a_rank_that_is_missing_explains_more_than_a_path(tmp_path: Path) -> None:
    job = trained()
    for rank in range(7):
        job.call(job.everyone, ranks=[rank], frames=WARM_UP if rank == 2 else TRAIN, done=False)
    verdict = stuck(job, tmp_path, {7: HOST_CODE})
    assert named(verdict) == {7}
    assert "FX122" not in rules(verdict)


def test_without_call_paths_the_stacks_vote(tmp_path: Path) -> None:
    job = Job(8)
    job.steps(12)
    job.hang(set())
    verdict = verdict_of(whole(job, {6: collective("all_reduce", 88)}).write(tmp_path))
    first = verdict.suspects[0]
    assert (first.ranks, first.rules[0]) == ((6,), "FX122")
    assert "stacks" in stated(verdict)


def test_nothing_to_compare_is_silent(tmp_path: Path) -> None:
    job = Job(8)
    job.steps(12)
    job.hang(set())
    assert "FX122" not in rules(verdict_of(loose(job, tmp_path)))


def issue(job: Job, rank: int, *calls: tuple[str, tuple[Frame, ...], Shapes], done: int = 0) -> None:
    for number, (kind, place, shapes) in enumerate(calls):
        job.call(job.everyone, kind, [rank], frames=place, shapes=shapes, done=number < done)


STEP = ("all_reduce", TRAIN, ((4096,),))


def test_an_extra_call_is_found_where_it_was_made(tmp_path: Path) -> None:
    """One reduction too many, same kind and size; the kinds differ only at the end of the epoch."""
    job = trained(4)
    for rank in range(4):
        extra = [("all_reduce", EVALUATE, ((4096,),))] if rank == 1 else []
        calls = [STEP, STEP, *extra, STEP, STEP, STEP, ("barrier", MAIN_BARRIER, ((1,),))]
        issue(job, rank, *calls[:6], done=5)
    verdict = stuck(job, tmp_path)
    first = verdict.suspects[0]
    assert (first.ranks, first.cause) == ((1,), Cause.EXTRA_OR_MISSING_COLLECTIVE)
    assert "rank 1 issued one extra all_reduce at evaluate (train.py:120) as number 15" in first.evidence[0].statement


MAIN_BARRIER: tuple[Frame, ...] = (("main", JOB, 130), MAIN)


def test_a_call_left_out_is_found_where_it_was_left_out(tmp_path: Path) -> None:
    job = trained(4)
    for rank in range(4):
        metric = [] if rank == 2 else [("all_reduce", EVALUATE, ((4096,),))]
        issue(job, rank, *[STEP, *metric, STEP, STEP, ("barrier", MAIN_BARRIER, ((1,),)), STEP][:4], done=3)
    first = stuck(job, tmp_path).suspects[0]
    assert (first.ranks, first.cause) == ((2,), Cause.EXTRA_OR_MISSING_COLLECTIVE)


@pytest.mark.parametrize("shape", [(1,), (64, 32)])
def test_a_broadcast_that_only_one_rank_makes_is_extra(shape: tuple[int, ...], tmp_path: Path) -> None:
    job = trained(4)
    for rank in range(4):
        call = ("broadcast", EVALUATE, (shape,)) if rank == 3 else STEP
        issue(job, rank, call)
    first = stuck(job, tmp_path).suspects[0]
    assert (first.ranks, first.cause) == ((3,), Cause.EXTRA_OR_MISSING_COLLECTIVE)
    assert "rank 3 issued one extra broadcast at evaluate (train.py:120)" in first.evidence[0].statement


@pytest.mark.parametrize(
    ("kind", "shape", "cause"),
    [
        ("broadcast", (4096,), Cause.COLLECTIVE_MISMATCH),
        ("all_gather", (128, 17), Cause.COLLECTIVE_MISMATCH),
        ("all_reduce", (2048,), Cause.SHAPE_MISMATCH),
    ],
)
def test_another_form_of_the_same_exchange_is_no_extra_call(
    kind: str, shape: tuple[int, ...], cause: Cause, tmp_path: Path
) -> None:
    job = trained(4)
    for rank in range(4):
        issue(job, rank, (kind, TRAIN, (shape,)) if rank == 3 else STEP)
    first = stuck(job, tmp_path).suspects[0]
    assert (first.ranks, first.cause) == ((3,), cause)


@pytest.mark.parametrize(("others", "named_ranks"), [(collective("all_reduce", 91), {6}), (SEND, set())])
def test_only_stacks_inside_that_kind_of_call_vote(others: Place, named_ranks: set[int], tmp_path: Path) -> None:
    """A host that is in a send has issued the reduction before: its stack does not show where."""
    job = Job(8)
    job.steps(12)
    job.hang(set())
    places = dict.fromkeys(range(8), others) | {6: collective("all_reduce", 88)}
    verdict = verdict_of(whole(job, places).write(tmp_path))
    found = {rank for suspect in verdict.suspects if "FX122" in suspect.rules for rank in suspect.ranks}
    assert found == named_ranks


def test_stacks_of_an_undated_sample_are_not_those_of_the_calls(tmp_path: Path) -> None:
    """Nothing shows that the job stood still between the dumps and the stacks."""
    job = Job(8)
    job.steps(12)
    job.hang(set())
    loose(job, tmp_path)
    places = dict.fromkeys(range(8), collective("all_reduce", 91)) | {6: collective("all_reduce", 88)}
    texts = {f"rank{rank}_stack.json": py_spy(place, 100 + rank) for rank, place in places.items()}
    assert "FX122" not in rules(verdict_of(write(tmp_path, texts)))
