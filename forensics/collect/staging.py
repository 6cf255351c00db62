"""The directory beside the output in which a bundle grows: every file appears complete, under its final name.

It has the layout of a bundle, so a collection that was killed leaves something that can be read as it is.
"""

from __future__ import annotations

import errno
import hashlib
import os
import shutil
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import orjson

from forensics.errors import ExitCode, ForensicsError


@dataclass(frozen=True, slots=True)
class Written:
    """A file that was written: its path in the bundle, size, digest, and whether a limit cut it."""

    path: str
    bytes: int
    sha256: str
    truncated: bool = False


@dataclass(frozen=True, slots=True)
class Staging:
    """A staging directory; safe for several processes at once, since no two write the same path.

    A member is given up that would leave less than `reserve` bytes of the disk: the job may write its checkpoints to it.
    """

    root: Path
    reserve: int = 1 << 30

    def write(self, path: str, content: bytes) -> Written:
        """Write one member."""
        return self.write_stream(path, (content,))

    def write_json(self, path: str, document: Any) -> Written:
        """Write one member as indented JSON with a fixed key order."""
        options = orjson.OPT_INDENT_2 | orjson.OPT_APPEND_NEWLINE | orjson.OPT_NON_STR_KEYS
        return self.write(path, orjson.dumps(document, option=options))

    def write_stream(self, path: str, chunks: Iterable[bytes], limit: int | None = None) -> Written:
        """Write one member from pieces, at most `limit` bytes; nothing appears when a piece raises."""
        target = self.root / path
        partial = target.with_name(f".{target.name}.{os.getpid()}.tmp")
        target.parent.mkdir(parents=True, exist_ok=True)
        digest, size, truncated = hashlib.sha256(), 0, False
        try:
            with partial.open("wb") as stream:
                for chunk in chunks:
                    if limit is not None and size + len(chunk) > limit:
                        chunk, truncated = chunk[: limit - size], True
                    stream.write(chunk)
                    digest.update(chunk)
                    if size >> 20 != (size := size + len(chunk)) >> 20:
                        self._spare_the_disk()
                    if truncated:
                        break
            partial.replace(target)
        except BaseException:
            partial.unlink(missing_ok=True)
            raise
        return Written(path, size, digest.hexdigest(), truncated)

    def _spare_the_disk(self) -> None:
        found = os.statvfs(self.root)
        if found.f_bavail * found.f_frsize < self.reserve:
            raise OSError(errno.ENOSPC, f"less than {self.reserve >> 20} MiB of the disk would be left", str(self.root))

    def append_line(self, path: str, document: Any) -> None:
        """Append one JSON object as a line; only the orchestrator does this."""
        target = self.root / path
        target.parent.mkdir(parents=True, exist_ok=True)
        with target.open("ab") as stream:
            stream.write(orjson.dumps(document, option=orjson.OPT_APPEND_NEWLINE))

    def remove(self) -> None:
        """Delete the directory."""
        shutil.rmtree(self.root, ignore_errors=True)


def staging_beside(output: Path, force: bool) -> Staging:
    """The staging directory of a bundle that may be written to `output`; ForensicsError where it may not, or cannot."""
    if output.is_dir():
        raise ForensicsError(f"{output} is a directory: give the name of a file", ExitCode.USAGE)
    if output.exists() and not force:
        raise ForensicsError(f"{output} exists: choose another name or use --force", ExitCode.USAGE)
    try:
        return create_staging(output)
    except OSError as error:
        raise ForensicsError(f"cannot write beside {output}: {error.strerror}", ExitCode.USAGE) from error


def create_staging(output: Path) -> Staging:
    """A new directory `<output>.partial`, or `<output>.partial-2` and so on where an earlier collection left one.

    Raises OSError when the folder of the output cannot be written.
    """
    for number in range(1, 1000):
        root = output.with_name(f"{output.name}.partial" + (f"-{number}" if number > 1 else ""))
        try:
            root.mkdir(mode=0o700)
        except FileExistsError:
            continue
        return Staging(root)
    raise FileExistsError(f"too many unfinished collections beside {output}")
