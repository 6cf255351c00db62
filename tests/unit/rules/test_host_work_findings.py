"""A lock, a loop, a compiler, the garbage collector, a background writer: each has its own words, none is accused too early."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from forensics.model import Cause, Confidence, StageName
from tests.recordings.collection import Collection, pid_of, py_spy, whole
from tests.recordings.host_work import BEHIND, MAIN, OTHER, collected, first_of, loop, sampled, statements_of
from tests.recordings.job import Frame, Job
from tests.recordings.places import ALL_REDUCE, CHECKPOINT, HOST_CODE, LIB, SITE, Place
from tests.recordings.verdicts import stated, verdict_of

GUARDED: Place = (("Index.negatives", "/srv/job/index.py", 41), *MAIN)
ABSORB: Place = (("Index.absorb", "/srv/job/index.py", 33), ("Thread.run", f"{LIB}threading.py", 982))
QUEUE_GET: Place = (("wait", f"{LIB}threading.py", 320), ("get", f"{LIB}queue.py", 171), *ABSORB)
FUTURE: Place = (
    ("wait", f"{LIB}threading.py", 320),
    ("Future.result", f"{LIB}concurrent/futures/_base.py", 451),
    ("Archive.put", "/srv/job/archive.py", 26),
    *MAIN,
)
WRITER: Place = (
    ("_open_zipfile_writer_file.__init__", f"{SITE}torch/serialization.py", 828),
    ("save", f"{SITE}torch/serialization.py", 1002),
    ("_WorkItem.run", f"{LIB}concurrent/futures/thread.py", 58),
    ("_worker", f"{LIB}concurrent/futures/thread.py", 83),
)
TRITON: Place = (
    ("make_cubin", f"{SITE}triton/backends/nvidia/compiler.py", 400),
    ("compile", f"{SITE}triton/compiler/compiler.py", 290),
    ("train_step", "/srv/job/train.py", 44),
    *MAIN,
)
COMPILED: Place = (
    ("call", "/tmp/torchinductor_root/ab/cab.py", 120),
    ("CompiledFxGraph.__call__", f"{SITE}torch/_inductor/output_code.py", 613),
    ("compile_wrapper", f"{SITE}torch/_dynamo/eval_frame.py", 832),
    ("train_step", "/srv/job/train.py", 44),
    *MAIN,
)
SUBPROCESS: Place = (
    ("Popen._try_wait", f"{LIB}subprocess.py", 2011),
    ("Popen.wait", f"{LIB}subprocess.py", 1264),
    ("Kernels.build", "/srv/job/kernels.py", 39),
    *MAIN,
)
GARBAGE: Place = (("Stream.__del__", "/srv/job/streams.py", 30), ("collect_garbage", "/srv/job/streams.py", 35), *MAIN)


def beside(found: Collection, place: Place, name: str) -> None:
    """A second thread in every stack sample of the rank."""
    for number in range(3):
        path = f"ranks/{BEHIND}/stacks/{number}.json"
        (thread,) = json.loads(py_spy(place, pid_of(BEHIND), thread_name=name))
        found.members[path] = json.dumps([*json.loads(found.members[path]), thread | {"os_thread_id": OTHER}]).encode()


def test_two_threads_that_wait_for_a_lock_are_both_shown(tmp_path: Path) -> None:
    found = collected(GUARDED)
    sampled(found, wchan="futex_do_wait")
    beside(found, ABSORB, "absorb")
    first = first_of(found, tmp_path)
    assert (first.cause, first.rules) == (Cause.HOST_STALL, ("FX117",))
    assert "absorb" in statements_of(first) and "wait for each other" in statements_of(first)


def test_a_thread_that_is_idle_holds_nothing(tmp_path: Path) -> None:
    found = collected(GUARDED)
    sampled(found, wchan="futex_do_wait")
    beside(found, QUEUE_GET, "absorb")
    first = first_of(found, tmp_path)
    assert first.rules == ("FX117",)
    assert "thread 5123" not in statements_of(first)


def test_a_loop_is_shown_by_the_cpu_and_the_function(tmp_path: Path) -> None:
    found = collected(loop(20))
    for number, line in enumerate((20, 22, 24)):
        found.members[f"ranks/{BEHIND}/stacks/{number}.json"] = py_spy(loop(line), pid_of(BEHIND))
    sampled(found, busy=1.0)
    first = first_of(found, tmp_path)
    assert (first.cause, first.rules[0]) == (Cause.HOST_STALL, "FX118")
    assert "lines 20, 22, 24" in statements_of(first) and "100% of a CPU" in statements_of(first)


def test_a_thread_that_polls_is_not_busy(tmp_path: Path) -> None:
    found = collected(HOST_CODE)
    sampled(found, state="S", busy=0.2)
    assert first_of(found, tmp_path).rules == ("FX112",)


def test_work_in_different_functions_is_no_loop(tmp_path: Path) -> None:
    found = collected(HOST_CODE)
    found.members[f"ranks/{BEHIND}/stacks/1.json"] = py_spy(loop(20), pid_of(BEHIND))
    sampled(found, busy=1.0)
    assert first_of(found, tmp_path).rules == ("FX112",)


@pytest.mark.parametrize(("busy", "confidence"), [(0.0, Confidence.CONFIRMED), (1.0, Confidence.SUSPECT)])
def test_a_compiler_that_gets_on_is_only_a_suspicion(busy: float, confidence: Confidence, tmp_path: Path) -> None:
    found = collected(TRITON)
    sampled(found, busy=busy)
    first = first_of(found, tmp_path)
    assert (first.cause, first.rules, first.confidence) == (Cause.HOST_STALL, ("FX119",), confidence)
    assert ("more likely slow than hung" in first.next_steps[0]) == bool(busy)


@pytest.mark.parametrize(("share", "confidence"), [(0.0, Confidence.CONFIRMED), (0.9, Confidence.SUSPECT)])
def test_a_compiler_in_a_child_process_is_named(share: float, confidence: Confidence, tmp_path: Path) -> None:
    found = collected(SUBPROCESS)
    sampled(found, wchan="do_wait", child="cc1plus", child_busy=share)
    first = first_of(found, tmp_path)
    assert (first.rules, first.confidence) == (("FX119",), confidence)
    assert "cc1plus (pid 9001)" in statements_of(first)


def test_another_child_is_no_compiler(tmp_path: Path) -> None:
    found = collected(SUBPROCESS)
    sampled(found, wchan="do_wait", child="rsync")
    assert first_of(found, tmp_path).rules == ("FX112",)


@pytest.mark.parametrize(
    ("wchan", "share", "accused"), [("do_wait", 0.2, False), ("do_wait", 0.0, True), ("anon_pipe_read", 0.2, True)]
)
def test_a_program_that_gets_on_is_at_work_for_whom_waits_for_its_end(
    tmp_path: Path, wchan: str, share: float, accused: bool
) -> None:
    found = collected(HOST_CODE)
    sampled(found, wchan=wchan, child="scorer", child_busy=share)
    verdict = verdict_of(found.write(tmp_path))
    assert ({rank for suspect in verdict.suspects for rank in suspect.ranks} == {BEHIND}) is accused


def test_compiled_code_that_runs_is_no_compilation(tmp_path: Path) -> None:
    assert "FX119" not in first_of(collected(COMPILED), tmp_path).rules


def test_a_finalizer_belongs_to_the_collection_that_called_it(tmp_path: Path) -> None:
    first = first_of(collected(GARBAGE), tmp_path)
    assert (first.cause, first.rules) == (Cause.HOST_STALL, ("FX119",))
    assert "collect_garbage" in statements_of(first)


def test_a_finalizer_alone_is_no_collection(tmp_path: Path) -> None:
    alone: tuple[Frame, ...] = (GARBAGE[0], *MAIN)
    assert first_of(collected(alone), tmp_path).rules == ("FX112",)


def test_a_writer_thread_tells_what_the_main_thread_waits_for(tmp_path: Path) -> None:
    found = collected(FUTURE)
    beside(found, WRITER, "archive_0")
    first = first_of(found, tmp_path)
    assert (first.cause, first.stage.name, first.rules) == (Cause.CHECKPOINT_STALL, StageName.CHECKPOINT, ("FX111",))
    assert "archive_0" in first.evidence[0].statement


def test_a_writer_thread_of_a_rank_that_waits_for_nothing_of_it_explains_nothing(tmp_path: Path) -> None:
    found = collected(HOST_CODE)
    beside(found, WRITER, "archive_0")
    assert first_of(found, tmp_path).cause is Cause.HOST_STALL


def test_a_writer_thread_of_a_waiting_rank_is_no_evidence(tmp_path: Path) -> None:
    job = Job(4)
    job.steps(12)
    job.hang({0})
    found = whole(job, {0: CHECKPOINT, BEHIND: ALL_REDUCE})
    beside(found, WRITER, "archive_0")
    verdict = verdict_of(found.write(tmp_path))
    assert verdict.suspects[0].ranks == (0,) and "archive_0" not in stated(verdict)
