"""The command line as a user runs it, in this process: arguments in, exit code and both streams out."""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import dataclass

import pytest

from forensics.cli import main


@dataclass(frozen=True, slots=True)
class Answer:
    """What one run left: exit code, standard output, standard error."""

    code: int
    out: str
    err: str


Command = Callable[..., Answer]


def command(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Command:
    """Run `forensics ARGUMENTS`; a traceback or an internal error on either stream fails the test."""
    monkeypatch.setenv("COLUMNS", "100")

    def run(*arguments: object) -> Answer:
        monkeypatch.setattr(sys, "argv", ["forensics", *map(str, arguments)])
        capsys.readouterr()
        code = _exit_code()
        streams = capsys.readouterr()
        assert "Traceback (most recent call last)" not in streams.out + streams.err
        assert "internal error" not in streams.err
        return Answer(code, streams.out, streams.err)

    return run


def _exit_code() -> int:
    try:
        main()
    except SystemExit as leaving:
        return leaving.code if isinstance(leaving.code, int) else int(leaving.code is not None)
    return 0
