"""A rank that is at work may take its time: writing, serving, evaluating."""

from __future__ import annotations

from pathlib import Path

import pytest

from forensics.fixtures.simulator.faults import parse
from forensics.fixtures.simulator.presets import PRESETS
from forensics.fixtures.simulator.simulation import simulate
from forensics.model import Confidence, Outcome, StageName
from forensics.rules.diagnosis import diagnose
from tests.recordings.collection import pid_of, process_sample, py_spy, whole
from tests.recordings.host_work import BEHIND, MAIN, collected, first_of, loop, sampled, statements_of
from tests.recordings.job import SECOND, Job
from tests.recordings.places import CHECKPOINT, HOST_CODE, LIB, SITE, Place
from tests.recordings.verdicts import verdict_of
from tests.unit.pipeline.simulated import case_of

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
