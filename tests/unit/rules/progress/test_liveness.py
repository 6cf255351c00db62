"""A job that moves, or may still move, is not called hung; one that stands still is."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import pytest

from forensics.case.build import open_case
from forensics.model import Confidence, Outcome
from forensics.rules.diagnosis import diagnose
from forensics.rules.soundness import NOT_COMPARED
from tests.recordings.collection import Collection, loose, whole, write
from tests.recordings.job import SECOND, Job, as_json
from tests.recordings.places import ALL_REDUCE, BARRIER, FORWARD, GRADIENT_HOOK, HOST_CODE, LOADER_QUEUE, OTHER_CODE, Place
from tests.recordings.verdicts import named, verdict_of


def between_dumps(folder: Path, job: Job, steps: int, *, then_absent: int | None = None) -> Path:
    """Two dumps of each rank, with `steps` steps in between; before the second, `then_absent` does not come."""
    files = {f"rank{rank}.fr.0.json": as_json(job.dump(rank)) for rank in range(job.world)}
    job.steps(steps)
    if then_absent is not None:
        job.hang({then_absent})
    return write(folder, files | {f"rank{rank}.fr.1.json": as_json(job.dump(rank)) for rank in range(job.world)})


def dated(job: Job, silence_ns: int) -> Collection:
    """One dump of each rank and nothing else, `silence_ns` after the newest operation."""
    found = Collection(job.world, job.now_ns + silence_ns)
    for rank in range(job.world):
        found.dump(job, rank)
    return found


def paused(pause_ns: int, times: int, absent: int = 2) -> Job:
    """A job that paused `times` times for `pause_ns`, and whose rank `absent` then does not come."""
    job = Job(4)
    for _ in range(times):
        job.steps(10)
        job.pause(pause_ns)
    job.steps(10)
    job.hang({absent})
    return job


def test_progress_between_two_dumps_is_motion_and_no_health_where_ranks_are_not_compared(tmp_path: Path) -> None:
    """Loose files tell no host: whether clocks may be compared, and so who came last, is not known."""
    job = Job(4)
    job.steps(10)
    verdict = verdict_of(between_dumps(tmp_path, job, steps=3))
    assert verdict.outcome is Outcome.INCONCLUSIVE and verdict.summary.endswith(NOT_COMPARED)
    assert not verdict.suspects and not verdict.victims
    assert not any(label.axis == "speed" for label in verdict.labels), "steps of one length are a look at speed"


def test_a_moving_job_of_unknown_speed_is_asked_for_step_times(tmp_path: Path) -> None:
    """Another collection would only say once more that it moves."""
    job = Job(4)
    for length in (1, 9, 2, 14, 5, 1, 30, 3, 20, 1):
        job.pause(length * SECOND)
        job.steps(1)
    verdict = verdict_of(between_dumps(tmp_path, job, steps=1))
    assert verdict.outcome is Outcome.INCONCLUSIVE and any(label.axis == "speed" for label in verdict.labels)
    assert [text.partition(":")[0] for text in verdict.would_change] == ["step times"]


def test_a_job_that_moves_ever_slower_is_not_health(tmp_path: Path) -> None:
    """That it moves does not say that it is fast: its record shows that steps took a third as long at first."""
    job = Job(4)
    job.steps(12)
    job.pace_ns *= 3
    job.steps(12)
    verdict = verdict_of(between_dumps(tmp_path, job, steps=3))
    assert verdict.outcome is Outcome.SLOWDOWN
    assert not verdict.suspects and "slower than before" in verdict.summary


def test_a_moving_job_seen_in_the_middle_of_a_step_moves(tmp_path: Path) -> None:
    """Dumps are no snapshot: in each set some ranks have not entered what others wait in."""
    job = Job(4)
    job.steps(10)
    verdict = verdict_of(between_dumps(tmp_path, job, steps=5, then_absent=1))
    assert verdict.outcome is Outcome.INCONCLUSIVE and "it moves" in verdict.summary
    assert not verdict.suspects and not verdict.victims


def test_a_job_that_froze_between_its_dumps_is_a_hang(tmp_path: Path) -> None:
    job = Job(4)
    job.steps(10)
    job.hang({2})
    verdict = verdict_of(whole(job, {2: HOST_CODE}, dumps=2).write(tmp_path))
    assert verdict.outcome is Outcome.HANG
    assert verdict.suspects[0].ranks == (2,)


def test_one_rank_that_still_moves_does_not_make_a_stuck_job_healthy(tmp_path: Path) -> None:
    """Ranks 0 and 1 train on in a group of their own while 2 and 3 are stuck."""
    job = Job(4)
    low, high = job.group((0, 1), "LOW"), job.group((2, 3), "HIGH")
    for _ in range(10):
        job.call(low)
        job.call(high)
    job.hang({3}, high)
    found = Collection(4, job.now_ns + 60 * SECOND)
    for rank in range(4):
        found.dump(job, rank, 0)
    job.steps(4, low)
    for rank in range(4):
        found.dump(job, rank, 1, found.at_ns + 10 * SECOND)
    verdict = verdict_of(found.write(tmp_path))
    assert verdict.outcome is not Outcome.HEALTHY
    assert named(verdict) <= {3}


@pytest.mark.parametrize("silence_s", [5, 30, 55])
def test_a_silence_shorter_than_twice_a_usual_pause_accuses_nobody(tmp_path: Path, silence_s: int) -> None:
    verdict = verdict_of(dated(paused(30 * SECOND, times=3), silence_s * SECOND).write(tmp_path))
    assert verdict.outcome is Outcome.INCONCLUSIVE
    assert not verdict.suspects
    assert any(label.axis == "liveness" for label in verdict.labels)


def test_a_silence_longer_than_twice_a_usual_pause_is_a_hang(tmp_path: Path) -> None:
    """How much longer than usual it must be is a threshold."""
    with open_case([dated(paused(30 * SECOND, times=3), 65 * SECOND).write(tmp_path)]) as connection:
        verdict, stricter = diagnose(connection), diagnose(connection, {"FX190": {"silence_factor": 3.0}})
    assert (verdict.outcome, verdict.suspects[0].ranks) == (Outcome.HANG, (2,))
    assert (stricter.outcome, stricter.suspects) == (Outcome.INCONCLUSIVE, ())


def test_a_pause_that_happened_once_is_not_usual(tmp_path: Path) -> None:
    """Start-up and one checkpoint are not what the job does all the time."""
    verdict = verdict_of(dated(paused(300 * SECOND, times=1), 60 * SECOND).write(tmp_path))
    assert verdict.outcome is Outcome.HANG
    assert verdict.suspects[0].ranks == (2,)


@pytest.mark.parametrize(("silence_s", "outcome"), [(30, Outcome.INCONCLUSIVE), (200, Outcome.HANG)])
def test_a_call_that_is_seldom_made_may_take_as_long_as_before(tmp_path: Path, silence_s: int, outcome: Outcome) -> None:
    """All waited for an evaluation of rank 2 once, for 40 s, in a barrier; now they wait there again."""
    job = Job(4)
    job.steps(20)
    job.call(job.everyone, "barrier")
    job.pause(40 * SECOND)
    job.steps(20)
    job.hang({2}, kind="barrier")
    verdict = verdict_of(dated(job, silence_s * SECOND).write(tmp_path))
    assert (verdict.outcome, named(verdict)) == (outcome, {2} if outcome is Outcome.HANG else set())
    assert outcome is Outcome.HANG or "40.0 s at the same place before" in verdict.summary


def test_one_undated_look_at_a_hang_is_only_a_suspicion_or_likely(tmp_path: Path) -> None:
    """Nothing in a dump dates it, so nothing proves that the job stands still."""
    job = Job(4)
    job.steps(10)
    job.hang({2})
    verdict = verdict_of(loose(job, tmp_path))
    assert [suspect.ranks for suspect in verdict.suspects] == [(2,)]
    assert verdict.suspects[0].confidence is not Confidence.CONFIRMED
    assert any(label.axis == "liveness" for label in verdict.labels)


def test_one_undated_look_at_a_job_in_motion_accuses_nobody(tmp_path: Path) -> None:
    """Rank 3 is between operations, ranks 0 and 1 are inside one that rank 2 has not entered yet."""
    job = Job(4)
    low, high = job.group((0, 1, 2), "LOW"), job.group((2, 3), "HIGH")
    for _ in range(10):
        job.call(low)
        job.call(high)
    job.call(low, ranks=(0, 1), done=False)
    verdict = verdict_of(loose(job, tmp_path))
    assert verdict.outcome is Outcome.INCONCLUSIVE
    assert not verdict.suspects


def stacks_only(folder: Path, samples: Mapping[int, tuple[Place, ...]]) -> Path:
    found = Collection(len(samples), Job(1).now_ns)
    for rank, places in samples.items():
        found.stacks(rank, *places)
    return found.write(folder)


def test_stacks_that_stay_show_a_hang(tmp_path: Path) -> None:
    samples = dict.fromkeys((0, 1, 3), (ALL_REDUCE,) * 3) | {2: (LOADER_QUEUE,) * 3}
    verdict = verdict_of(stacks_only(tmp_path, samples))
    assert verdict.outcome is Outcome.HANG
    assert [suspect.ranks for suspect in verdict.suspects] == [(2,)]
    assert any(label.axis == "recorder" for label in verdict.labels)


def test_stacks_that_change_show_a_moving_job(tmp_path: Path) -> None:
    moving = ((ALL_REDUCE, FORWARD, BARRIER), (FORWARD, ALL_REDUCE, FORWARD), (BARRIER, FORWARD, ALL_REDUCE))
    verdict = verdict_of(stacks_only(tmp_path, dict(enumerate(moving))))
    assert verdict.outcome is Outcome.INCONCLUSIVE
    assert not verdict.suspects and "it moves" in verdict.summary and "speed not measured" in verdict.summary


@pytest.mark.parametrize(
    ("inner", "moves"),
    [
        ((("all_to_all_single", 4655, 118), ("all_to_all_single", 4655, 118), ("all_reduce", 2953, 118)), True),
        ((("all_reduce", 2953, 118), ("all_reduce", 2953, 118), ("all_reduce", 2953, 161)), True),
        ((("all_reduce", 2953, 118), ("all_reduce", 2960, 118), ("all_reduce", 2960, 118)), False),
        ((("all_reduce", 2953, 118), ("all_reduce", 2960, 118), ("all_reduce", 2953, 118)), True),
    ],
    ids=["another call", "the same call of another layer", "further in the same call", "the same call again"],
)
def test_calls_from_one_line_of_the_job(inner: tuple[tuple[str, int, int], ...], moves: bool, tmp_path: Path) -> None:
    """Frames outside a call stand still until it returns; lines inside it go on, and not back."""
    torch = "/opt/venv/lib/python3.11/site-packages/torch/"
    outer = (("_call_impl", f"{torch}nn/modules/module.py", 1784), ("main", "/srv/job/pretrain.py", 88))
    places = tuple(
        ((name, f"{torch}distributed/distributed_c10d.py", line), ("forward", f"{torch}nn/layers.py", layer), *outer)
        for name, line, layer in inner
    )
    verdict = verdict_of(stacks_only(tmp_path, dict.fromkeys(range(4), places)))
    assert (verdict.suspects == ()) is moves, verdict.summary


def test_stacks_of_a_slow_job_are_too_early_to_judge(tmp_path: Path) -> None:
    """One rank left communication between the samples: the job may be slow rather than stuck."""
    samples = {0: (ALL_REDUCE, ALL_REDUCE), 1: (ALL_REDUCE, FORWARD), 2: (FORWARD, FORWARD)}
    verdict = verdict_of(stacks_only(tmp_path, samples))
    assert verdict.outcome is Outcome.INCONCLUSIVE
    assert not verdict.suspects


def test_one_stack_of_each_rank_never_confirms(tmp_path: Path) -> None:
    samples = dict.fromkeys((0, 1, 3), (ALL_REDUCE,)) | {2: (HOST_CODE,)}
    verdict = verdict_of(stacks_only(tmp_path, samples))
    assert named(verdict) <= {2}
    assert all(suspect.confidence is Confidence.SUSPECT for suspect in verdict.suspects)


def test_everybody_below_the_autograd_engine_accuses_nobody(tmp_path: Path) -> None:
    """Gradient hooks communicate without a frame of their own; with all ranks there, no one is elsewhere."""
    verdict = verdict_of(stacks_only(tmp_path, dict.fromkeys(range(4), (GRADIENT_HOOK,) * 3)))
    assert not verdict.suspects


def test_ranks_that_compute_at_different_places_accuse_nobody(tmp_path: Path) -> None:
    verdict = verdict_of(stacks_only(tmp_path, {0: (FORWARD,) * 2, 1: (OTHER_CODE,) * 2, 2: (HOST_CODE,) * 2}))
    assert verdict.outcome is Outcome.INCONCLUSIVE
    assert not verdict.suspects
