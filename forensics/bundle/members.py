"""What a container holds, before anything is known of the content: members and what was wrong with them."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import PurePosixPath
from typing import BinaryIO

ARCHIVE_CUT = "archive is cut or damaged"
"""How the warning of an archive that ends early starts."""


@dataclass(frozen=True, slots=True)
class Member:
    """One file of a container: `open_raw` gives its stored bytes, `cut_at` is set when fewer came than were promised.

    `location` is the file it is stored in when it is a file of its own. `modified_ns` is the date of the file, which a copy
    may have got anew.
    """

    path: str
    stored_bytes: int
    open_raw: Callable[[], BinaryIO]
    cut_at: int | None = None
    location: str | None = None
    modified_ns: int | None = None


@dataclass(frozen=True, slots=True)
class BundleWarning:
    """Something in the input that could not be used; `path` is None for the input as a whole."""

    path: str | None
    locator: str | None
    message: str


@dataclass(frozen=True, slots=True)
class Contents:
    """The members of one container, in path order, and what was left out."""

    members: Sequence[Member]
    warnings: Sequence[BundleWarning] = ()


def printable(name: str) -> str:
    """A name as valid Unicode: bytes that are not UTF-8 become U+FFFD."""
    return os.fsencode(name).decode("utf-8", "replace")


def is_hidden(path: str) -> bool:
    """Whether a component of the path starts with a dot (editor, version control and desktop litter)."""
    return any(part.startswith(".") and part not in (".", "..") for part in PurePosixPath(path).parts)


def distinct(members: Iterable[Member]) -> Contents:
    """Members in path order; a later one of the same path is kept as `path#2`, since both may be evidence."""
    seen: dict[str, int] = {}
    kept: list[Member] = []
    warnings: list[BundleWarning] = []
    for member in members:
        count = seen[member.path] = seen.get(member.path, 0) + 1
        if count > 1:
            path = f"{member.path}#{count}"
            warnings.append(BundleWarning(path, None, f"the archive holds {member.path} more than once; kept as {path}"))
            member = replace(member, path=path)
        kept.append(member)
    return Contents(sorted(kept, key=lambda member: member.path), warnings)
