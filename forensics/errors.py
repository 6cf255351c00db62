"""The one error a user sees, and the exit codes of the command line."""

from __future__ import annotations

from enum import IntEnum


class ExitCode(IntEnum):
    """Exit codes; 1 is an internal error and 2 a usage error (taken by typer)."""

    ANALYSED = 0
    INTERNAL = 1
    USAGE = 2
    UNREADABLE = 3
    INSUFFICIENT = 4
    PARTIAL = 5
    NOTHING_COLLECTED = 6
    NO_RANKS = 7
    CULPRIT = 10
    SUSPECTS = 11
    NO_HANG = 12
    INTERRUPTED = 130


class ForensicsError(Exception):
    """Misuse or unusable input: `message` is shown as it is, without a traceback, and `code` is the exit code."""

    def __init__(self, message: str, code: ExitCode = ExitCode.UNREADABLE) -> None:
        super().__init__(message)
        self.message = message
        self.code = code
