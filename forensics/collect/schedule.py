"""Run the collectors: each in a child with its own deadline, several at once, started in time and in order.

The orchestrator has no threads, because it forks. It never waits for a particular child: it looks at what arrived, presses
those that are out of time, and gives up those that do not even die.
"""

from __future__ import annotations

import select
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from forensics.bundle.layout import Status
from forensics.collect.child import Child, Emit
from forensics.collect.record import Run, failure, now_ns

_TICK_S = 0.2


@dataclass(frozen=True, slots=True)
class Task:
    """One run of one collector: starts `offset_s` after the collection did and after the tasks named in `after`."""

    key: str
    id: str
    rank: int | None
    sample: int | None
    work: Callable[[], Iterable[Run]]
    deadline_s: float
    offset_s: float = 0.0
    after: tuple[str, ...] = ()
    pid: int | None = None


@dataclass(frozen=True, slots=True)
class Limits:
    """What ends a collection early: the deadline, counted from `began` (monotonic clock, s), or the user.

    `wake` becomes readable when the user asks.
    """

    deadline_s: float
    began: float
    stopped: Callable[[], bool] = lambda: False
    wake: int | None = None


@dataclass(slots=True)
class _Running:
    task: Task
    child: Child
    runs: int = 0
    provisional: Run | None = None
    failure: str | None = None


@dataclass(slots=True)
class _State:
    waiting: list[Task]
    running: list[_Running] = field(default_factory=list)
    done: set[str] = field(default_factory=set)
    unreaped: list[Child] = field(default_factory=list)
    why_stopped: tuple[Status, str] | None = None


def run_tasks(
    tasks: Sequence[Task], limits: Limits, on_run: Callable[[Run], None], on_progress: Callable[[int, int], None]
) -> bool:
    """Run all tasks and report every run as it arrives; true when they were ended early."""
    began = time.monotonic()
    state = _State(list(tasks))
    while state.waiting or state.running:
        now = time.monotonic()
        if state.why_stopped is None:
            state.why_stopped = _why_stop(limits, now)
        if state.why_stopped is not None:
            for task in state.waiting:
                on_run(_without_result(task, state.why_stopped[0], f"not started: {state.why_stopped[1]}"))
            state.waiting.clear()
        _start_due(state, now - began)
        on_progress(len(state.done), len(tasks))
        _wait(state, limits, now - began)
        for run in _collect(state):
            on_run(run)
    on_progress(len(tasks), len(tasks))
    return state.why_stopped is not None


def _why_stop(limits: Limits, now: float) -> tuple[Status, str] | None:
    if limits.stopped():
        return Status.KILLED, "the collection was interrupted"
    if now - limits.began >= limits.deadline_s:
        return Status.TIMEOUT, f"the overall deadline of {limits.deadline_s:g} s passed"
    return None


def _start_due(state: _State, elapsed: float) -> None:
    due = [task for task in state.waiting if task.offset_s <= elapsed and state.done.issuperset(task.after)]
    for task in due:
        state.waiting.remove(task)
        state.running.append(_Running(task, Child(_worker(task), task.deadline_s)))


def _worker(task: Task) -> Callable[[Emit], None]:
    def work(emit: Emit) -> None:
        for run in _timed(task):
            emit({"run": run})

    return work


def _timed(task: Task) -> Iterator[Run]:
    """The runs of a task with their times; an error of the operating system becomes a run."""
    begin = now_ns()
    try:
        for run in task.work():
            end = now_ns()
            yield replace(run, begin_ns=run.begin_ns or begin, end_ns=run.end_ns or end)
            begin = end
    except OSError as error:
        status, reason = failure(error, str(error.filename or task.id))
        yield Run(task.id, task.rank, status, reason, task.pid, task.sample, begin_ns=begin, end_ns=now_ns())


def _wait(state: _State, limits: Limits, elapsed: float) -> None:
    """Sleep until something arrives, the user asks to stop, a task is due, or a tick is over."""
    descriptors = [one.child.descriptor for one in state.running if not one.child.ended]
    if limits.wake is not None and not limits.stopped():
        descriptors.append(limits.wake)
    poller = select.poll()
    for descriptor in descriptors:
        poller.register(descriptor, select.POLLIN)
    due = [task.offset_s - elapsed for task in state.waiting if task.offset_s > elapsed]
    poller.poll(max(min(_TICK_S, *due, _TICK_S), 0.001) * 1000)


def _collect(state: _State) -> Iterator[Run]:
    """What arrived, and what is to be said of the children that ended."""
    now = time.monotonic()
    for one in list(state.running):
        for document in one.child.receive():
            yield from _received(one, document)
        one.child.press(now, stop=state.why_stopped is not None)
        if one.child.ended:
            state.running.remove(one)
            state.done.add(one.task.key)
            state.unreaped.append(one.child)
            yield from _ended(one, state)
    state.unreaped = [child for child in state.unreaped if not child.reap()]


def _received(one: _Running, document: Any) -> Iterator[Run]:
    if "failure" in document:
        one.failure = document["failure"]
        return
    fields = document["run"]
    run = Run(**{**fields, "status": Status(fields["status"]), "argv": tuple(fields["argv"])})
    if run.provisional:
        one.provisional = run
        return
    one.provisional = None
    one.runs += 1
    yield run


def _ended(one: _Running, state: _State) -> Iterator[Run]:
    """A run for a child that was stopped, failed or died before it said all it had to say."""
    if one.child.expired and state.why_stopped is not None:
        status, reason = state.why_stopped
    elif one.child.expired:
        status, reason = Status.TIMEOUT, f"not done in {one.task.deadline_s:g} s"
    elif one.failure is not None:
        status, reason = Status.KILLED, f"the collector failed: {one.failure}"
    elif one.runs == 0:
        status, reason = Status.KILLED, "the collector died without a result"
    else:
        return
    if one.provisional is not None:
        said = f"{one.provisional.reason}; {reason}" if one.provisional.reason else reason
        yield replace(one.provisional, status=Status.PARTIAL, reason=said, provisional=False)
    else:
        yield _without_result(one.task, status, reason)


def _without_result(task: Task, status: Status, reason: str) -> Run:
    now = now_ns()
    return Run(task.id, task.rank, status, reason, task.pid, task.sample, begin_ns=now, end_ns=now)
