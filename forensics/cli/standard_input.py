"""A log on standard input: `kubectl logs ... | forensics diagnose -`."""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO

from forensics.errors import ExitCode, ForensicsError

STANDARD_INPUT = Path("-")
MOST_BYTES = 8 << 30
_NAME = "stdin.log"
_PIECE = 1 << 20


@contextmanager
def with_standard_input(paths: Sequence[Path]) -> Iterator[list[Path]]:
    """The paths, with what stands on standard input as a file `stdin.log` where one of them is `-`; it is gone afterwards."""
    if STANDARD_INPUT not in paths:
        yield list(paths)
        return
    if sys.stdin.isatty():
        raise ForensicsError("nothing is piped in: `kubectl logs POD | forensics diagnose -`", ExitCode.USAGE)
    with tempfile.TemporaryDirectory(prefix="forensics-") as folder:
        saved = Path(folder) / _NAME
        with saved.open("wb") as target:
            _copy(sys.stdin.buffer, target)
        yield [*dict.fromkeys(saved if path == STANDARD_INPUT else path for path in paths)]


def _copy(source: BinaryIO, target: BinaryIO) -> None:
    left = MOST_BYTES
    while left > 0 and (piece := source.read(min(_PIECE, left))):
        target.write(piece)
        left -= len(piece)
    if left == 0 and source.read(1):
        raise ForensicsError(f"more than {MOST_BYTES >> 30} GiB on standard input: give it as a file", ExitCode.USAGE)
    if left == MOST_BYTES:
        raise ForensicsError("standard input is empty", ExitCode.UNREADABLE)
