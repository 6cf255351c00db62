"""Members of a zip, unpacked one after the other into an unnamed temporary file; a zip of tensors is left alone."""

from __future__ import annotations

import re
import stat
import tempfile
import zipfile
import zlib
from collections.abc import Iterator
from pathlib import PurePosixPath
from typing import IO, cast

from forensics.bundle import limits
from forensics.bundle.members import ARCHIVE_CUT, BundleWarning, Contents, Member, distinct, is_hidden, printable
from forensics.bundle.streams import window_opener
from forensics.errors import ForensicsError

_MAGIC = b"PK\x03\x04"
# `torch.save` writes a zip with the pickle of the structure beside one file a tensor.
_CHECKPOINT = re.compile(r"(?:^|/)data\.pkl$")
_PIECE = 1 << 20
_UNREADABLE = (zipfile.BadZipFile, zlib.error, EOFError, NotImplementedError, RuntimeError, ValueError, OSError)


def looks_like_zip(member: Member) -> bool:
    """Whether the stored bytes are a zip, by their content."""
    try:
        with member.open_raw() as stream:
            return stream.read(len(_MAGIC)) == _MAGIC
    except OSError:
        return False


def read_zip(member: Member) -> Contents | None:
    """Members of a zip, None when it is a checkpoint."""
    warnings: list[BundleWarning] = []
    try:
        with member.open_raw() as raw, zipfile.ZipFile(raw) as archive:
            infos = archive.infolist()
            if any(_CHECKPOINT.search(info.filename) for info in infos):
                return None
            members = list(_unpacked(archive, infos, member, warnings))
    except _UNREADABLE as error:
        return Contents([], [BundleWarning(member.path, None, f"{ARCHIVE_CUT}: zip: {error}")])
    contents = distinct(members)
    return Contents(contents.members, [*warnings, *contents.warnings])


def _unpacked(
    archive: zipfile.ZipFile, infos: list[zipfile.ZipInfo], container: Member, warnings: list[BundleWarning]
) -> Iterator[Member]:
    """Plain members within the budget; what is refused or damaged is added to `warnings`."""
    spool = cast(IO[bytes], tempfile.TemporaryFile(buffering=0))  # noqa: SIM115 - lives as long as its members
    name = container.path
    most = min(limits.budget().bytes, max(limits.RATIO_FREE_BYTES, container.stored_bytes * limits.MAX_RATIO))
    if len(infos) > limits.budget().members:
        warnings.append(BundleWarning(name, None, f"{limits.exceeded('members')}; the rest was left out"))
    for info in infos[: limits.budget().members]:
        path = PurePosixPath(printable(info.filename)).as_posix()
        if (refusal := _refusal(info)) is not None:
            warnings.append(BundleWarning(path, f"byte={info.header_offset}", f"archive member refused: {refusal}"))
        elif not info.is_dir() and not is_hidden(path):
            start = spool.tell()
            problem = _copied(archive, info, spool, most, name)
            if problem is not None:
                warnings.append(BundleWarning(path, f"byte={info.header_offset}", f"zip member is damaged: {problem}"))
            size = spool.tell() - start
            yield Member(path, size, window_opener(spool, start, size))


def _copied(archive: zipfile.ZipFile, info: zipfile.ZipInfo, spool: IO[bytes], most: int, name: str) -> Exception | None:
    """Unpack one member as far as it goes, and give what ended it early."""
    try:
        with archive.open(info) as stream:
            while piece := stream.read(_PIECE):
                spool.write(piece)
                if spool.tell() > most:
                    break
    except _UNREADABLE as error:
        return error
    if spool.tell() > most:
        raise ForensicsError(f"{name}: expands beyond {most} bytes; refused as a decompression bomb")
    return None


def _refusal(info: zipfile.ZipInfo) -> str | None:
    if info.filename.startswith("/") or ".." in PurePosixPath(info.filename).parts:
        return "its path leaves the archive"
    if info.flag_bits & 1:
        return "it is encrypted"
    return "it is a link" if stat.S_ISLNK(info.external_attr >> 16) else None
