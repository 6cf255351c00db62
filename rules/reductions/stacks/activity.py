"""What a thread was doing: training stage and kind of wait, read from the structure of its call path."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from itertools import takewhile

from forensics.model import Component, StageName, WaitKind
from forensics.rules.reductions.stacks import stage_patterns as patterns
from forensics.rules.reductions.stacks.call_paths import CallPath, Frame, application_frame, own_frames

_MOST_FRAMES = 4096
COMMUNICATING = frozenset({WaitKind.COLLECTIVE, WaitKind.POINT_TO_POINT})


@dataclass(frozen=True, slots=True)
class Activity:
    """Stage and wait of one call path.

    `stage_frame` is the frame that shows the stage; `by_words` is set when only the job's own names show it. `call_frame` is
    the Python frame that shows the wait, for example the collective that was called; a wait without one was shown by native
    frames, or where `by_kernel` is set by the kernel alone.
    """

    stage: StageName
    wait: WaitKind
    path: CallPath
    stage_frame: Frame | None = None
    call_frame: Frame | None = None
    by_words: bool = False
    by_kernel: bool = False

    @property
    def communicating(self) -> bool:
        """Whether the thread is inside a collective or a point-to-point call."""
        return self.wait in COMMUNICATING

    @property
    def python_path(self) -> CallPath:
        """The frames of Python, without those of compiled libraries that some samplers show."""
        return tuple(entry for entry in self.path if entry.origin != "native")

    @property
    def below_autograd(self) -> bool:
        """Whether the innermost Python frame is the autograd engine: hooks that communicate leave no frame of their own."""
        return bool(self.python_path) and self.python_path[0].function == "_engine_run_backward"

    @property
    def waits_for_others(self) -> bool:
        """Whether the thread waits for other ranks or for the autograd engine: it holds no lock of the process meanwhile."""
        return self.communicating or self.wait is WaitKind.STORE or self.below_autograd

    @property
    def unframed(self) -> bool:
        """Whether the thread sleeps right below the job's own code and no frame tells in what.

        `wait()` of a work handle leaves no Python frame, and neither does `with lock:`.
        """
        return self._in_own_code and (self.wait is WaitKind.UNKNOWN or (self.wait is WaitKind.LOCK and self.by_kernel))

    @property
    def rests(self) -> bool:
        """Whether the kernel alone shows that the thread pauses or reads right below the job's own code."""
        return self._in_own_code and self.by_kernel and self.wait in (WaitKind.SLEEP, WaitKind.IO)

    @property
    def _in_own_code(self) -> bool:
        """Whether the innermost Python frame is the job's own."""
        path = self.python_path
        return bool(path) and path[0].origin == "app"

    @property
    def event_loop(self) -> Frame | None:
        """The frame of an event loop that sleeps until something comes: what its tasks wait for is in no frame."""
        inner = next((entry for entry in self.python_path if entry.module != "selectors.py"), None)
        return inner if inner is not None and inner.module.startswith("asyncio/") else None

    @property
    def words_alone(self) -> bool:
        """Whether only the job's own names tell the stage: no frame of a library, no wait for a file, a pipe or a socket."""
        reads_or_writes = self.wait in (WaitKind.IO, WaitKind.FILE_LOCK)
        return self.by_words and not (reads_or_writes and self.stage in (StageName.DATA, StageName.CHECKPOINT))

    @property
    def component(self) -> Component:
        """Component that the stage was using at that moment."""
        if self.communicating:
            return Component.COMMUNICATION
        return Component.COMPUTE if self.wait is WaitKind.DEVICE else Component.HOST

    @property
    def application(self) -> Frame | None:
        """Innermost frame of the job's own code."""
        return application_frame(self.path)

    def describe(self) -> str:
        """One line for an evidence statement: outermost of the telling frames first."""
        telling = (self.path[0] if self.path else None, self.call_frame, self.stage_frame, self.application)
        chosen = [entry for entry in self.path if entry in telling]
        return " > ".join(str(entry) for entry in reversed(chosen)) or "no Python frames"


def _matcher(table: Sequence[patterns.Pattern[patterns.Result]]) -> Callable[[str, str], patterns.Result | None]:
    """What a table says of a module and a function: the same few frames stand in the stacks of all ranks."""

    @lru_cache(maxsize=_MOST_FRAMES)
    def match(module: str, function: str) -> patterns.Result | None:
        return next((row.result for row in table if row.module.match(module) and row.function.match(function)), None)

    return match


_schedule_of, _pickling_of = _matcher(patterns.SCHEDULES), _matcher(patterns.PICKLING)
_wait_of, _stage_of = _matcher(patterns.WAITS), _matcher(patterns.STAGES)


def activity(path: CallPath, wchan: str | None = None, *, deadline: bool = False) -> Activity:
    """Classify one call path (innermost frame first); native frames and `wchan` refine what the Python frames leave open.

    `deadline` says that the thread sleeps on a futex until a date of the wall clock. Right below the job's own code that is
    the `wait()` of a work handle: `with lock:` waits without a limit, and a lock with one counts on the monotonic clock
    (CPython 3.11, Python/thread_pthread.h; condition variables of C++ in the wheels of PyTorch 2.13).
    """
    frames = own_frames(path)
    wait, call = _wait(frames)
    if wait is WaitKind.UNKNOWN:
        wait = _native_wait(frames)
    by_kernel = wait is WaitKind.UNKNOWN
    if by_kernel:
        wait = wait_of_wchan(wchan)
        inner = next((entry for entry in frames if entry.origin != "native"), None)
        if wait is WaitKind.LOCK and inner is not None:
            wait = _schedule_of(inner.module, inner.function) or wait
    stage, identified_by, by_words = _stage(frames)
    if wait is WaitKind.EXITING and stage is StageName.INIT:
        stage, identified_by = StageName.UNKNOWN, None
    found = Activity(stage, wait, frames, identified_by, call, by_words, by_kernel and wait is not WaitKind.UNKNOWN)
    if deadline and found.unframed and found.wait is WaitKind.LOCK:
        return replace(found, wait=WaitKind.POINT_TO_POINT)
    # The engine sleeps on a futex until its devices and the reductions of hooks are done.
    return replace(found, wait=WaitKind.UNKNOWN, by_kernel=False) if found.below_autograd and wait is WaitKind.LOCK else found


def wait_of_wchan(wchan: str | None) -> WaitKind:
    """Kind of wait that a kernel function name tells."""
    for kind, pattern in patterns.WCHANS:
        if wchan and pattern.match(wchan):
            return kind
    return WaitKind.UNKNOWN


def _wait(frames: CallPath) -> tuple[WaitKind, Frame | None]:
    """The innermost telling frame below the job's own code decides; a lock inside a loader is the loader's wait.

    What turns objects into bytes below a collective is not in the collective yet, or not any more.
    """
    best: tuple[WaitKind, Frame | None] = (WaitKind.UNKNOWN, None)
    for entry in frames:
        if entry.origin == "app" or _pickling_of(entry.module, entry.function) is not None:
            break
        kind = _wait_of(entry.module, entry.function)
        if kind is not None and (best[1] is None or _more_telling(kind, best[0])):
            best = (kind, entry)
    return best


def _native_wait(frames: CallPath) -> WaitKind:
    """What the native frames below the innermost Python frame tell, the innermost first."""
    native = list(takewhile(lambda frame: frame.origin == "native", frames))
    for place, entry in enumerate(native):
        for kind, pattern in patterns.NATIVE_WAITS:
            if pattern.match(entry.name):
                around = kind is WaitKind.DEVICE and any(map(_is_around_nccl, native[place:]))
                return WaitKind.COLLECTIVE if around else kind
    return WaitKind.UNKNOWN


def _is_around_nccl(entry: Frame) -> bool:
    return patterns.AROUND_NCCL.match(entry.name) is not None


# Inside a library call the outer purpose says more than the primitive it sleeps in.
_PURPOSE = COMMUNICATING | {WaitKind.STORE, WaitKind.DATA, WaitKind.CHILD, WaitKind.EXITING, WaitKind.COMPILE}


def _more_telling(outer: WaitKind, inner: WaitKind) -> bool:
    if outer is WaitKind.EXITING:
        return True
    return outer in _PURPOSE and inner not in _PURPOSE


def _stage(frames: CallPath) -> tuple[StageName, Frame | None, bool]:
    stage, identified_by = _structural_stage(frames)
    worded, worded_by = _worded_stage(frames)
    if stage is StageName.UNKNOWN:
        return worded, worded_by, worded is not StageName.UNKNOWN
    if (stage, worded) in patterns.OVERRIDES and worded_by is not None and _outside(frames, worded_by, identified_by):
        return worded, worded_by, True
    evaluated = _evaluation_around(frames, identified_by) if stage is StageName.FORWARD else None
    return (stage, identified_by, False) if evaluated is None else (StageName.EVAL, evaluated, True)


def _evaluation_around(frames: CallPath, inner: Frame | None) -> Frame | None:
    """The evaluation that the job's own name shows around a forward pass whose frames have names of their own.

    Who trains in it, or by the same function, does not only evaluate.
    """
    around = frames[frames.index(inner) + 1 :] if inner is not None else ()
    named = ((entry, words_of(entry.function)) for entry in around if entry.origin == "app")
    entry, words = next(((entry, words) for entry, words in named if words & _EVALUATES | words & _TRAINS), (None, _TRAINS))
    return None if words & _TRAINS else entry


_EVALUATES = next(words.alone for words in patterns.WORDS if words.stage is StageName.EVAL)
_TRAINS = frozenset({"train", "training", "fit", "backward"})


def _outside(frames: CallPath, outer: Frame, inner: Frame | None) -> bool:
    return inner is None or frames.index(outer) > frames.index(inner)


def _structural_stage(frames: CallPath) -> tuple[StageName, Frame | None]:
    stage, identified_by = StageName.UNKNOWN, None
    for entry in frames:
        if identified_by is not None and entry.function == "closure":
            break  # an optimizer that is given forward and backward runs them inside its step
        found = _stage_of(entry.module, entry.function) if entry.origin != "app" else _iterator(entry)
        if found is None:
            continue
        if identified_by is None or (stage, found) in patterns.OVERRIDES:
            stage, identified_by = found, entry
    return stage, identified_by


def _iterator(entry: Frame) -> StageName | None:
    return StageName.DATA if entry.function in patterns.ITERATOR_METHODS else None


_WORD = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+|\d+")


def _worded_stage(frames: CallPath) -> tuple[StageName, Frame | None]:
    """By names of functions and files, innermost first. The script itself is called by what the whole job does."""
    script = next((entry.module for entry in reversed(frames) if entry.function == "<module>"), None)
    for entry in frames:
        if entry.origin != "app":
            continue
        function = words_of(entry.name)
        file = words_of(entry.module.rsplit("/", 1)[-1].removesuffix(".py"))
        for words in patterns.WORDS:
            if function & words.alone or (function & words.verbs and function & words.nouns):
                return words.stage, entry
        if entry.module != script and entry.function not in ("<module>", "main", "run", "__init__"):
            for words in patterns.WORDS:
                if file & words.alone:
                    return words.stage, entry
    return StageName.UNKNOWN, None


def words_of(name: str) -> frozenset[str]:
    """Words of an identifier in lower case: `save_shard` and `saveShard` have the same two."""
    return frozenset(word.lower() for word in _WORD.findall(name))
