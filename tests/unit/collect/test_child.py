from __future__ import annotations

import os
import signal
import time
from pathlib import Path
from typing import Any

import pytest

from forensics.collect import child as child_module
from forensics.collect.child import Child, Emit


@pytest.fixture(autouse=True)
def short_graces(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(child_module, "TERM_GRACE_S", 0.1)
    monkeypatch.setattr(child_module, "KILL_GRACE_S", 0.1)


def run(child: Child, stop: bool = False) -> list[Any]:
    """Everything a child says until it ended or was given up."""
    documents: list[Any] = []
    while not child.ended:
        documents.extend(child.receive())
        child.press(time.monotonic(), stop)
        time.sleep(0.005)
    return [*documents, *child.receive()]


def wait_reaped(child: Child) -> None:
    while not child.reap():
        time.sleep(0.005)


def test_what_a_child_says_arrives() -> None:
    child = Child(lambda emit: emit({"n": 1}), 5.0)
    assert run(child) == [{"n": 1}]
    assert not child.expired
    wait_reaped(child)


@pytest.mark.slow
def test_a_child_that_ignores_sigterm_is_killed_and_what_it_said_is_kept() -> None:
    def stubborn(emit: Emit) -> None:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        emit("first")
        time.sleep(60)

    child = Child(stubborn, 1.0)
    assert run(child) == ["first"]
    assert child.expired
    wait_reaped(child)


@pytest.mark.slow
def test_the_programs_a_child_started_end_with_it() -> None:
    def parent(emit: Emit) -> None:
        program = os.fork()
        if program == 0:
            time.sleep(60)
            os._exit(0)
        emit(program)
        time.sleep(60)

    child = Child(parent, 1.0)
    (program,) = run(child)
    wait_reaped(child)
    assert not is_running(program)


def is_running(pid: int) -> bool:
    for _ in range(200):
        try:
            with open(f"/proc/{pid}/stat", "rb") as stream:  # noqa: PTH123
                if stream.read().rpartition(b")")[2].split()[0] == b"Z":
                    return False
        except FileNotFoundError:
            return False
        time.sleep(0.005)
    return True


def test_a_child_that_cannot_be_killed_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    sent: list[int] = []
    monkeypatch.setattr(Child, "_send", lambda self, number: sent.append(number))
    child = Child(lambda emit: time.sleep(60), 0.05)
    assert run(child) == []
    assert sent == [signal.SIGTERM, signal.SIGKILL]
    os.kill(child.pid, signal.SIGKILL)
    wait_reaped(child)


def test_an_error_of_a_collector_is_stated() -> None:
    def broken(emit: Emit) -> None:
        raise ValueError("no such thing")

    child = Child(broken, 5.0)
    assert run(child) == [{"failure": "ValueError: no such thing"}]
    wait_reaped(child)


def test_a_child_holds_no_terminal_or_pipe_of_the_user_open() -> None:
    child = Child(lambda emit: emit([str(Path(f"/proc/self/fd/{number}").readlink()) for number in (0, 1, 2)]), 5.0)
    assert run(child) == [["/dev/null"] * 3]
    wait_reaped(child)
