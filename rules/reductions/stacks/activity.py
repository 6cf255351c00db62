"""What a thread was doing: training stage and kind of wait, read from the structure of its call path."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from forensics.model import Component, StageName, WaitKind
from forensics.rules.reductions.stacks import stage_patterns as patterns
from forensics.rules.reductions.stacks.call_paths import CallPath, Frame, application_frame, own_frames

COMMUNICATING = frozenset({WaitKind.COLLECTIVE, WaitKind.POINT_TO_POINT})


@dataclass(frozen=True, slots=True)
class Activity:
    """Stage and wait of one call path.

    `stage_frame` is the frame that told the stage; `by_words` is set when only the job's own names told it. `call_frame` is the
    frame that told the wait, for example the collective that was called.
    """

    stage: StageName
    wait: WaitKind
    path: CallPath
    stage_frame: Frame | None = None
    call_frame: Frame | None = None
    by_words: bool = False

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


def activity(path: CallPath, wchan: str | None = None) -> Activity:
    """Classify one call path (innermost frame first); `wchan` refines what the Python frames leave open."""
    frames = own_frames(path)
    wait, call = _wait(frames)
    if wait is WaitKind.UNKNOWN:
        wait = wait_of_wchan(wchan)
    stage, told_by, by_words = _stage(frames)
    if wait is WaitKind.EXITING and stage is StageName.INIT:
        stage, told_by = StageName.UNKNOWN, None
    return Activity(stage, wait, frames, told_by, call, by_words)


def wait_of_wchan(wchan: str | None) -> WaitKind:
    """Kind of wait that a kernel function name tells."""
    for kind, pattern in patterns.WCHANS:
        if wchan and pattern.match(wchan):
            return kind
    return WaitKind.UNKNOWN


def _wait(frames: CallPath) -> tuple[WaitKind, Frame | None]:
    """The innermost telling frame below the job's own code decides; a lock inside a loader is the loader's wait."""
    best: tuple[WaitKind, Frame | None] = (WaitKind.UNKNOWN, None)
    for entry in frames:
        if entry.origin == "app":
            break
        kind = _match(patterns.WAITS, entry)
        if kind is not None and (best[1] is None or _more_telling(kind, best[0])):
            best = (kind, entry)
    return best


# Inside a library call the outer purpose says more than the primitive it sleeps in.
_PURPOSE = COMMUNICATING | {WaitKind.STORE, WaitKind.DATA, WaitKind.CHILD, WaitKind.EXITING, WaitKind.COMPILE}


def _more_telling(outer: WaitKind, inner: WaitKind) -> bool:
    if outer is WaitKind.EXITING:
        return True
    return outer in _PURPOSE and inner not in _PURPOSE


def _stage(frames: CallPath) -> tuple[StageName, Frame | None, bool]:
    stage, told_by = _structural_stage(frames)
    worded, worded_by = _worded_stage(frames)
    if stage is StageName.UNKNOWN:
        return worded, worded_by, worded is not StageName.UNKNOWN
    if (stage, worded) in patterns.OVERRIDES and worded_by is not None and _outside(frames, worded_by, told_by):
        return worded, worded_by, True
    return stage, told_by, False


def _outside(frames: CallPath, outer: Frame, inner: Frame | None) -> bool:
    return inner is None or frames.index(outer) > frames.index(inner)


def _structural_stage(frames: CallPath) -> tuple[StageName, Frame | None]:
    stage, told_by = StageName.UNKNOWN, None
    for entry in frames:
        found = _match(patterns.STAGES, entry) if entry.origin != "app" else _iterator(entry)
        if found is None:
            continue
        if told_by is None or (stage, found) in patterns.OVERRIDES:
            stage, told_by = found, entry
    return stage, told_by


def _iterator(entry: Frame) -> StageName | None:
    return StageName.DATA if entry.function in patterns.ITERATOR_METHODS else None


def _match(table: Sequence[patterns.Pattern[patterns.Result]], entry: Frame) -> patterns.Result | None:
    for row in table:
        if row.module.match(entry.module) and row.function.match(entry.function):
            return row.result
    return None


_WORD = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+|\d+")


def _worded_stage(frames: CallPath) -> tuple[StageName, Frame | None]:
    for entry in frames:
        if entry.origin != "app":
            continue
        function = words_of(entry.name)
        file = words_of(entry.module.rsplit("/", 1)[-1].removesuffix(".py"))
        for words in patterns.WORDS:
            if function & words.alone or (function & words.verbs and function & words.nouns):
                return words.stage, entry
        if entry.function not in ("<module>", "main", "run", "__init__"):
            for words in patterns.WORDS:
                if file & words.alone:
                    return words.stage, entry
    return StageName.UNKNOWN, None


def words_of(name: str) -> frozenset[str]:
    """Words of an identifier in lower case: `save_shard` and `saveShard` have the same two."""
    return frozenset(word.lower() for word in _WORD.findall(name))
