"""A rank that fetches data while the others wait at a barrier: bytes that come wake it, and a read that stands is not woken."""

from __future__ import annotations

from pathlib import Path

import pytest

from forensics.model import Outcome
from forensics.rules.reductions.ranks.fed import Look, is_fed
from tests.recordings.collection import Collection
from tests.recordings.job import SECOND, Job
from tests.recordings.places import BARRIER, JOB, LIB, SITE, Place
from tests.recordings.verdicts import named, verdict_of

DOWNLOAD: Place = (
    ("SocketIO.readinto", f"{LIB}socket.py", 706),
    ("HTTPResponse.read", f"{LIB}http/client.py", 473),
    ("download", JOB, 13),
    ("<module>", JOB, 97),
)
STAGE_WAITS: Place = (
    ("_wait_batch_p2p", f"{SITE}torch/distributed/pipelining/schedules.py", 683),
    ("ScheduleGPipe._step_microbatches", f"{SITE}torch/distributed/pipelining/schedules.py", 928),
    ("main", JOB, 22),
    ("<module>", JOB, 97),
)
WRITES: Place = (("write_out", JOB, 10), ("main", JOB, 29), ("<module>", JOB, 97))
NO_TIMERS, ALARM = "0000000100000002", "0000000000002002"


def collected(waits: Place, works: Place, moving: bool, wchan: str, signals: str | None = NO_TIMERS) -> Collection:
    found = Collection(3, Job(3).now_ns + 60 * SECOND)
    for rank in range(3):
        found.rank(rank)
        if rank == 0:
            found.samples(rank, moving=moving, wchan=wchan, signals=signals)
        else:
            found.samples(rank, wchan="futex_do_wait", signals=NO_TIMERS)
        found.stacks(rank, *[waits if rank else works] * 3)
    return found


@pytest.mark.parametrize("wchan", ["wait_woken", "unix_stream_data_wait", "anon_pipe_read"])
def test_nobody_hangs_while_data_comes(tmp_path: Path, wchan: str) -> None:
    verdict = verdict_of(collected(BARRIER, DOWNLOAD, True, wchan).write(tmp_path))
    assert not named(verdict) and verdict.outcome is Outcome.INCONCLUSIVE


@pytest.mark.parametrize(
    ("moving", "wchan", "signals"),
    [
        (False, "wait_woken", NO_TIMERS),
        (True, "poll_schedule_timeout.constprop.0", NO_TIMERS),
        (True, "wait_woken", ALARM),
        (True, "wait_woken", None),
    ],
    ids=["nothing comes", "it polls with a limit", "a timer may wake it", "nothing tells of timers"],
)
def test_a_read_that_stands_or_wakes_by_itself_holds_up_the_others(
    tmp_path: Path, moving: bool, wchan: str, signals: str | None
) -> None:
    verdict = verdict_of(collected(BARRIER, DOWNLOAD, moving, wchan, signals).write(tmp_path))
    assert named(verdict) == {0} and verdict.outcome is Outcome.HANG


def test_stages_that_wait_for_messages_in_the_schedule_of_torch_wait_for_the_one_elsewhere(tmp_path: Path) -> None:
    """`wait()` of gloo's messages is native: the schedule's own function is the innermost Python frame."""
    verdict = verdict_of(collected(STAGE_WAITS, WRITES, False, "locks_lock_inode_wait").write(tmp_path))
    assert named(verdict) == {0} and verdict.outcome is Outcome.HANG


SENDS = "[<0>] wait_woken+0x89/0x90\n[<0>] sk_stream_wait_memory+0x268/0x3b0\n[<0>] tcp_sendmsg_locked+0x74a/0x1270"


@pytest.mark.parametrize(
    ("wchan", "stack", "switches", "moves"),
    [
        ("wait_woken", SENDS, (153, 157, 158), True),
        ("wait_woken", SENDS, (153, 153, 158), False),
        ("wait_woken", SENDS, (153, 154, 154), False),
        ("wait_woken", None, (153, 157, 158), False),
        ("anon_pipe_write", None, (20, 22, 25), True),
        ("do_poll", SENDS, (20, 22, 25), False),
    ],
    ids=["an upload", "woken at one time only", "woken once", "may be a read", "a pipe", "a limit may wake it"],
)
def test_a_write_of_which_something_is_taken_is_at_work(
    wchan: str, stack: str | None, switches: tuple[int, ...], moves: bool
) -> None:
    assert is_fed([Look(wchan, False, count, stack) for count in switches]) is moves
