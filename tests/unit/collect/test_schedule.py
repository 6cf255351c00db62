from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterable, Iterator

import pytest

from forensics.bundle.layout import Status
from forensics.collect import child as child_module
from forensics.collect.record import Run, failure, summary_status
from forensics.collect.schedule import Limits, Task, run_tasks


@pytest.fixture(autouse=True)
def short_graces(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(child_module, "TERM_GRACE_S", 0.1)
    monkeypatch.setattr(child_module, "KILL_GRACE_S", 0.1)


def task(key: str, work: Callable[[], Iterable[Run]], deadline_s: float = 10.0, after: tuple[str, ...] = ()) -> Task:
    return Task(key, key, 0, None, work, deadline_s, after=after)


def ok(key: str) -> Callable[[], Iterable[Run]]:
    return lambda: [Run(key, 0, Status.OK)]


def forever(said: Run | None = None) -> Callable[[], Iterable[Run]]:
    def work() -> Iterator[Run]:
        if said is not None:
            yield said
        time.sleep(60)

    return work


def outcome(
    tasks: list[Task], deadline_s: float = 30.0, stopped: Callable[[], bool] = lambda: False
) -> tuple[list[Run], bool, list[tuple[int, int]]]:
    runs: list[Run] = []
    progress: list[tuple[int, int]] = []
    limits = Limits(deadline_s, time.monotonic(), stopped)
    early = run_tasks(tasks, limits, runs.append, lambda done, total: progress.append((done, total)))
    return runs, early, progress


def test_tasks_run_after_those_they_name_and_get_their_times() -> None:
    runs, early, progress = outcome([task("b", ok("b"), after=("a",)), task("a", ok("a"))])
    assert [run.id for run in runs] == ["a", "b"]
    assert all(0 < run.begin_ns <= run.end_ns for run in runs)
    assert runs[0].end_ns <= runs[1].begin_ns
    assert not early
    assert progress[-1] == (2, 2)


def test_a_collector_out_of_time_is_reported_and_the_next_one_still_runs() -> None:
    slow = task("a", forever(Run("a", 0, Status.OK, path="x")), deadline_s=0.2)
    runs, early, _ = outcome([slow, task("b", ok("b"), after=("a",))])
    assert [(run.id, run.status) for run in runs] == [("a", Status.OK), ("a", Status.TIMEOUT), ("b", Status.OK)]
    assert runs[1].reason == "not done in 0.2 s"
    assert not early


def test_a_provisional_run_stands_only_when_nothing_better_follows() -> None:
    early = Run("a", 0, Status.PARTIAL, "stacks blocked", path="p", provisional=True)
    runs, _, _ = outcome([task("a", forever(early), deadline_s=0.2)])
    assert [(run.status, run.path, run.reason) for run in runs] == [(Status.PARTIAL, "p", "stacks blocked; not done in 0.2 s")]
    runs, _, _ = outcome([task("a", lambda: [early, Run("a", 0, Status.OK, path="p")])])
    assert [(run.status, run.path) for run in runs] == [(Status.OK, "p")]


def test_the_overall_deadline_ends_what_runs_and_what_waits() -> None:
    runs, early, _ = outcome([task("a", forever()), task("b", ok("b"), after=("a",))], deadline_s=0.2)
    assert early
    assert {run.id: (run.status, run.reason) for run in runs} == {
        "a": (Status.TIMEOUT, "the overall deadline of 0.2 s passed"),
        "b": (Status.TIMEOUT, "not started: the overall deadline of 0.2 s passed"),
    }


def test_an_interrupt_ends_what_runs_and_what_waits() -> None:
    runs, early, _ = outcome([task("a", forever()), task("b", ok("b"), after=("a",))], stopped=lambda: True)
    assert early
    assert {run.status for run in runs} == {Status.KILLED}


def test_errors_and_sudden_deaths_are_runs_too() -> None:
    def missing() -> Iterator[Run]:
        yield Run("a", 0, Status.OK)
        raise FileNotFoundError(2, "No such file or directory", "/proc/1/x")

    def dies() -> Iterable[Run]:
        os._exit(3)

    def fails() -> Iterable[Run]:
        raise ValueError("of no use")

    runs, _, _ = outcome([task("a", missing), task("b", dies), task("c", fails)])
    by_id = {run.id: (run.status, run.reason) for run in runs if run.status is not Status.OK}
    assert by_id == {
        "a": (Status.NOT_FOUND, "/proc/1/x: no such file or directory"),
        "b": (Status.KILLED, "the collector died without a result"),
        "c": (Status.KILLED, "the collector failed: ValueError: of no use"),
    }


@pytest.mark.parametrize(
    ("statuses", "expected"),
    [
        ([Status.OK, Status.OK], Status.OK),
        ([Status.OK, Status.TIMEOUT], Status.PARTIAL),
        ([Status.TIMEOUT, Status.TIMEOUT], Status.TIMEOUT),
        ([Status.NOT_FOUND, Status.PERMISSION], Status.PARTIAL),
    ],
)
def test_several_runs_make_one_status(statuses: list[Status], expected: Status) -> None:
    assert summary_status(Run("a", 0, status) for status in statuses) is expected


def test_runs_that_do_not_count_decide_only_alone() -> None:
    child = Run("a", 0, Status.UNSUPPORTED, counts=False)
    assert summary_status([Run("a", 0, Status.OK), child]) is Status.OK
    assert summary_status([child]) is Status.UNSUPPORTED


@pytest.mark.parametrize(
    ("error", "status"),
    [
        (PermissionError(13, "Permission denied"), Status.PERMISSION),
        (FileNotFoundError(2, "No such file or directory"), Status.NOT_FOUND),
        (TimeoutError("timed out"), Status.TIMEOUT),
        (OSError(5, "Input/output error"), Status.PARTIAL),
    ],
)
def test_errors_of_the_system_have_a_status(error: OSError, status: Status) -> None:
    assert failure(error, "x")[0] is status
