"""Files of a directory as a user finds them: any nesting, no hidden files, nothing outside the directory."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from pathlib import Path

from forensics.bundle import limits
from forensics.bundle.members import BundleWarning, Contents, Member, distinct, printable
from forensics.bundle.streams import file_opener


def read_directory(root: Path) -> Contents:
    """Regular files below `root`; paths are relative to it."""
    members: list[Member] = []
    warnings: list[BundleWarning] = []
    for item in _walk(str(root), warnings):
        if len(members) == limits.budget().members:
            warnings.append(
                BundleWarning(None, None, f"{printable(str(root))}: {limits.exceeded('members')}; the rest was left out")
            )
            break
        members.append(item)
    contents = distinct(members)
    return Contents(contents.members, [*warnings, *contents.warnings])


def read_file(path: Path, name: str) -> Member:
    """One loose file, called `name`."""
    status = path.stat()
    opener = file_opener(str(path))
    return Member(printable(name), status.st_size, opener, location=str(path), modified_ns=status.st_mtime_ns)


def _walk(root: str, warnings: list[BundleWarning]) -> Iterator[Member]:
    """Members below `root` in a fixed order; what is left out is added to `warnings`."""
    real_root = os.path.realpath(root)

    def unreadable(error: OSError) -> None:
        name = os.path.relpath(error.filename or root, root)
        warnings.append(BundleWarning(printable(name), None, f"directory cannot be read: {error.strerror}"))

    for folder, folders, files in os.walk(root, onerror=unreadable):
        names = sorted(name for name in [*folders, *files] if not name.startswith("."))
        folders[:] = sorted(name for name in folders if not name.startswith("."))
        for name in names:
            location = os.path.join(folder, name)  # noqa: PTH118 - plain strings: half a million Path objects are slow
            yield from _admit(location, root, real_root, warnings)


def _admit(location: str, root: str, real_root: str, warnings: list[BundleWarning]) -> Iterator[Member]:
    """The file as a member, or a warning why not; a link to a file inside is skipped, as that file is read anyway."""
    path = printable(os.path.relpath(location, root)).replace(os.sep, "/")
    try:
        status = os.lstat(location)
        readable = os.access(location, os.R_OK)
    except OSError as error:
        warnings.append(BundleWarning(path, None, f"file cannot be read: {error.strerror}"))
        return
    if stat.S_ISLNK(status.st_mode):
        target = os.path.realpath(location)
        if os.path.commonpath([target, real_root]) != real_root or not os.path.exists(target):  # noqa: PTH110
            warnings.append(BundleWarning(path, None, "link that leaves the directory or leads nowhere; not followed"))
    elif stat.S_ISREG(status.st_mode) and readable:
        yield Member(path, status.st_size, file_opener(location), location=location, modified_ns=status.st_mtime_ns)
    elif stat.S_ISREG(status.st_mode):
        warnings.append(BundleWarning(path, None, "file cannot be read: permission denied"))
    elif not stat.S_ISDIR(status.st_mode):
        warnings.append(BundleWarning(path, None, "not a plain file; left out"))
