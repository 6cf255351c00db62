"""What the terminal can show: columns and colours, and that it may go away."""

from __future__ import annotations

import io
import os
import shutil
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import IO, cast

import typer

from forensics.errors import ExitCode, ForensicsError

DEFAULT_COLUMNS = 100


def columns(output: Path | None) -> int:
    """Columns of the report: the terminal's, or COLUMNS, or 100 when nobody watches."""
    watched = output is None and sys.stdout.isatty()
    if watched or os.environ.get("COLUMNS", "").isdigit():
        return max(60, shutil.get_terminal_size((DEFAULT_COLUMNS, 24)).columns)
    return DEFAULT_COLUMNS


def colours(output: Path | None) -> bool:
    """Whether to colour: on a terminal only, and never with NO_COLOR."""
    return output is None and sys.stdout.isatty() and not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"


def write(report: str, output: Path | None) -> None:
    """Print a report, or write it to a file, ending in one newline."""
    shown = report.rstrip("\n")
    if output is None:
        typer.echo(shown)
    else:
        save(output, f"{shown}\n".encode())


def write_pieces(pieces: Iterable[str], output: Path | None) -> None:
    """Print a long report piece by piece, or write it to a file."""
    if output is None:
        for piece in pieces:
            typer.echo(piece, nl=False)
        return
    try:
        with output.open("w", encoding="utf-8") as file:
            file.writelines(pieces)
    except OSError as error:
        raise ForensicsError(f"cannot write {output}: {error.strerror}", ExitCode.USAGE) from error


def save(path: Path, content: bytes) -> None:
    """Write a file that the user named."""
    try:
        path.write_bytes(content)
    except OSError as error:
        raise ForensicsError(f"cannot write {path}: {error.strerror}", ExitCode.USAGE) from error


class _LastingErrors(io.TextIOBase):
    """For a command whose work must not end with its terminal: what nobody can read is dropped."""

    def __init__(self) -> None:
        self._stream = sys.stderr  # a progress bar puts itself in the place of the name

    def write(self, text: str) -> int:
        """Write, and from the first failure on to nowhere."""
        try:
            self._stream.write(text)
            self._stream.flush()
        except OSError:
            null = os.open(os.devnull, os.O_WRONLY)
            os.dup2(null, 2)
            os.close(null)
        return len(text)

    def isatty(self) -> bool:
        """As standard error is."""
        return self._stream.isatty()


def lasting_errors() -> IO[str]:
    """Standard error that may go away: its terminal is closed, or its reader has ended."""
    return cast(IO[str], _LastingErrors())
