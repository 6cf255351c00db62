"""Byte streams over members: a window into a container without moving a shared position, and bounded decompression."""

from __future__ import annotations

import bz2
import gzip
import io
import lzma
import os
import zlib
from collections.abc import Callable, Iterator
from functools import partial
from typing import IO, BinaryIO, Protocol, cast

import zstandard

from forensics.bundle import limits

GZIP_MAGIC = b"\x1f\x8b"
ZSTD_MAGIC = b"\x28\xb5\x2f\xfd"
_XZ_MAGIC = b"\xfd7zX"
_BZIP2_MAGIC = b"BZh"
COMPRESSED_SUFFIXES = (".gz", ".tgz", ".zst", ".xz", ".bz2")
ARCHIVE_SUFFIXES = (".tar", ".tgz", ".tar.gz", ".tar.zst", ".tzst", ".tar.xz", ".txz", ".tar.bz2", ".tbz2", ".zip")


class DamagedMember(OSError):
    """The bytes of a member cannot be had: a broken or cut compressed stream, or one that expands beyond the limits."""


class OversizedMember(DamagedMember):
    """A compressed stream that expands beyond the limits: what came out so far is not a document that was cut."""


class Window(io.RawIOBase):
    """Bytes `[start, start + size)` of an open file, read in place by position.

    Windows that share one descriptor do not disturb each other; one that owns its file closes it.
    """

    def __init__(self, source: IO[bytes], start: int, size: int, owns: bool = False) -> None:
        super().__init__()
        self._source = source
        self._owns = owns
        self._start = start
        self._size = size
        self._position = 0

    def readable(self) -> bool:
        """Windows are read-only."""
        return True

    def seekable(self) -> bool:
        """Windows may be read from anywhere."""
        return True

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        """Move within the window; positions before its start become its start."""
        origin = {io.SEEK_SET: 0, io.SEEK_CUR: self._position, io.SEEK_END: self._size}[whence]
        self._position = max(0, origin + offset)
        return self._position

    def readinto(self, buffer: object) -> int:
        """Fill `buffer` from the current position; 0 at the end of the window."""
        view = memoryview(cast(bytearray, buffer)).cast("B")
        wanted = min(len(view), self._size - self._position)
        if wanted <= 0:
            return 0
        data = os.pread(self._source.fileno(), wanted, self._start + self._position)
        view[: len(data)] = data
        self._position += len(data)
        return len(data)

    def close(self) -> None:
        """Close the file too when this window opened it."""
        if self._owns:
            self._source.close()
        super().close()


class _Decompressing(Protocol):
    """What both decompressors offer: at most one read of the source, so that nothing is lost when the next one fails."""

    def read1(self, size: int, /) -> bytes: ...


class _Xz:
    """Streams of xz one after the other; one whose dictionary needs more memory than `xz -9` writes is refused."""

    def __init__(self, raw: BinaryIO) -> None:
        self._raw = raw
        self._inner = self._begun()

    def _begun(self) -> lzma.LZMADecompressor:
        return lzma.LZMADecompressor(lzma.FORMAT_XZ, memlimit=limits.XZ_MEMORY_BYTES)

    def read1(self, size: int, /) -> bytes:
        """Up to `size` bytes, none at the end."""
        while True:
            data = b""
            if self._inner.eof:
                data = self._inner.unused_data or self._raw.read(io.DEFAULT_BUFFER_SIZE)
                if not data:
                    return b""
                self._inner = self._begun()
            elif self._inner.needs_input:
                data = self._raw.read(io.DEFAULT_BUFFER_SIZE)
                if not data:
                    raise EOFError("it ends before its end mark")
            if out := self._inner.decompress(data, size):
                return out


class Bounded(io.RawIOBase):
    """A decompressing stream that stops with `DamagedMember` beyond `limit` bytes or the ratio limit."""

    def __init__(self, inner: _Decompressing, stored: int, limit: int) -> None:
        super().__init__()
        self._inner = inner
        self._limit = min(limit, max(limits.RATIO_FREE_BYTES, stored * limits.MAX_RATIO))
        self._count = 0

    def readable(self) -> bool:
        """Decompressed streams are read once, forwards."""
        return True

    def readinto(self, buffer: object) -> int:
        """Decompress the next bytes; broken streams raise `DamagedMember` after all sound bytes were given."""
        view = memoryview(cast(bytearray, buffer)).cast("B")
        try:
            data = self._inner.read1(len(view))
        except (EOFError, OSError, zlib.error, zstandard.ZstdError, lzma.LZMAError) as error:
            raise DamagedMember(f"compressed data is cut or damaged after {self._count} bytes: {error}") from error
        self._count += len(data)
        if self._count > self._limit:
            raise OversizedMember(f"expands beyond {self._limit} bytes; refused as a decompression bomb")
        view[: len(data)] = data
        return len(data)


def compression(head: bytes) -> str | None:
    """`gzip`, `zstd`, `xz` or `bzip2` by the first four bytes, None when they are none of these."""
    if head.startswith(_BZIP2_MAGIC) and head[3:4].isdigit():
        return "bzip2"
    known = {GZIP_MAGIC: "gzip", ZSTD_MAGIC: "zstd", _XZ_MAGIC: "xz"}
    return next((method for magic, method in known.items() if head.startswith(magic)), None)


def decompressed(raw: BinaryIO, stored: int, limit: int = limits.MAX_MEMBER_BYTES) -> BinaryIO:
    """`raw` itself, or a bounded stream over what it holds when it is compressed by its content."""
    method = compression(raw.read(4))
    raw.seek(0)
    return raw if method is None else io.BufferedReader(Bounded(_decompressor(raw, method), stored, limit), 1 << 18)


def _decompressor(raw: BinaryIO, method: str) -> _Decompressing:
    if method == "zstd":
        decoder = zstandard.ZstdDecompressor(max_window_size=limits.ZSTD_WINDOW_BYTES)
        return decoder.stream_reader(raw, read_across_frames=True)
    if method == "xz":
        return _Xz(raw)
    return gzip.GzipFile(fileobj=raw) if method == "gzip" else bz2.BZ2File(raw)


def chunks(stream: BinaryIO, size: int = 1 << 20) -> Iterator[bytes]:
    """The bytes as they come: where a stream breaks, everything before was given."""
    read = stream.read1 if isinstance(stream, io.BufferedIOBase) else stream.read
    while chunk := read(size):
        yield chunk


def first_bytes(stream: BinaryIO, size: int) -> bytes:
    """Up to `size` bytes from the start, fewer when the stream ends or breaks; OSError when it breaks at once."""
    head = b""
    try:
        for chunk in chunks(stream, size):
            head += chunk
            if len(head) >= size:
                break
    except OSError:
        if not head:
            raise
    return head[:size]


def file_opener(path: str, start: int = 0, size: int | None = None) -> Callable[[], BinaryIO]:
    """Opens bytes of a file, each time anew: thousands of members then need no descriptor until they are read.

    It can be sent to another process, and to another host that sees the file.
    """
    return partial(_opened, path, start, size)


def _opened(path: str, start: int, size: int | None) -> BinaryIO:
    source = io.FileIO(path)
    return io.BufferedReader(source if size is None else Window(source, start, size, owns=True), 1 << 18)


def window_opener(source: IO[bytes], start: int, size: int) -> Callable[[], BinaryIO]:
    """Opens bytes of a file that has no name and therefore stays open as long as its members, and in this process only."""
    return lambda: io.BufferedReader(Window(source, start, size), 1 << 18)


def content_opener(raw: Callable[[], BinaryIO], stored: int) -> Callable[[], BinaryIO]:
    """Opens the decompressed, bounded content of a member whose stored bytes `raw` opens."""
    return partial(_content, raw, stored)


def _content(raw: Callable[[], BinaryIO], stored: int) -> BinaryIO:
    return decompressed(raw(), stored)
