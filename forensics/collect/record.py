"""What a run of a collector leaves behind: one line of collectors.jsonl, and the status made of many such lines."""

from __future__ import annotations

import errno
import time
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from forensics.bundle.layout import Status
from forensics.bundle.redaction import redact, redact_argv
from forensics.collect.staging import Written


@dataclass(frozen=True, slots=True)
class Run:
    """One run of a collector, for one rank (or the host), one process and one sample where it has them.

    Times are CLOCK_REALTIME in ns. `captured_ns` is set when the content is older than the run: a file found on disk.
    `counts` is false for runs that say nothing of how well the rank is covered, such as a child that is not Python.
    A `provisional` run stands only if its collector is stopped before it says more.
    """

    id: str
    rank: int | None
    status: Status
    reason: str | None = None
    pid: int | None = None
    sample: int | None = None
    argv: tuple[str, ...] = ()
    begin_ns: int = 0
    end_ns: int = 0
    bytes: int = 0
    truncated: bool = False
    sha256: str | None = None
    path: str | None = None
    captured_ns: int | None = None
    redactions: Mapping[str, int] = field(default_factory=dict)
    counts: bool = True
    provisional: bool = False

    def stored(self, written: Written) -> Run:
        """The same run with the file that it left."""
        truncated = self.truncated or written.truncated
        return replace(self, bytes=written.bytes, truncated=truncated, sha256=written.sha256, path=written.path)

    def document(self, counts: Counter[str]) -> dict[str, Any]:
        """The JSON object of collectors.jsonl; what is taken out of command line and reason is added to `counts`."""
        return {
            "id": self.id,
            "rank": self.rank,
            "pid": self.pid,
            "sample": self.sample,
            "argv": redact_argv(self.argv, counts),
            "begin_ns": self.begin_ns,
            "end_ns": self.end_ns,
            "status": self.status.value,
            "reason": redact(self.reason, counts) if self.reason else None,
            "bytes": self.bytes,
            "truncated": self.truncated,
            "sha256": self.sha256,
            "path": self.path,
            "captured_ns": self.captured_ns,
            "counts": self.counts,
        }


def summary_status(runs: Iterable[Run]) -> Status:
    """One status for several runs: theirs when they agree, else `partial`; runs that do not count decide only alone."""
    all_runs = list(runs)
    statuses = {run.status for run in all_runs if run.counts} or {run.status for run in all_runs}
    return statuses.pop() if len(statuses) == 1 else Status.PARTIAL


def failure(error: OSError, what: str) -> tuple[Status, str]:
    """Status and reason of an operating system error while reading `what`."""
    words = (error.strerror or str(error)).lower()
    if error.errno in (errno.EACCES, errno.EPERM):
        return Status.PERMISSION, f"{what}: {words}"
    if error.errno in (errno.ENOENT, errno.ESRCH, errno.ENOTDIR, errno.ENXIO):
        return Status.NOT_FOUND, f"{what}: {words}"
    if isinstance(error, TimeoutError):
        return Status.TIMEOUT, f"{what}: no answer in time"
    return Status.PARTIAL, f"{what}: {words}"


def now_ns() -> int:
    """CLOCK_REALTIME in ns."""
    return time.time_ns()
