"""Stack samples of every rank, classified, with what stayed the same between samples."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import NewType

from duckdb import DuckDBPyConnection

from forensics.case.database import rows_of
from forensics.frame_form import PlainFrame
from forensics.model import WaitKind
from forensics.rules.reductions.interface import reduction
from forensics.rules.reductions.stacks.activity import Activity, activity
from forensics.rules.reductions.stacks.call_paths import CallPath, call_paths
from forensics.rules.reductions.stacks.working_thread import working_thread


@dataclass(frozen=True, slots=True)
class Sample:
    """One sample of one thread, classified; `source` is `path#thread=N`, `active` that the sampler saw it on a CPU.

    `peer` is the rank that its send or receive is for. `deadline` tells of a thread on a futex whether it sleeps until a date
    of the wall clock (True) or without a limit (False).
    """

    number: int
    pid: int
    thread: int
    is_main: bool
    owns_gil: bool
    activity: Activity
    source: str
    active: bool = False
    name: str = ""
    peer: int | None = None
    deadline: bool | None = None


@dataclass(frozen=True, slots=True)
class Stacks:
    """Samples of one rank: its main thread, its other threads, and the main threads of its child processes, in sample order.

    Where a framework runs the job in another thread than the first of the process, that one is the main thread here.
    """

    main: tuple[Sample, ...]
    threads: tuple[Sample, ...]
    children: tuple[Sample, ...]

    @property
    def latest(self) -> Activity | None:
        """Activity of the main thread in the newest sample."""
        return self.main[-1].activity if self.main else None

    @property
    def working_thread(self) -> int | None:
        """Number of the thread that runs the job, where that is not the first one of the process."""
        return self.main[-1].thread if self.main and not self.main[-1].is_main else None

    @property
    def main_name(self) -> str:
        """What the thread that runs the job is called in a sentence."""
        return f"thread {self.main[-1].name or self.main[-1].thread}" if self.working_thread else "main thread"

    @property
    def communicating(self) -> bool:
        """Whether every sample found the main thread inside a collective or point-to-point call."""
        return bool(self.main) and all(sample.activity.communicating for sample in self.main)

    @property
    def message(self) -> tuple[str, int] | None:
        """Kind and peer of the one send or receive that every sample found the main thread in; None where no peer is known."""
        calls = {(sample.activity.call_frame, sample.peer) for sample in self.main if sample.activity.communicating}
        if not self.communicating or len(calls) != 1:
            return None
        ((frame, peer),) = calls
        return ("recv" if "recv" in frame.function else "send", peer) if frame is not None and peer is not None else None

    @property
    def in_store(self) -> bool:
        """Whether every sample found the main thread waiting in a rendezvous or store."""
        return bool(self.main) and all(sample.activity.wait is WaitKind.STORE for sample in self.main)

    @property
    def in_file_lock(self) -> bool:
        """Whether every sample found the main thread waiting for the lock of a file."""
        return bool(self.main) and all(sample.activity.wait is WaitKind.FILE_LOCK for sample in self.main)

    @property
    def waits_now(self) -> bool:
        """Whether the newest sample found the main thread inside a call of communication, or in a rendezvous or store.

        Where it was before does not matter for whom it waits now: a rank that came late has come.
        """
        return self.in_store_now or (self.latest is not None and self.latest.communicating)

    @property
    def in_store_now(self) -> bool:
        """Whether the newest sample found the main thread waiting in a rendezvous or store."""
        return self.latest is not None and self.latest.wait is WaitKind.STORE

    @property
    def below_autograd(self) -> bool:
        """Whether every sample found the main thread below the autograd engine."""
        return bool(self.main) and all(sample.activity.below_autograd for sample in self.main)

    @property
    def at_device(self) -> bool:
        """Whether every sample found the main thread waiting for its device."""
        return bool(self.main) and all(sample.activity.wait is WaitKind.DEVICE for sample in self.main)

    @property
    def unframed(self) -> bool:
        """Whether every sample found the main thread asleep at one place of the job's own code, no frame shows why."""
        asleep = all(sample.activity.unframed and not sample.active for sample in self.main)
        return bool(self.main) and asleep and same_place(self.main)

    @property
    def rests(self) -> bool:
        """Whether every sample found the main thread at one place of the job's own code, in a sleep or a read of its own."""
        return bool(self.main) and all(sample.activity.rests for sample in self.main) and same_place(self.main)

    @property
    def communicated(self) -> bool:
        """Whether any sample found the main thread in communication, or below the autograd engine, which hides it."""
        return any(sample.activity.communicating or sample.activity.below_autograd for sample in self.main)

    @property
    def moved(self) -> bool:
        """Whether the job's own code was at different places in the samples, or in different calls of communication."""
        return _differ(self.main)

    @property
    def moved_on(self) -> bool:
        """Whether the last two samples found the job's own code at different places, or in different calls."""
        return _differ(self.main[-2:])

    def latest_threads(self) -> tuple[Sample, ...]:
        """Newest sample of each thread besides the main one."""
        newest = {sample.thread: sample for sample in self.threads}
        return tuple(newest[thread] for thread in sorted(newest))

    def latest_children(self) -> tuple[Sample, ...]:
        """Newest sample of each child process."""
        newest = {sample.pid: sample for sample in self.children}
        return tuple(newest[pid] for pid in sorted(newest))


StacksByRank = NewType("StacksByRank", Mapping[int, Stacks])
"""Stack samples of each rank that has any."""


def working_threads(stacks: StacksByRank) -> dict[int, int]:
    """The threads that run the job, by rank, where that is not the first one of the process."""
    return {rank: thread for rank, found in stacks.items() if (thread := found.working_thread)}


def activity_of(stacks: StacksByRank, rank: int) -> Activity | None:
    """Newest activity of a rank's main thread."""
    found = stacks.get(rank)
    return found.latest if found else None


_SAMPLES = """
SELECT k.rank, k.sample, k.pid, k.thread, k.is_main, k.is_child, coalesce(k.owns_gil, false), k.call_path, s.path, k.locator,
       p.wchan, p.deadline, coalesce(k.active, false), coalesce(k.thread_name, ''), k.peer
FROM stacks k JOIN sources s USING (source_id)
LEFT JOIN (
    SELECT rank, pid, thread, sample, any_value(wchan) AS wchan, any_value(deadline) AS deadline FROM processes GROUP BY ALL
) p ON p.rank = k.rank AND p.thread = k.thread AND p.sample = k.sample
WHERE k.rank IS NOT NULL
ORDER BY k.rank, k.sample, s.path, k.thread
"""


_WITHOUT_LOOPS = "distributed_c10d.py"


def _differ(samples: Sequence[Sample]) -> bool:
    """Whether samples tell that the thread went on; never true for a single one."""
    calls = {_call(sample) for sample in samples if sample.activity.communicating}
    own = set(places(samples))
    # A program without Python has no frames of the job's own; that it came into a collective, or left one, is seen.
    compiled = own == {()} and len({sample.activity.communicating for sample in samples}) > 1
    return len(own) > 1 or len(calls) > 1 or compiled or any(map(_began_again, samples, samples[1:]))


def _began_again(before: Sample, after: Sample) -> bool:
    """Whether a thread that slept in a call is at an earlier line of it: one call goes down its lines, and sleeps once.

    So do those of torch; other libraries ask again and again in a loop.
    """
    first, second = before.activity.call_frame, after.activity.call_frame
    if before.active or first is None or second is None or first.line is None or second.line is None:
        return False
    return first.module.endswith(_WITHOUT_LOOPS) and second.line < first.line


def places(samples: Sequence[Sample]) -> list[tuple[PlainFrame, ...]]:
    """Where the job's own code is in each sample: what libraries do below it changes from moment to moment."""
    return [tuple(entry.plain for entry in own) for own in job_frames(samples)]


def job_frames(samples: Sequence[Sample]) -> list[CallPath]:
    """The frames of the job's own code in each sample, innermost first.

    A sampler that shortens paths hides what is a library's; another sample may tell.
    """
    libraries = library_modules(samples)
    return [tuple(e for e in sample.activity.path if e.origin == "app" and e.module not in libraries) for sample in samples]


def library_modules(samples: Iterable[Sample]) -> frozenset[str]:
    """Modules that any of the samples shows to be a library's or Python's own."""
    frames = (entry for sample in samples for entry in sample.activity.path)
    return frozenset(entry.module for entry in frames if entry.origin in ("library", "stdlib"))


def same_place(samples: Sequence[Sample]) -> bool:
    """Whether all Python frames are the same in every sample."""
    return len({plain_frames(sample) for sample in samples}) == 1


def plain_frames(sample: Sample) -> tuple[PlainFrame, ...]:
    """Python's frames of a sample as they are compared."""
    return tuple(entry.plain for entry in sample.activity.python_path)


def _call(sample: Sample) -> tuple[object, ...]:
    """The call of communication a thread is in, and all frames around it, which stand still until it returns."""
    path, call = sample.activity.python_path, sample.activity.call_frame
    if call is None:
        return ()
    return (call.plain[:2], *(entry.plain for entry in path[path.index(call) + 1 :]))


@reduction
def stacks(connection: DuckDBPyConnection) -> StacksByRank:
    """Classify every sample of a case, by rank; each distinct call path is looked at once."""
    rows = rows_of(connection, "stacks", _SAMPLES)
    paths = call_paths(connection, (row[7] for row in rows if row[7] is not None))
    known: dict[tuple[int | None, str | None, bool | None], Activity] = {}
    found: dict[int, tuple[list[Sample], list[Sample], list[Sample]]] = defaultdict(lambda: ([], [], []))
    for (
        rank, number, pid, thread, is_main, is_child, owns_gil, call_path, path, locator, wchan, deadline, active, name, peer
    ) in rows:  # fmt: skip
        key = (call_path, wchan, deadline)
        if key not in known:
            known[key] = activity(paths.get(call_path, ()), wchan, deadline=deadline is True)
        where = f"{path}#{locator}"
        sample = Sample(
            number or 0, pid or 0, thread or 0, bool(is_main), owns_gil, known[key], where, active, name, peer, deadline
        )
        main, threads, children = found[rank]
        if not is_child:
            (main if is_main else threads).append(sample)
        elif is_main:
            children.append(sample)
    by_rank = {rank: Stacks(tuple(m), tuple(t), tuple(c)) for rank, (m, t, c) in found.items()}
    working = {rank: _of_working_thread(each) for rank, each in by_rank.items()}
    entries = {entry for each in working.values() if each.waits_now and (entry := _entry(each))}
    # Without a main thread any other may have been pasted: that which begins as those of ranks that communicate.
    return StacksByRank(
        {rank: working[rank] if each.main or _entry(working[rank]) in entries else each for rank, each in by_rank.items()}
    )


def _entry(found: Stacks) -> PlainFrame | tuple[object, ...] | None:
    """Function and file in which the job's own code begins in the newest sample of the main thread."""
    own = job_frames(found.main[-1:])
    return own[-1][-1].plain[:2] if own and own[-1] else None


def _of_working_thread(found: Stacks) -> Stacks:
    """The samples of a rank, with the thread that runs the job as its main one."""
    threads: dict[int, list[Activity]] = defaultdict(list)
    for sample in found.threads:
        threads[sample.thread].append(sample.activity)
    working = working_thread([sample.activity for sample in found.main], threads)
    if working is None:
        return found
    others = [sample for sample in found.threads if sample.thread != working]
    return Stacks(
        main=tuple(sample for sample in found.threads if sample.thread == working),
        threads=tuple(sorted((*found.main, *others), key=lambda sample: sample.number)),
        children=found.children,
    )
