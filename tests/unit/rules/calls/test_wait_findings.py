"""What a wait is: a lock, a file lock, a message without a frame, pickling, an engine; and what words alone may say."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from duckdb import DuckDBPyConnection

from forensics.case.build import open_case
from forensics.model import Cause, Confidence, StageName, Verdict
from forensics.rules.reductions.waits.messages import MessageWaits
from forensics.rules.supply import Supply
from tests.recordings.collection import Collection, pid_of, process_sample, py_spy, whole
from tests.recordings.job import SECOND, Frame, Job
from tests.recordings.places import GRADIENT_HOOK, HOST_CODE, LIB, LOADER_QUEUE, SITE, Place
from tests.recordings.verdicts import stated, verdict_of

BEHIND = 2
OTHER = 5123
MAIN: Place = (("main", "/srv/job/train.py", 88), ("<module>", "/srv/job/train.py", 97))
STAGE: Place = (("forward_stage", "/srv/job/pipeline.py", 40), *MAIN)
GUARDED: Place = (("Index.negatives", "/srv/job/index.py", 41), *MAIN)
ABSORB: Place = (("Index.absorb", "/srv/job/index.py", 33), ("Thread.run", f"{LIB}threading.py", 982))
RECV_WORK: Place = (("c10d::ProcessGroupGloo::RecvWork::wait", "libtorch_cpu.so", 0), *STAGE)
PICKLING: Place = (
    ("Plan.__getstate__", "/srv/job/plan.py", 12),
    ("_object_to_tensor", f"{SITE}torch/distributed/distributed_c10d.py", 2700),
    ("all_gather_object", f"{SITE}torch/distributed/distributed_c10d.py", 2800),
    *MAIN,
)
FUTEX, FILE_LOCK = "futex_do_wait", "locks_lock_inode_wait"


def stuck(messages: bool = False) -> Job:
    """Rank 2 of 4 never comes to an all_reduce; with `messages` the ranks exchanged some before that."""
    job = Job(4)
    for _ in range(12):
        if messages:
            for rank in range(3):
                job.call(job.everyone, f"send {rank}->{rank + 1}", (rank,))
                job.call(job.everyone, f"recv {rank}<-{rank + 1}", (rank + 1,))
        job.steps(1)
    job.hang({BEHIND})
    return job


def looked_at(found: Collection, rank: int, wchan: str | None) -> None:
    for number in range(3):
        content = process_sample(rank, found.at_ns + 2 * number * SECOND, wchan=wchan)
        document = json.loads(content)
        threads = document["processes"][0]["threads"]
        threads.append(threads[0] | {"tid": OTHER})
        found.members[f"ranks/{rank}/proc/{number}.json"] = json.dumps(document).encode()


def beside(found: Collection, place: Place, owns_gil: bool = False) -> None:
    """A second thread in every stack sample of the rank that is behind."""
    for number in range(3):
        path = f"ranks/{BEHIND}/stacks/{number}.json"
        (thread,) = json.loads(py_spy(place, pid_of(BEHIND), thread_name="beside", owns_gil=owns_gil))
        found.members[path] = json.dumps([*json.loads(found.members[path]), thread | {"os_thread_id": OTHER}]).encode()


def diagnosed(
    tmp_path: Path, place: Place, wchan: str | None = None, *, messages: bool = False, thread: Place | None = None
) -> Verdict:
    found = whole(stuck(messages), {BEHIND: place})
    looked_at(found, BEHIND, wchan)
    if thread is not None:
        beside(found, thread)
    return verdict_of(found.write(tmp_path))


def test_a_wait_for_a_message_is_no_stall_of_the_rank_that_waits(tmp_path: Path) -> None:
    verdict = diagnosed(tmp_path, STAGE, FUTEX, messages=True)
    assert not [suspect for suspect in verdict.suspects if suspect.ranks == (BEHIND,)]


def test_native_frames_show_the_wait_for_a_message(tmp_path: Path) -> None:
    verdict = diagnosed(tmp_path, RECV_WORK, FUTEX)
    assert not [suspect for suspect in verdict.suspects if suspect.cause is Cause.HOST_STALL]


def test_without_messages_the_same_sight_is_a_lock(tmp_path: Path) -> None:
    first = diagnosed(tmp_path, GUARDED, FUTEX).suspects[0]
    assert (first.ranks, first.rules) == ((BEHIND,), ("FX117",))


def test_a_lock_of_a_job_that_exchanges_messages_is_found_with_the_thread_that_holds_it(tmp_path: Path) -> None:
    first = diagnosed(tmp_path, GUARDED, FUTEX, messages=True, thread=ABSORB).suspects[0]
    assert (first.ranks, first.rules) == ((BEHIND,), ("FX117",))


@pytest.mark.parametrize("place", [HOST_CODE, LOADER_QUEUE])
def test_messages_excuse_nobody_who_waits_for_something_else(tmp_path: Path, place: Place) -> None:
    first = diagnosed(tmp_path, place, "folio_wait_bit_common", messages=True).suspects[0]
    assert first.ranks == (BEHIND,)


def test_who_sleeps_like_nobody_else_points_at_the_rank_elsewhere(tmp_path: Path) -> None:
    """A pipeline without a recorder: three ranks sleep in `wait()`, one is in its loader."""
    found = Collection(4, Job(4).now_ns)
    for rank in range(4):
        found.rank(rank)
        found.stacks(rank, *[LOADER_QUEUE if rank == BEHIND else STAGE] * 3)
        looked_at(found, rank, "do_sys_poll" if rank == BEHIND else FUTEX)
    connection = open_case([found.write(tmp_path)])
    assert sorted(Supply({DuckDBPyConnection: connection}).get(MessageWaits)) == [0, 1, 3]
    assert [suspect.ranks for suspect in verdict_of(tmp_path).suspects] == [(BEHIND,)]


def test_pickling_for_a_collective_is_work_of_the_host(tmp_path: Path) -> None:
    first = diagnosed(tmp_path, PICKLING).suspects[0]
    assert (first.ranks, first.cause, first.rules) == ((BEHIND,), Cause.HOST_STALL, ("FX112",))


@pytest.mark.parametrize("place", [GUARDED, HOST_CODE])
def test_a_file_lock_is_named(tmp_path: Path, place: Place) -> None:
    verdict = diagnosed(tmp_path, place, FILE_LOCK, messages=True)
    first = verdict.suspects[0]
    assert (first.ranks, first.cause, first.rules) == ((BEHIND,), Cause.HOST_STALL, ("FX117",))
    assert "waits for a file lock (its main thread sleeps in locks_lock_inode_wait)" in first.evidence[0].statement
    assert "lslocks" in first.next_steps[0]


def test_a_file_lock_of_the_loader_is_the_loaders_and_still_named(tmp_path: Path) -> None:
    reader: Place = (("Cache.__getitem__", "/srv/job/cache.py", 24), *LOADER_QUEUE[3:])
    verdict = diagnosed(tmp_path, reader, FILE_LOCK)
    assert verdict.suspects[0].rules[0] == "FX110" and "(file lock)" in stated(verdict)


def test_a_thread_below_the_autograd_engine_holds_no_interpreter_lock(tmp_path: Path) -> None:
    found = whole(stuck(), {BEHIND: HOST_CODE})
    beside(found, GRADIENT_HOOK, owns_gil=True)
    assert "FX116" not in verdict_of(found.write(tmp_path)).suspects[0].rules


def test_a_thread_in_native_code_of_the_job_holds_it(tmp_path: Path) -> None:
    found = whole(stuck(), {BEHIND: HOST_CODE})
    beside(found, ABSORB, owns_gil=True)
    assert "FX116" in verdict_of(found.write(tmp_path)).suspects[0].rules


def named_place(function: str) -> Place:
    frame: Frame = (function, "/srv/job/work.py", 12)
    return (frame, *MAIN)


@pytest.mark.parametrize(
    ("function", "stage"),
    [("load_batch", StageName.DATA), ("save_model_state", StageName.CHECKPOINT), ("setup_model", StageName.INIT)],
)
def test_a_name_describes_the_stage_and_decides_no_cause(tmp_path: Path, function: str, stage: StageName) -> None:
    first = diagnosed(tmp_path, named_place(function), "hrtimer_nanosleep").suspects[0]
    assert (first.ranks, first.cause, first.stage.name, first.rules) == ((BEHIND,), Cause.HOST_STALL, stage, ("FX112",))


@pytest.mark.parametrize(
    ("function", "cause"),
    [("load_batch", Cause.DATALOADER_STALL), ("save_model_state", Cause.CHECKPOINT_STALL), ("setup_model", Cause.HOST_STALL)],
)
def test_a_name_counts_beside_a_wait_for_a_file(tmp_path: Path, function: str, cause: Cause) -> None:
    first = diagnosed(tmp_path, named_place(function), "folio_wait_bit_common").suspects[0]
    assert (first.ranks, first.cause, first.confidence) == ((BEHIND,), cause, Confidence.CONFIRMED)


def test_a_name_of_garbage_needs_a_busy_cpu(tmp_path: Path) -> None:
    assert diagnosed(tmp_path, named_place("collect_garbage"), FUTEX).suspects[0].rules == ("FX117",)
