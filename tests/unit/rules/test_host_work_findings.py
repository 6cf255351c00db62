"""A lock, a loop, a compiler, the garbage collector, a background writer: each has its own words, none is accused too early."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from forensics.fixtures.simulator.faults import parse
from forensics.fixtures.simulator.presets import PRESETS
from forensics.fixtures.simulator.simulation import simulate
from forensics.model import Cause, Confidence, Outcome, StageName, Suspect
from forensics.rules.diagnosis import diagnose
from tests.recordings.collection import Collection, pid_of, process_sample, py_spy, whole
from tests.recordings.job import SECOND, Frame, Job
from tests.recordings.places import ALL_REDUCE, CHECKPOINT, HOST_CODE, LIB, SITE, Place
from tests.recordings.verdicts import stated, verdict_of
from tests.unit.pipeline.simulated import case_of

BEHIND = 2
MAIN: Place = (("main", "/srv/job/train.py", 88), ("<module>", "/srv/job/train.py", 97))
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


SERVER: Place = (
    ("_PollLikeSelector.select", f"{LIB}selectors.py", 415),
    ("BaseServer.serve_forever", f"{LIB}socketserver.py", 233),
    *MAIN,
)
EVENT_LOOP: Place = (
    ("EpollSelector.select", f"{LIB}selectors.py", 468),
    ("BaseEventLoop._run_once", f"{LIB}asyncio/base_events.py", 1884),
    ("BaseEventLoop.run_forever", f"{LIB}asyncio/base_events.py", 607),
    ("run", f"{LIB}asyncio/runners.py", 190),
    *MAIN,
)
HANDLER: Place = (
    ("SocketIO.readinto", f"{LIB}socket.py", 718),
    ("Handler.do_GET", "/srv/job/serve.py", 12),
    ("BaseRequestHandler.__init__", f"{LIB}socketserver.py", 755),
    *SERVER[1:],
)
SCORE: Place = (("rouge", "/srv/job/score.py", 9), ("evaluate", "/srv/job/train.py", 30), *MAIN)
GAVE_UP = (
    b"[rank0]:[E1120 13:50:40.826258055 ProcessGroupNCCL.cpp:616] [Rank 0] Watchdog caught collective operation timeout: "
    b"WorkNCCL(SeqNum=13, OpType=ALLREDUCE, NumelIn=8, NumelOut=8, Timeout(ms)=600000) ran for 600029 milliseconds before "
    b"timing out.\n"
)


def loop(line: int) -> Place:
    return (("Packer.fill", "/srv/job/packer.py", line), *MAIN)


def collected(place: Place, silence_s: int = 60, rank: int = BEHIND) -> Collection:
    job = Job(4)
    job.steps(12)
    job.hang({rank})
    return whole(job, {rank: place}, silence_ns=silence_s * SECOND)


def sampled(
    found: Collection,
    *,
    state: str | None = None,
    wchan: str | None = None,
    busy: float = 0.0,
    child: str | None = None,
    child_busy: float = 0.0,
    rank: int = BEHIND,
) -> None:
    """Three samples, two seconds apart: `busy` shares of a CPU, a child process of that name."""
    for number in range(3):
        time_ns = found.at_ns + 2 * number * SECOND
        document: dict[str, Any] = json.loads(process_sample(rank, time_ns, wchan=wchan, state=state or ("R" if busy else "S")))
        main = document["processes"][0]
        main["threads"][0]["utime_ticks"] = 300 + int(200 * number * busy)
        main["threads"] += [main["threads"][0] | {"tid": tid} for tid in (OTHER,)]
        if child:
            thread = main["threads"][0] | {"tid": 9001, "name": child, "utime_ticks": int(200 * number * child_busy)}
            document["processes"].append(
                {"pid": 9001, "ppid": pid_of(rank), "is_child": True, "threads": [thread], "errors": []}
            )
        found.members[f"ranks/{rank}/proc/{number}.json"] = json.dumps(document).encode()


OTHER = 5123


def beside(found: Collection, place: Place, name: str) -> None:
    """A second thread in every stack sample of the rank."""
    for number in range(3):
        path = f"ranks/{BEHIND}/stacks/{number}.json"
        (thread,) = json.loads(py_spy(place, pid_of(BEHIND), thread_name=name))
        found.members[path] = json.dumps([*json.loads(found.members[path]), thread | {"os_thread_id": OTHER}]).encode()


def first_of(found: Collection, tmp_path: Path) -> Suspect:
    verdict = verdict_of(found.write(tmp_path))
    assert verdict.suspects[0].ranks == (BEHIND,)
    assert len({suspect.fault for suspect in verdict.suspects}) == 1
    return verdict.suspects[0]


def statements_of(suspect: Suspect) -> str:
    return "\n".join(item.statement for item in suspect.evidence)


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


@pytest.mark.parametrize(("busy", "silence_s", "accused"), [(1.0, 60, False), (1.0, 400, True), (0.0, 60, True)])
def test_a_rank_that_writes_its_first_checkpoint_may_take_minutes(
    tmp_path: Path, busy: float, silence_s: int, accused: bool
) -> None:
    found = collected(CHECKPOINT, silence_s)
    sampled(found, busy=busy)
    verdict = verdict_of(found.write(tmp_path))
    assert [suspect.rules for suspect in verdict.suspects] == ([("FX111",)] if accused else [])


MB = 1_000_000


@pytest.mark.parametrize(
    ("counts", "silence_s", "accused"),
    [
        ((0, 3 * MB, 7 * MB), 60, False),
        ((0, 3 * MB, 7 * MB), 400, True),
        ((0, 3 * MB, 3 * MB), 60, True),
        ((9 * MB, 9 * MB + 4000, 9 * MB + 8000), 60, True),
        ((None, None, None), 60, True),
        ((0, None, 7 * MB), 60, True),
    ],
    ids=["writes", "too long", "stands by now", "notes that it waits", "not known", "once not known"],
)
def test_a_rank_from_which_data_leaves_is_at_work(
    tmp_path: Path, counts: tuple[int | None, ...], silence_s: int, accused: bool
) -> None:
    found = collected(CHECKPOINT, silence_s)
    sampled(found, wchan="hrtimer_nanosleep")
    found.written(BEHIND, counts)
    verdict = verdict_of(found.write(tmp_path))
    assert [suspect.rules for suspect in verdict.suspects] == ([("FX111",)] if accused else [])


FILE_LOCK: Place = (
    ("BaseFileLock.acquire", f"{SITE}filelock/_api.py", 332),
    ("BaseFileLock.__enter__", f"{SITE}filelock/_api.py", 376),
    ("save", "/srv/job/save.py", 9),
    *MAIN,
)


@pytest.mark.parametrize(("other", "accused"), [(None, True), (FILE_LOCK, True), (SCORE, False)], ids=["one", "two", "holder"])
def test_a_rank_that_asks_for_a_file_lock_again_and_again_is_not_at_work(
    tmp_path: Path, other: Place | None, accused: bool
) -> None:
    job = Job(4)
    job.steps(12)
    job.hang({BEHIND} if other is None else {BEHIND, 0})
    found = whole(job, {BEHIND: FILE_LOCK} if other is None else {BEHIND: FILE_LOCK, 0: other})
    for number in range(3):
        looked = process_sample(BEHIND, found.at_ns + 2 * number * SECOND, wchan="hrtimer_nanosleep", switches=50 * number)
        found.members[f"ranks/{BEHIND}/proc/{number}.json"] = looked
    verdict = verdict_of(found.write(tmp_path))
    assert (BEHIND in {rank for suspect in verdict.suspects for rank in suspect.ranks}) is accused


def test_a_server_without_clients_holds_nobody_up(tmp_path: Path) -> None:
    found = collected(SERVER, silence_s=4000)
    sampled(found, wchan="do_poll")
    verdict = verdict_of(found.write(tmp_path))
    assert verdict.suspects == ()
    reasons = [each.withheld or "" for each in verdict.assessments if each.rules == ("FX112",)]
    assert [reason.partition(" (")[0] for reason in reasons] == ["rank 2 waits for a request"]


def test_a_server_that_handles_a_request_is_no_idle_one(tmp_path: Path) -> None:
    found = collected(HANDLER)
    sampled(found, wchan="sk_wait_data")
    assert first_of(found, tmp_path).rules == ("FX112",)


def test_a_server_that_left_a_request_between_samples_is_no_idle_one(tmp_path: Path) -> None:
    found = collected(SERVER)
    found.members[f"ranks/{BEHIND}/stacks/1.json"] = py_spy(HANDLER, pid_of(BEHIND))
    sampled(found, wchan="do_poll")
    assert first_of(found, tmp_path).rules == ("FX112",)


def test_a_server_whose_peers_gave_up_is_named(tmp_path: Path) -> None:
    found = collected(SERVER, silence_s=4000)
    sampled(found, wchan="do_poll")
    found.members["ranks/0/logs/rank0.log"] = GAVE_UP
    assert first_of(found, tmp_path).rules == ("FX112",)


@pytest.mark.parametrize(("silence_s", "accused"), [(60, False), (400, True)])
def test_a_rank_that_evaluates_alone_may_take_minutes(tmp_path: Path, silence_s: int, accused: bool) -> None:
    found = collected(SCORE, silence_s)
    for number, line in enumerate((7, 9, 8)):
        place = (("rouge", "/srv/job/score.py", line), *SCORE[1:])
        found.members[f"ranks/{BEHIND}/stacks/{number}.json"] = py_spy(place, pid_of(BEHIND))
    sampled(found, busy=1.0)
    verdict = verdict_of(found.write(tmp_path))
    assert ({rank for suspect in verdict.suspects for rank in suspect.ranks} == {BEHIND}) is accused


@pytest.mark.parametrize(
    ("rank", "silence_s", "accused"), [(0, 60, False), (0, 400, True), (BEHIND, 60, True)],
    ids=["the first one", "for too long", "another one"],
)  # fmt: skip
def test_a_first_rank_that_sleeps_in_an_evaluation_may_take_minutes(
    rank: int, silence_s: int, accused: bool, tmp_path: Path
) -> None:
    """It evaluates for all, and waits for what it evaluates; one that another place of the step stops for looks otherwise."""
    found = collected(SCORE, silence_s, rank)
    sampled(found, wchan="hrtimer_nanosleep", rank=rank)
    verdict = verdict_of(found.write(tmp_path))
    assert [suspect.ranks for suspect in verdict.suspects] == ([(rank,)] if accused else [])


def test_an_evaluation_that_sleeps_is_not_at_work(tmp_path: Path) -> None:
    found = collected(SCORE)
    sampled(found, wchan="futex_do_wait")
    assert first_of(found, tmp_path).stage.name is StageName.EVAL


@pytest.mark.parametrize(
    ("place", "confidence"),
    [(EVENT_LOOP, Confidence.SUSPECT), ((("fetch", "/srv/job/fetch.py", 8), *EVENT_LOOP[1:]), Confidence.CONFIRMED)],
    ids=["asleep", "inside a task"],
)
def test_an_event_loop_that_sleeps_does_not_tell_what_it_waits_for(
    tmp_path: Path, place: Place, confidence: Confidence
) -> None:
    found = collected(place)
    sampled(found, wchan="do_epoll_wait")
    first = first_of(found, tmp_path)
    assert first.confidence is confidence
    assert ("a server without requests" in statements_of(first)) is (confidence is Confidence.SUSPECT)


@pytest.mark.parametrize(("seconds", "moves", "accused"), [(8, False, True), (4, False, False), (8, True, False)])
def test_stacks_beside_a_record_show_how_long_the_others_wait(seconds: int, moves: bool, accused: bool, tmp_path: Path) -> None:
    """Work is given ten seconds: the dumps are made at the begin of a collection, and the last stacks four seconds later."""
    found = collected(HOST_CODE, silence_s=seconds)
    sampled(found, busy=1.0)
    for rank in (0, 1, 3) if moves else ():
        found.members[f"ranks/{rank}/stacks/1.json"] = py_spy(loop(20), pid_of(rank))
    verdict = verdict_of(found.write(tmp_path))
    assert ({rank for suspect in verdict.suspects for rank in suspect.ranks} == {BEHIND}) is accused


def test_stacks_at_one_place_count_on_no_wait_that_its_record_does_not_show(tmp_path: Path) -> None:
    """Hosts of a sound job that read a loss from their device in every step are there in all samples of a few seconds."""
    made = simulate(PRESETS["ddp-8"], [parse("none")], 2, iterations=30)
    with case_of(made, tmp_path, timing=True, sources=("recorder", "stacks", "processes", "counters", "logs")) as connection:
        found = diagnose(connection)
    assert found.outcome is not Outcome.HANG and not found.suspects
