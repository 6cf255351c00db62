"""A rank that waits for what comes from outside is not accused where the others wait for it as they should."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from forensics.model import Confidence, Verdict
from tests.recordings.collection import Collection, pid_of, process_sample, py_spy, whole
from tests.recordings.job import SECOND, Job
from tests.recordings.places import ALL_REDUCE, BROADCAST, FORWARD, LIB, Place
from tests.recordings.verdicts import verdict_of

FIRST = 0
MAIN: Place = (("serve", "/srv/job/chat.py", 19), ("<module>", "/srv/job/chat.py", 30))
READ: Place = (("read_request", "/srv/job/chat.py", 15), *MAIN)
POLL: Place = (("take", "/srv/job/inbox.py", 17), *MAIN)
PDB: Place = (("Pdb.cmdloop", f"{LIB}cmd.py", 126), *MAIN)
EVENT_LOOP: Place = (
    ("EpollSelector.select", f"{LIB}selectors.py", 468),
    ("BaseEventLoop._run_once", f"{LIB}asyncio/base_events.py", 1884),
    ("run", f"{LIB}asyncio/runners.py", 190),
    *MAIN,
)
QUEUE_GET: Place = (("Condition.wait", f"{LIB}threading.py", 320), ("Queue.get", f"{LIB}queue.py", 171), *MAIN)
SERVER_THREAD: Place = (
    ("_PollLikeSelector.select", f"{LIB}selectors.py", 415),
    ("BaseServer.serve_forever", f"{LIB}socketserver.py", 233),
    ("Thread.run", f"{LIB}threading.py", 982),
)
LISTENING = ("16 -> tcp listening 127.0.0.1:8000", "14 -> unix to")


def collected(place: Place, kind: str = "broadcast", *, before: int = 0) -> Collection:
    """All wait for rank 0 in a call of this kind, of which there were some `before` at the same place."""
    job = Job(4)
    job.steps(12)
    for _ in range(before):
        job.call(job.everyone, kind)
    job.hang({FIRST}, kind=kind)
    elsewhere = BROADCAST if kind == "broadcast" else ALL_REDUCE
    return whole(job, {FIRST: place} | dict.fromkeys((1, 2, 3), elsewhere), silence_ns=60 * SECOND)


def sampled(found: Collection, wchan: str, *files: str, woken: int = 0) -> None:
    for number in range(3):
        time_ns = found.at_ns + 2 * number * SECOND
        document = json.loads(process_sample(FIRST, time_ns, wchan=wchan, switches=40 + woken * number))
        document["processes"][0]["threads"][0]["waits_on"] = list(files)
        found.members[f"ranks/{FIRST}/proc/{number}.json"] = json.dumps(document).encode()


def named(verdict: Verdict) -> set[int]:
    return {rank for suspect in verdict.suspects for rank in suspect.ranks}


@pytest.mark.parametrize("file", ["0 -> pipe:[771]", "0 -> /dev/pts/3", "7 -> /dev/tty"])
def test_a_line_to_be_typed_holds_nobody_up_that_waits_for_it(tmp_path: Path, file: str) -> None:
    found = collected(READ, before=30)
    sampled(found, "anon_pipe_read", file)
    verdict = verdict_of(found.write(tmp_path))
    assert (verdict.outcome, named(verdict)) == ("inconclusive", set())
    assert verdict.leads[0].startswith(f"whether a line of input ({file}) was due: rank 0 waits for it, and ranks 1-3")


@pytest.mark.parametrize(
    ("kind", "file"),
    [("all_reduce", "0 -> /dev/pts/3"), ("broadcast", "7 -> pipe:[771]"), ("broadcast", "7 -> /mnt/shards/3")],
    ids=["a question amid a step", "a pipe of its own", "a file"],
)
def test_who_stops_at_a_question_or_a_read_is_named(tmp_path: Path, kind: str, file: str) -> None:
    found = collected(READ, kind)
    sampled(found, "anon_pipe_read", file)
    verdict = verdict_of(found.write(tmp_path))
    assert named(verdict) == {FIRST}
    assert any(f"(descriptor {file})" in item.statement for item in verdict.suspects[0].evidence)
    assert ("answer it" in verdict.suspects[0].next_steps[0]) is file.startswith("0 ->")


def test_a_breakpoint_is_no_line_of_input(tmp_path: Path) -> None:
    found = collected(PDB)
    sampled(found, "anon_pipe_read", "0 -> /dev/pts/3")
    assert named(verdict_of(found.write(tmp_path))) == {FIRST}


@pytest.mark.parametrize(("before", "woken", "accused"), [(2, 1, False), (12, 1, True), (2, 0, True)])
def test_who_asks_with_pauses_is_idle_unless_it_handed_on_all_the_time(
    tmp_path: Path, before: int, woken: int, accused: bool
) -> None:
    found = collected(POLL, before=before)
    sampled(found, "hrtimer_nanosleep", woken=woken)
    assert named(verdict_of(found.write(tmp_path))) == ({FIRST} if accused else set())


def test_who_asks_with_pauses_within_a_step_is_named(tmp_path: Path) -> None:
    found = collected(POLL, "all_reduce")
    sampled(found, "hrtimer_nanosleep", woken=1)
    assert named(verdict_of(found.write(tmp_path))) == {FIRST}


@pytest.mark.parametrize(
    ("files", "accused"),
    [(LISTENING, False), ((*LISTENING, "18 -> tcp to 10.0.0.9:443"), True), (("18 -> tcp to 10.0.0.9:443",), True), ((), True)],
    ids=["listens", "has a client", "waits for an answer", "unknown"],
)
def test_an_event_loop_that_only_listens_is_a_server(tmp_path: Path, files: tuple[str, ...], accused: bool) -> None:
    found = collected(EVENT_LOOP)
    sampled(found, "do_epoll_wait", *files)
    assert named(verdict_of(found.write(tmp_path))) == ({FIRST} if accused else set())


@pytest.mark.parametrize("in_pass", [True, False], ids=["in a module of the model", "before the step"])
def test_a_listener_inside_a_pass_is_no_server(tmp_path: Path, in_pass: bool) -> None:
    accept: Place = (("socket.accept", f"{LIB}socket.py", 295), ("break_here", "/srv/job/debug.py", 7))
    found = collected((*accept, *(FORWARD if in_pass else MAIN)), "all_reduce")
    sampled(found, "inet_csk_accept", LISTENING[0])
    assert named(verdict_of(found.write(tmp_path))) == ({FIRST} if in_pass else set())


@pytest.mark.parametrize("serves", [True, False])
def test_a_queue_is_of_outside_where_a_server_fills_it(tmp_path: Path, serves: bool) -> None:
    found = collected(QUEUE_GET)
    sampled(found, "futex_do_wait")
    for number in range(3 if serves else 0):
        path = f"ranks/{FIRST}/stacks/{number}.json"
        (thread,) = json.loads(py_spy(SERVER_THREAD, pid_of(FIRST), thread_name="http"))
        found.members[path] = json.dumps([*json.loads(found.members[path]), thread | {"os_thread_id": 5123}]).encode()
    assert named(verdict_of(found.write(tmp_path))) == (set() if serves else {FIRST})


@pytest.mark.parametrize(
    ("kind", "before", "sure"), [("broadcast", 1, False), ("broadcast", 12, True), ("all_reduce", 1, True)]
)
def test_who_reads_from_a_connection_and_seldom_hands_on_is_a_suspicion(
    tmp_path: Path, kind: str, before: int, sure: bool
) -> None:
    found = collected(READ, kind, before=before)
    sampled(found, "wait_woken", "15 -> tcp to 10.0.0.9:6379")
    (first,) = verdict_of(found.write(tmp_path)).suspects
    assert (first.ranks, first.confidence is Confidence.SUSPECT) == ((FIRST,), not sure)


@pytest.mark.parametrize(("before", "sure"), [(1, False), (12, True)], ids=["a call of its own", "a step like all before"])
def test_who_stops_at_a_question_is_a_suspicion_unless_it_stops_a_step(tmp_path: Path, before: int, sure: bool) -> None:
    found = collected(READ, "barrier", before=before)
    sampled(found, "anon_pipe_read", "0 -> /dev/pts/3")
    (first,) = verdict_of(found.write(tmp_path)).suspects
    assert (first.ranks, first.confidence is Confidence.SUSPECT) == ((FIRST,), not sure)


@pytest.mark.parametrize(("port", "confidence"), [("29500", Confidence.SUSPECT), ("6379", Confidence.CONFIRMED)])
def test_who_waits_for_a_key_of_the_store_need_not_be_at_fault(tmp_path: Path, port: str, confidence: Confidence) -> None:
    found = collected(POLL, "all_reduce")
    sampled(found, "poll_schedule_timeout.constprop.0", f"4 -> tcp to [::ffff:10.0.0.1]:{port}")
    (suspect,) = verdict_of(found.write(tmp_path)).suspects
    assert (suspect.ranks, suspect.confidence) == ((FIRST,), confidence)
    assert suspect.next_steps[0].startswith("see which key rank 0 asks the store for at") is (port == "29500")
