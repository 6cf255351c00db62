"""Exceptions as Python and torch print them into a log, over several lines or one."""

from __future__ import annotations

import re
from collections import deque
from dataclasses import replace
from typing import NamedTuple

from forensics.ingest._job_logs.line_origin import Origin
from forensics.ingest._job_logs.patterns import EXCEPTION_TYPE, mentions
from forensics.ingest._shared.values import rank_number

TRACEBACK = "Traceback (most recent call last):"
_EXCEPTION = re.compile(r"((?:[A-Za-z_]\w*\.)*[A-Z]\w*)(?::(?: .*)?)?")
_FRAME = re.compile(r'  File "[^"]+", line \d+, in \S')
# vLLM's worker says so above the traceback, and answers no call any more (vllm/v1/executor/multiproc_executor.py).
WORKER_ENDS = "WorkerProc hit an exception."
# SGLang's scheduler, and the thread of it that runs the model (tp_worker_overlap_thread.py), end their server by this.
_SERVER_ENDS = ("Scheduler hit an exception: ", "TpModelWorkerClient hit an exception: ")
# Above all that a shard wrote before it ended; the launcher puts the number of the shard behind the last line of it
# (launcher/src/main.rs of text-generation-inference).
SHARD_ENDS = "Shard complete standard error output:"
_SHARD = re.compile(r" rank=(\d{1,7})$")
# Above what Python prints of an exception and goes on from: in a finalizer, at exit, in a hook, while it logs
# (PyErr_WriteUnraisable, Modules/atexitmodule.c, Lib/logging/__init__.py of CPython 3.8 to 3.14).
SURVIVED = ("Exception ignored ", "Error in atexit._run_exitfuncs:", "Error in sys.excepthook:", "--- Logging error ---")
# It prints what a finalizer raises, and calls the next one.
_FINALIZERS = re.compile(r'File "[^"]*multiprocessing[/\\]util\.py", line \d+, in _run_finalizers')
CHAINED = ("During handling of the above exception", "The above exception was the direct cause")
# Lines that such a heading stands above its traceback, by whether the lines have labels: others may write between.
_NEAR = {False: 3, True: 256}
_MAX_OPEN = 1024
_LONGEST_PREFIX = 96
_MAX_FRAMES = 64
_LONGEST_GAP = 1 << 14


# torch prints an exception that nothing caught behind the rank (`_wrap_excepthook`, torch 2.2 and later).
UNCAUGHT_WORDS = ("Error", "Exception", "Interrupt", "Exit")
_UNCAUGHT = re.compile(r"\[rank\d{1,7}\]: " + EXCEPTION_TYPE)
_ALONE = re.compile(EXCEPTION_TYPE)


def headless(origin: Origin) -> tuple[str, str] | None:
    """Kind and type of an exception whose traceback does not stand above: one that a rank says of itself, or is printed for it.

    What nobody says of himself (`bare_error`) may have been caught, and is the only trace of an end where a log was searched.
    """
    line = origin.bare
    found = _UNCAUGHT.search(line) if "[rank" in line else None
    found = found or _ALONE.match(line, origin.text)
    is_said = found is not None and (found.re is _UNCAUGHT or origin.text > 0 or origin.rank is not None)
    return ("exception" if is_said else "bare_error", found["type"]) if found else None


class Raised(NamedTuple):
    """A traceback that has ended: type of the exception, and its frames as Python prints them, innermost last.

    `origin` is that of the line in which it began. `is_end` says that by this line the process ended, `is_survived` that the
    process went on.
    """

    exception: str
    frames: tuple[str, ...]
    origin: Origin
    is_end: bool
    is_survived: bool

    def whose(self, last: Origin) -> Origin:
        """Who raised it: its last line may have the label of a container alone, and its first one that of a process in it."""
        begins_within = (self.origin.label or "").startswith(f"{last.label} ")
        return self.origin if last.label is None or begins_within else last


class _Open(NamedTuple):
    origin: Origin
    is_end: bool
    is_survived: bool
    frames: deque[str]


class Tracebacks:
    """Reads tracebacks, several at once when ranks share a log and each line starts with its rank."""

    def __init__(self) -> None:
        self._open: dict[str, _Open] = {}
        self._lengths: set[int] = set()
        self._last = 0
        self._begun: tuple[int, str] = (0, "")
        self._ending: set[str | None] = set()
        self._ignored: dict[str | None, int] = {}
        self._survived: set[str | None] = set()
        self._of_shard = False

    def is_open(self, number: int) -> bool:
        """Whether a traceback has begun, and was not cut."""
        return bool(self._open) and number - self._last <= _LONGEST_GAP

    def feed(self, number: int, origin: Origin) -> Raised | None:
        """The traceback that this line ends."""
        line = origin.bare
        if self._open and not self.is_open(number):
            self._open.clear()
        if WORKER_ENDS in line:
            self._ending.add(origin.label)
        if mentions(line, SURVIVED) or (origin.label in self._survived and mentions(line, CHAINED)):
            self._ignored[origin.label] = number
        self._of_shard = self._of_shard or SHARD_ENDS in line
        start = line.find(TRACEBACK)
        if start >= 0:
            self._begin(number, origin, line[:start].removesuffix("Original "))
            return None
        if not self._open:
            return None
        self._without_message(number, line, line[: origin.text])
        for prefix in self._prefixes(line):
            rest = line[len(prefix) :]
            if _FRAME.match(rest):
                self._open[prefix].frames.append(rest.strip())
                self._last = number
            elif match := _EXCEPTION.fullmatch(rest):
                ended = self._ended(self._open.pop(prefix), rest)
                return self._raised(match[1], ended)
        return None

    def _raised(self, exception: str, ended: _Open) -> Raised:
        """The traceback, which a chained one may follow below."""
        of_finalizer = bool(ended.frames) and _FINALIZERS.match(ended.frames[0]) is not None
        is_survived = ended.is_survived or of_finalizer
        if is_survived:
            self._survived.add(ended.origin.label)
        else:
            self._survived.discard(ended.origin.label)
        return Raised(exception, tuple(ended.frames), ended.origin, ended.is_end, is_survived)

    def _without_message(self, number: int, line: str, labels: str) -> None:
        """A traceback that was logged behind a message goes on below it without that."""
        at, begun = self._begun
        is_below = number == at + 1 and begun in self._open and begun != labels and begun.startswith(labels)
        if is_below and labels not in self._open and _FRAME.match(line, len(labels)):
            self._open[labels] = self._open.pop(begun)
            self._lengths.add(len(labels))

    def _ended(self, ended: _Open, last: str) -> _Open:
        """The traceback with the shard that it ended, where its last line shows that."""
        shard = _SHARD.search(last) if self._of_shard and ended.origin.rank is None else None
        if shard is None:
            return ended
        self._of_shard = False
        return ended._replace(origin=replace(ended.origin, rank=rank_number(shard[1])), is_end=True)

    def _begin(self, number: int, origin: Origin, prefix: str) -> None:
        # What stands behind a message in one line goes on in lines of its own.
        is_end = prefix.endswith(_SERVER_ENDS)
        prefix = prefix[: origin.process] if is_end else prefix
        is_end = is_end or origin.label in self._ending
        heading = self._ignored.pop(origin.label, None)
        is_survived = heading is not None and number - heading <= _NEAR[origin.label is not None]
        self._ending.discard(origin.label)
        if len(self._open) < _MAX_OPEN and len(prefix) <= _LONGEST_PREFIX:
            self._last, self._begun = number, (number, prefix)
            self._open[prefix] = _Open(origin, is_end, is_survived, deque(maxlen=_MAX_FRAMES))
            self._lengths.add(len(prefix))

    def _prefixes(self, line: str) -> list[str]:
        """What the line starts with of the open prefixes: looked up by length, for there may be a thousand of them."""
        found = {line[:length] for length in self._lengths if length <= len(line)}
        return [prefix for prefix in self._open if prefix in found] if len(found) > 1 else [p for p in found if p in self._open]
