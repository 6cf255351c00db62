"""Members of a tar, read in place: nothing is extracted, and a cut or damaged tar is used up to the damage."""

from __future__ import annotations

import io
import os
import re
import tarfile
import tempfile
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import PurePosixPath
from typing import IO, BinaryIO, cast

from forensics.bundle import limits
from forensics.bundle.members import ARCHIVE_CUT, BundleWarning, Contents, Member, distinct, is_hidden, printable
from forensics.bundle.streams import (
    DamagedMember,
    OversizedMember,
    Window,
    chunks,
    compression,
    decompressed,
    file_opener,
    first_bytes,
    window_opener,
)
from forensics.errors import ForensicsError

BLOCK = tarfile.BLOCKSIZE
# `tarfile` looks for digits with patterns that take the square of their number.
_ENDLESS_NUMBER = re.compile(rb"\d{512}")
# As nearly all members of a large bundle are called: nothing in it is hidden, leaves the archive, or is written otherwise.
_PLAIN = re.compile(r"[\w+=@#-][\w.+=@#-]*(?:/[\w+=@#-][\w.+=@#-]*)*", re.ASCII)
Opener = Callable[[int, int], Callable[[], BinaryIO]]


class _Headers(io.BufferedReader):
    """The file as `tarfile` sees it: it reads headers only, so a large read is an oversized extended header."""

    def read(self, size: int | None = -1, /) -> bytes:
        """Read up to `size` bytes; more than a header may hold is refused."""
        if size is None or not 0 <= size <= limits.MAX_EXTENDED_HEADER_BYTES:
            raise tarfile.ReadError(f"extended header of {size} bytes refused")
        content = super().read(size)
        if _ENDLESS_NUMBER.search(content):
            raise tarfile.ReadError("extended header with a number without end refused")
        return content


def is_tar(head: bytes) -> bool:
    """Whether 512 bytes are a tar header: its checksum holds (this also knows tars older than the `ustar` mark)."""
    if len(head) < BLOCK or not any(head[:100]):
        return False
    stored = head[148:156].strip(b" \0")
    try:
        return int(stored, 8) == sum(head[:148]) + 8 * 32 + sum(head[156:BLOCK])
    except ValueError:
        return False


def looks_like_tar(member: Member) -> bool:
    """Whether the stored bytes are a tar or a compressed tar, by their content."""
    try:
        with decompressed(member.open_raw(), member.stored_bytes) as stream:
            return is_tar(first_bytes(stream, BLOCK))
    except OSError:
        return False


def read_archive(member: Member) -> Contents:
    """Members of a tar, tar.gz or tar.zst; one that is no file of its own is copied to an unnamed temporary file."""
    warnings: list[BundleWarning] = []
    name = member.path
    with member.open_raw() as raw:
        is_compressed = compression(raw.read(4)) is not None
        raw.seek(0)
        if member.location is not None and not is_compressed:
            source = io.FileIO(member.location)
            with source:
                members = list(_walk(source, member.stored_bytes, name, partial(file_opener, member.location), warnings))
        else:
            spool, size = _spooled(raw, member.stored_bytes, name, warnings)
            members = list(_walk(spool, size, name, partial(window_opener, spool), warnings))
    contents = distinct(members)
    return Contents(contents.members, [*warnings, *contents.warnings])


def _spooled(raw: BinaryIO, stored: int, name: str, warnings: list[BundleWarning]) -> tuple[IO[bytes], int]:
    """A plain tar for a compressed one, in an unnamed temporary file, as far as it could be decompressed."""
    spool = cast(IO[bytes], tempfile.TemporaryFile(buffering=0))  # noqa: SIM115 - lives as long as its members
    stream = decompressed(raw, stored, limits.budget().bytes)
    try:
        for chunk in chunks(stream):
            spool.write(chunk)
    except OversizedMember as error:
        raise ForensicsError(f"{name}: {error}") from error
    except DamagedMember as error:
        warnings.append(BundleWarning(name, None, f"{ARCHIVE_CUT}: {error}"))
    return spool, os.fstat(spool.fileno()).st_size


def _walk(source: IO[bytes], size: int, name: str, opener: Opener, warnings: list[BundleWarning]) -> Iterator[Member]:
    """Regular members in archive order; refusals and the place where reading ended are added to `warnings`."""
    position = 0
    damage = ""
    try:
        with tarfile.open(fileobj=_Headers(Window(source, 0, size)), mode="r:") as archive:
            for _ in range(limits.budget().members):
                info = archive.next()
                if info is None:
                    break
                position = info.offset_data + (-(-info.size // BLOCK) * BLOCK if info.isreg() else 0)
                yield from _admit(info, size, opener, warnings)
            else:
                warnings.append(BundleWarning(name, f"byte={position}", f"{limits.exceeded('members')}; the rest was left out"))
                return
    except (tarfile.TarError, OSError, ValueError, OverflowError) as error:
        damage = f": {error}"
    if position > size or os.pread(source.fileno(), BLOCK, position) != bytes(BLOCK):
        cut = min(position, size)
        message = f"{ARCHIVE_CUT} at byte {cut}; it was read up to there{damage}"
        warnings.append(BundleWarning(name, f"byte={cut}", message))


def _admit(info: tarfile.TarInfo, size: int, opener: Opener, warnings: list[BundleWarning]) -> Iterator[Member]:
    """The member as readable bytes, or a warning why it is refused; directories and hidden files pass silently."""
    is_plain = _PLAIN.fullmatch(info.name) is not None
    refusal = _refusal(info, is_plain)
    path = info.name if is_plain else PurePosixPath(printable(info.name)).as_posix()
    if refusal is not None:
        warnings.append(BundleWarning(path, f"byte={info.offset}", f"archive member refused: {refusal}"))
    elif info.isreg() and (is_plain or not is_hidden(path)):
        present = max(0, min(info.size, size - info.offset_data))
        cut = info.offset_data + present if present < info.size else None
        if cut is not None:
            message = f"only {present} of {info.size} bytes are there; the archive was cut at byte {cut}"
            warnings.append(BundleWarning(path, f"byte={present}", message))
        yield Member(path, present, opener(info.offset_data, present), cut, modified_ns=_modified_ns(info))


def _modified_ns(info: tarfile.TarInfo) -> int | None:
    """The date of the member; None for the zero and the nonsense that some writers leave."""
    return int(info.mtime * 1e9) if 0 < info.mtime < 1 << 33 else None


def _refusal(info: tarfile.TarInfo, is_plain: bool) -> str | None:
    """Why a member is unsafe or no plain file, None when it is fine."""
    if not is_plain and (info.name.startswith("/") or ".." in PurePosixPath(info.name).parts or "\0" in info.name):
        return "its path leaves the archive"
    if info.issym() or info.islnk():
        return "it is a link"
    if info.issparse():
        return "it is a sparse file"
    return None if info.isreg() or info.isdir() else "it is not a plain file"
