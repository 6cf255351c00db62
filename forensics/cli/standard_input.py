"""A log on standard input: `kubectl logs ... | forensics diagnose -`."""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import IO, BinaryIO

from forensics.bundle import limits
from forensics.errors import ExitCode, ForensicsError

STANDARD_INPUT = Path("-")
_NAME = "stdin.log"
_PIECE = 1 << 20


@contextmanager
def with_standard_input(paths: Sequence[Path]) -> Iterator[tuple[list[Path], Mapping[Path, str]]]:
    """The paths, and the names of those that have none: what stands on standard input, where one of the paths is `-`.

    It lies in a file without a name, which is gone when the process ends, however it ends.
    """
    if STANDARD_INPUT not in paths:
        yield list(paths), {}
        return
    if sys.stdin.isatty():
        raise ForensicsError("nothing is piped in: `kubectl logs POD | forensics diagnose -`", ExitCode.USAGE)
    with tempfile.TemporaryFile() as target:
        _copy(sys.stdin.buffer, target)
        saved = Path(f"/dev/fd/{target.fileno()}")
        yield [*dict.fromkeys(saved if path == STANDARD_INPUT else path for path in paths)], {saved: _NAME}


def _copy(source: BinaryIO, target: IO[bytes]) -> None:
    left = limits.budget().bytes
    while left > 0 and (piece := source.read(min(_PIECE, left))):
        target.write(piece)
        left -= len(piece)
    if left <= 0 and source.read(1):
        raise ForensicsError(f"standard input: {limits.exceeded('bytes')}")
    target.flush()
    if target.tell() == 0:
        raise ForensicsError("standard input is empty")
