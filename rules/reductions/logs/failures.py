"""Errors by which ranks ended, by their logs: those of a rank itself, and those that only tell that another one was gone.

When a rank fails, its peers lose their connections or give up waiting, and write errors as long as its own. What they say is
about somebody else; so is what a rank raises after a watchdog in the same log has given up.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import NamedTuple

from duckdb import DuckDBPyConnection

from forensics.case.database import has_rows, rows_of
from forensics.model import Evidence
from forensics.rules.reductions.logs.checkpoints import Checkpoints
from forensics.rules.reductions.logs.raised import Caught, Failure, Raised, Standstill, standstill
from forensics.rules.reductions.logs.workers import Workers

_OF_ANOTHER = re.compile(
    r"Dist(?:Backend|Network|Store)Error|Connection(?:Reset|Aborted|Refused|)Error|BrokenPipe|ChildFailedError|"
    # UCC: what it does not support, invalid parameters, no memory and no resources (-1 to -5, -7) no peer causes.
    r"ProcessGroup(?!UCC-|UCC\.cpp:\d{1,5}\].{0,200}, error code -[1-57]:)|"
    r"ProcessExitedException|ProcessRaisedException|CalledProcessError|SignalException|KeyboardInterrupt|SystemExit|"
    r"[Ww]atchdog|HorovodInternalError|(?:Ray)?ActorDiedError|WorkerCrashedError|RendezvousConnectionError|"
    r"[Cc]onnection (?:closed|reset|refused)|Broken pipe|[Rr]emote (?:process|peer)|"
    r"NCCL (?:error|communicator|operation|timeout)|"
    r"error code is (?:4|6|7|9)\b|error code(?: is|:) ?50704[678]\b|"
    r"hccl\w* api failed|[Cc]ollective call returned error|Transport init error|"
    r"nccl(?:Remote|System|Internal|Unhandled\w*|InvalidUsage)(?:Error)?|unhandled (?:system|cuda) error|"
    # torch_npu names the call that failed, as `AclrtSynchronizeStreamWithTimeout`, whatever its error was.
    r"(?<!StreamWith)[Tt]imed? ?out|collective operation|monitoredBarrier|[Mm]ismatch between collectives|"
    r"Horovod (?:has been shut down|detected that one or more processes exited)|"
    r"store based barrier|TCPStore|[Ss]ocket|UNAVAILABLE|[Aa]borted due to|SIGTERM|cancelled|EOFError"
)
_GPU = re.compile(r"uncorrectable (?:ECC|NVLink)|ECC error|fallen off the bus|unrecoverable|GPU is lost|hardware stack")
_BY_ITS_DEVICE = re.compile(
    r"out of memory|illegal (?:memory access|instruction|address)|misaligned address|launch failure|device-side assert|"
    r"hardware stack|uncorrectable"
)
"""CUDA's errors of one process; those of a driver, a fabric or a number of a device are the same for all."""
_QUOTES_CUDA = re.compile(r"unhandled cuda error")
_QUOTED_LINES = 6
"""NCCL's explanation and its last error stand right below the exception, behind the same rank."""
_LOST_DEVICE = re.compile(r"code=(?:48|64|79|94|95|119|120|140) ")
"""Xids by which a device takes its process with it; those that a program or a peer can cause are not among them."""
_ODD_ONE = re.compile(r"\bRank (\d{1,7}) has different values? for .{1,200}[Oo]ther ranks:")
"""What all ranks raise that found one of them to differ from all others."""
_OF_DEVICE = re.compile(
    r"(?:^|(?:/it|it/s)\])[^\[\]]*\bby GPU node-\d"
    r"|Queue 0x\w{1,16} aborting with error : HSA_STATUS_ERROR_(?:EXCEPTION|MEMORY_\w+|ILLEGAL_\w+)"
)
"""What ROCm's runtime writes before it aborts the process whose device failed; a label in front may be that of another node."""
_OF_PROGRAM_TOO = re.compile("Memory access fault by GPU|HSA_STATUS_ERROR_")
"""Those that a kernel of the program causes as often."""
_CORRUPTED = re.compile(
    r"(?:free|[cm]alloc|realloc|munmap_chunk|malloc_consolidate)\(\): "
    r"|double free or|corrupted (?:size vs|double-linked)|\*\*\* stack smashing"
)
"""What glibc writes before it aborts a process whose own memory does not hold together; nothing in it tells the rank."""
_OF_ITSELF = re.compile(r": Rank (?P<rank>\d{1,7}), node [^\s,]{1,255}, device \d")
_NUMBER = re.compile(r"\d+")
_BARE = ("Killed", "Aborted", "Segmentation fault", "Bus error", "Illegal instruction", "Floating point exception")
"""What a shell says of a process that a signal ended."""
_BY_LAUNCHER = re.compile("ChildFailedError|ActorDiedError")
"""What the process that started the ranks raises of one of them: it waited for nobody."""


@dataclass(frozen=True, slots=True)
class Failures:
    """Own errors by rank, ranks whose errors tell of another one, and whether anything shows that the job ended.

    `only_following` says that errors without a rank tell of another one, and no error of anybody's own stands there.
    `is_witnessed` is set when some other rank speaks too, or a launcher says that it ended the others: an error of one rank
    alone may be that of all, in a text that shows one. `is_shared` is set when several ranks noted errors of their own.
    `is_known` is set when `own` are those that all others name in one exception. `of_device` is the error of a device by which
    a process aborted whose rank the line does not tell, where nobody had given up before; `corrupted` is the one line by which
    glibc aborted one. `devices` are processes by number
    whose device the driver says failed under them. `interrupted` is the first line of an interrupt from the keyboard, where no
    other error stands in the logs.
    """

    own: Mapping[int, Failure] = field(default_factory=dict)
    following: frozenset[int] = frozenset()
    unranked_following: bool = False
    only_following: bool = False
    ended: str | None = None
    is_witnessed: bool = False
    is_shared: bool = False
    of_device: Evidence | None = None
    corrupted: Evidence | None = None
    is_known: bool = False
    devices: Mapping[int, Evidence] = field(default_factory=dict)
    interrupted: str | None = None

    def is_alike(self, rank: int) -> bool:
        """Whether as many other ranks as not ended by an error that reads the same: a fault of all, or of what they share."""
        forms = {each: _NUMBER.sub("", failure.text.rpartition("]: ")[2]) for each, failure in self.own.items()}
        others = [form for each, form in forms.items() if each != rank]
        return rank in forms and bool(others) and 2 * others.count(forms[rank]) >= len(others)

    @property
    def firsts(self) -> Mapping[int, Failure]:
        """The one rank that failed by its own doing; of several, one whose device failed under it alone, or those so named."""
        if self.is_known:
            return self.own
        gpus = [failure for failure in self.own.values() if failure.of_gpu]
        found = gpus if len(gpus) == 1 else list(self.own.values())
        return {found[0].rank: found[0]} if len(found) == 1 and (self.is_witnessed or found[0].of_gpu) else {}


_KINDS = (
    *("exception", "fatal_error", "watchdog_died", "terminated", "cuda_failure", "worker_exit", "process_exit", "start_failed"),
    *("mismatch_raised", "parent_exited", "xid", "traceback", "out_of_shared_memory"),
)
_ROWS = f"""
SELECT rank, kind, text, subject, source_id, locator, source FROM logged_event
WHERE kind IN {_KINDS} AND NOT after_cancel
ORDER BY path, locator, kind DESC
"""
_DEVICES = """
SELECT try_cast(regexp_extract(text, 'pid=''?([0-9]{1,9})', 1) AS BIGINT) AS pid, text, source FROM (
    SELECT 'code=' || code || ' ' AS what, text, source FROM device_event WHERE kind = 'xid'
    UNION ALL SELECT subject, text, source FROM logged_event WHERE kind = 'xid'
) WHERE pid IS NOT NULL AND regexp_matches(what, ?) ORDER BY source DESC
"""
_WITNESSES = """
SELECT count(DISTINCT rank), count(*) FILTER (kind = 'signal_sent'),
       (SELECT count(DISTINCT rank) FROM sources WHERE kind = 'training_log')
FROM (SELECT rank, kind FROM log_events UNION ALL SELECT rank, 'progress' FROM log_progress)
"""


def failures(connection: DuckDBPyConnection, world_size: int | None) -> Failures:
    """Read them; the first error of a rank shows what ended it, the others came on top."""
    errors = _Errors(standstill(connection))
    for row in rows_of(connection, "log_events", _ROWS, kinds=_KINDS):
        errors.feed(_Line(*row))
    ((speaking, signals, logs),) = connection.execute(_WITNESSES).fetchall()
    found = errors.failures(speaking, signals, max(speaking, logs, world_size or 0), world_size)
    stated = any(has_rows(connection, table, ("xid",)) for table in ("device_events", "log_events"))
    named = connection.execute(_DEVICES, [f"^{_LOST_DEVICE.pattern}"]).fetchall() if stated else []
    return replace(found, devices={pid: Evidence(text, source) for pid, text, source in named})


class _Line(NamedTuple):
    """One event, with its place."""

    rank: int | None
    kind: str
    text: str
    subject: str | None
    source_id: int
    line: int
    source: str


class _Errors:
    """Takes events in the order of the logs."""

    def __init__(self, stalls: Standstill) -> None:
        self._stalls = stalls
        self._raised, self._caught = Raised(stalls), Caught(stalls)
        self._own: dict[int, Failure] = {}
        self._following: set[int] = set()
        self._odd: dict[int, Failure] = {}
        self._met: dict[int, Failure] = {}
        self._workers, self._checkpoints = Workers(), Checkpoints(stalls)
        self._unranked = self._unranked_own = self._named = False
        self._interrupted: str | None = None
        self._is_error = False
        self._quoting: dict[int, tuple[int, int]] = {}
        self._ended: str | None = None
        self._of_device: Evidence | None = None
        self._corrupted: list[Evidence] = []

    def feed(self, said: _Line) -> None:
        """Take one event."""
        if said.kind == "xid":
            if said.rank is not None and _LOST_DEVICE.match(said.subject or ""):
                self._own.setdefault(said.rank, Failure(said.rank, said.text, said.source, of_gpu=True))
        elif said.kind == "out_of_shared_memory":
            if said.rank is not None and not self._stalls.had_begun(said.source_id, said.line):
                # The exception above it quotes NCCL, which quotes this.
                self._own.setdefault(said.rank, Failure(said.rank, said.text, said.source))
                self._following.discard(said.rank)
        else:
            self._end(said, self._raised.is_uncaught(said.kind, said.rank, said.text, said.source_id, said.line))

    def _end(self, said: _Line, uncaught: bool) -> None:
        rank, kind, text, subject, source_id, line, source = said
        self._note_interrupt(kind, subject, source)
        is_end = uncaught or (_ends(kind, text, subject) and not self._stalls.was_survived(source_id, line))
        self._ended = self._ended or (source if is_end else None)
        by_device = kind == "cuda_failure" and _BY_ITS_DEVICE.search(subject or "") is not None
        by_signal = kind == "process_exit" and subject in _BARE
        if (by_device or by_signal) and rank is not None and not self._stalls.had_begun(source_id, line):
            failure = Failure(rank, text, source, by_device and _GPU.search(text) is not None)
            self._met.setdefault(rank, failure)
            quoting, begin = self._quoting.get(rank, (None, 0))
            if by_device and quoting == source_id and line - begin <= _QUOTED_LINES:
                self._own.setdefault(rank, failure)
                self._following.discard(rank)
        self._workers.feed(kind, rank, subject, text, source)
        if kind not in ("exception", "fatal_error", "watchdog_died"):
            return
        if not (kind == "exception" and self._checkpoints.feed(rank, text, source_id, line, source)):
            self._error(said, uncaught)

    def _note_interrupt(self, kind: str, subject: str | None, source: str) -> None:
        if kind == "exception" and subject == "KeyboardInterrupt":
            self._interrupted = self._interrupted or source
        elif kind != "traceback":
            self._is_error = True

    def _error(self, said: _Line, uncaught: bool) -> None:
        rank, kind, text, subject, source_id, line, source = said
        of_another = is_of_another(subject if kind == "watchdog_died" and subject else text)
        follows = of_another or self._stalls.had_begun(source_id, line)
        if kind == "exception" and (differs := _ODD_ONE.search(text)):
            self._odd.setdefault(int(differs[1]), Failure(int(differs[1]), text, source))
        if (said_of := _OF_ITSELF.search(text)) and int(said_of["rank"]) == rank:
            self._named = True
        if rank is None:
            self._of_device = self._of_device or (Evidence(text, source) if not follows and _OF_DEVICE.search(text) else None)
            self._corrupted += [Evidence(text, source)] if not follows and _CORRUPTED.match(subject or "") else []
            self._unranked = self._unranked or (follows and not _BY_LAUNCHER.search(text))
            self._unranked_own = self._unranked_own or not follows
            return
        if kind == "exception" and not uncaught:
            self._caught.add(Failure(rank, text, source), follows, source_id, line)
            return
        if rank not in self._own and rank not in self._following and follows:
            self._following.add(rank)
            self._caught.lost.setdefault(rank, (source_id, line))
            if _QUOTES_CUDA.search(text):
                self._quoting[rank] = source_id, line
        elif rank not in self._following:
            self._own.setdefault(rank, Failure(rank, text, source, _GPU.search(text) is not None))

    def failures(self, speaking: int, signals: int, ranks: int, world_size: int | None) -> Failures:
        """What they tell; `speaking` of `ranks` said something, and a launcher sent so many `signals`."""
        own, following = self._own, self._following
        if len(self._odd) == 1 and speaking > 1:
            own, following = self._odd, following | own.keys() - self._odd.keys()
        own = own or self._caught.own(self._workers.ranks, ranks) or (self._met if not self._met.keys() & following else {})
        own = own or self._workers.own(speaking)
        # What its executor saw die and what alone reported an error is one process.
        is_one = len(self._workers.ranks) == 1 and own.keys() == self._workers.ranks
        named = self._named or speaking > 1 or signals > 0 or is_one
        stated = self._checkpoints.failed(world_size)
        following |= self._checkpoints.speakers - stated.keys()
        own = stated if own.keys() <= stated.keys() else own
        only = self._unranked and not (self._unranked_own or own)
        corrupted = self._corrupted[0] if len(self._corrupted) == 1 else None
        return Failures(
            own, frozenset(following), self._unranked, only, self._ended, named, self._caught.is_shared, self._of_device,
            corrupted, own is stated, interrupted=None if self._is_error else self._interrupted,
        )  # fmt: skip


def _ends(kind: str, text: str, subject: str | None) -> bool:
    """Whether a line shows that a process ended: an exception that its program may have caught does not."""
    if kind == "exception":
        return "ChildFailedError" in text or "CalledProcessError" in text
    return kind != "traceback" and (kind != "process_exit" or subject != "exitcode=0")


def is_of_another(text: str) -> bool:
    """Whether an error is one that the end of another rank brings about: a lost connection, a communicator that was aborted."""
    return _OF_ANOTHER.search(text) is not None


def may_be_the_program(device: Evidence) -> bool:
    """Whether an error of a device (`Failures.of_device`) is one that a sound device reports of a faulty kernel too."""
    return _OF_PROGRAM_TOO.search(device.statement) is not None
