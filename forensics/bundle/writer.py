"""Write a bundle: a plain PAX tar in the order of docs/bundle.md, closed by the checksums of all other members.

The output appears under its name only when it is complete. `.tar.gz`, `.tgz`, `.tar.zst` and `.tzst` are compressed as a
whole; any other name is a plain tar.
"""

from __future__ import annotations

import gzip
import hashlib
import io
import os
import tarfile
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO, BinaryIO, cast

import zstandard

from forensics.bundle.layout import CHECKSUMS, member_order


@dataclass(frozen=True, slots=True)
class Content:
    """One member to write: its path in the bundle, its bytes or the file that holds them, its time in seconds."""

    path: str
    source: bytes | Path
    time_s: int = 0


def directory_contents(directory: Path) -> list[Content]:
    """The plain files below a directory in bundle order, without hidden ones and without old checksums."""
    found = [path for path in directory.rglob("*") if path.is_file() and not path.is_symlink()]
    names = {path.relative_to(directory).as_posix(): path for path in found}
    kept = [name for name in names if name != CHECKSUMS and not any(part.startswith(".") for part in name.split("/"))]
    return [Content(name, names[name], int(names[name].stat().st_mtime)) for name in sorted(kept, key=member_order)]


def write_bundle(
    output: Path, contents: Iterable[Content], *, replace: bool = False, owner: tuple[int, int] | None = None
) -> int:
    """Write `contents` in the order given, then SHA256SUMS; returns the size of the file in bytes.

    `owner` (user, group) gets the file. Raises FileExistsError when `output` exists and `replace` is false, OSError when
    it cannot be written; in both cases nothing is left behind.
    """
    partial = output.with_name(f".{output.name}.{os.getpid()}.tmp")
    try:
        with _create(partial) as stream:
            _write_tar(stream, output.name, contents)
            stream.flush()
            os.fsync(stream.fileno())
            if owner is not None:
                os.fchown(stream.fileno(), *owner)
            size = os.fstat(stream.fileno()).st_size
        if not replace and output.exists():
            raise FileExistsError(f"{output} exists")
        partial.replace(output)
    except BaseException:
        partial.unlink(missing_ok=True)
        raise
    return size


def _create(path: Path) -> IO[bytes]:
    """A new file that only its owner may read: environments and logs are in it."""
    return os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600), "wb")


def _write_tar(stream: IO[bytes], name: str, contents: Iterable[Content]) -> None:
    with (
        _compressed(stream, name) as target,
        tarfile.open(fileobj=target, mode="w", format=tarfile.PAX_FORMAT) as tar,
    ):
        sums = [f"{_add(tar, content)}  {content.path}\n" for content in contents]
        _add(tar, Content(CHECKSUMS, "".join(sums).encode()))


def _add(tar: tarfile.TarFile, content: Content) -> str:
    """Add one member and return its SHA-256; the size is taken once, from the opened file."""
    with _opened(content.source) as (source, size):
        info = tarfile.TarInfo(content.path)
        info.size, info.mtime, info.mode = size, content.time_s, 0o644
        hashing = _Hashing(source)
        tar.addfile(info, cast(BinaryIO, hashing))
        return hashing.digest.hexdigest()


@contextmanager
def _opened(source: bytes | Path) -> Iterator[tuple[BinaryIO, int]]:
    if isinstance(source, bytes):
        yield io.BytesIO(source), len(source)
        return
    with source.open("rb") as stream:
        yield stream, os.fstat(stream.fileno()).st_size


@contextmanager
def _compressed(stream: IO[bytes], name: str) -> Iterator[IO[bytes]]:
    if name.endswith((".tar.gz", ".tgz")):
        with gzip.GzipFile("", "wb", 6, stream, mtime=0) as packed:
            yield cast(IO[bytes], packed)
    elif name.endswith((".tar.zst", ".tzst")):
        with zstandard.ZstdCompressor(level=3).stream_writer(stream, closefd=False) as packed:
            yield packed
    else:
        yield stream


class _Hashing:
    """A reader that keeps the digest of what was read from it."""

    def __init__(self, source: BinaryIO) -> None:
        self._source = source
        self.digest = hashlib.sha256()

    def read(self, size: int = -1) -> bytes:
        data = self._source.read(size)
        self.digest.update(data)
        return data
