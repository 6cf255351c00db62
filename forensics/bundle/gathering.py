"""Members of all inputs: of folders, of archives, and of archives that lie in either of them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path

from forensics.bundle import limits
from forensics.bundle.archive import looks_like_tar, read_archive
from forensics.bundle.directory import read_directory, read_file
from forensics.bundle.layout import BUNDLE
from forensics.bundle.members import BundleWarning, Contents, Member
from forensics.bundle.streams import ARCHIVE_SUFFIXES
from forensics.bundle.zipped import looks_like_zip, read_zip
from forensics.errors import ForensicsError

MOST_DEPTH = 3
"""Archives in archives that are opened: an archive of a cluster holds those of hosts, and these those of ranks."""


@dataclass(slots=True)
class Gathered:
    """Members of all inputs by path.

    `archives` are those found inside an input: its digest counts them, and not the `nested` members they hold. `unpacked`
    are the bytes that archives expanded to.
    """

    members: dict[str, Member] = field(default_factory=dict)
    archives: dict[str, Member] = field(default_factory=dict)
    nested: set[str] = field(default_factory=set)
    warnings: list[BundleWarning] = field(default_factory=list)
    damaged: dict[str, str] = field(default_factory=dict)
    unpacked: int = 0


def gather(path: Path, label: str, prefix: str, gathered: Gathered) -> None:
    """Add one input with what is in its archives.

    Raises OSError when it cannot be read, ForensicsError for an archive beyond the budget.
    """
    if path.is_file():
        member = read_file(path, label)
        contents = _opened(member, gathered)
        if contents is None:
            gathered.members[member.path] = member
        else:
            _add(_contents(member, contents, prefix, gathered), gathered, depth=1)
        return
    folder = read_directory(path)
    gathered.warnings += [_prefixed(warning, prefix) for warning in folder.warnings]
    _add((replace(found, path=prefix + found.path) for found in folder.members), gathered)


def _add(members: Iterator[Member], gathered: Gathered, depth: int = 0, inside: bool = False) -> None:
    """Add members, and those of the archives among them; one archive that may not be opened costs only itself."""
    for member in members:
        gathered.nested |= {member.path} if inside else set()
        try:
            contents = _opened(member, gathered) if _may_be_archive(member, depth) else None
        except ForensicsError as error:
            gathered.warnings.append(BundleWarning(member.path, None, error.message))
            continue
        if contents is None:
            gathered.members[member.path] = member
        else:
            gathered.archives[member.path] = member
            _add(_contents(member, contents, f"{member.path}/", gathered), gathered, depth + 1, inside=True)


def _may_be_archive(member: Member, depth: int) -> bool:
    """Files of a folder are known by their content, those of an archive, which may be many, by their names before."""
    return depth == 0 or (depth <= MOST_DEPTH and member.path.lower().endswith(ARCHIVE_SUFFIXES))


def _opened(member: Member, gathered: Gathered) -> Contents | None:
    """What the file holds when it is an archive of evidence; all archives together stay within the budget."""
    left = replace(limits.budget(), bytes=max(0, limits.budget().bytes - gathered.unpacked))
    with limits.within(left):
        reader = read_archive if looks_like_tar(member) else read_zip if looks_like_zip(member) else None
        contents = reader(member) if reader else None
    gathered.unpacked += sum(inner.stored_bytes for inner in contents.members) if contents else 0
    return contents


def _contents(member: Member, contents: Contents, prefix: str, gathered: Gathered) -> Iterator[Member]:
    """Members of an archive under their paths in the input; what was wrong with it is kept."""
    for warning in contents.warnings:
        gathered.warnings.append(warning if warning.path == member.path else _prefixed(warning, prefix))
    return (replace(found, path=prefix + found.path) for found in contents.members)


def _prefixed(warning: BundleWarning, prefix: str) -> BundleWarning:
    return replace(warning, path=prefix + warning.path) if warning.path is not None else warning


def without_only_root(gathered: Gathered) -> Gathered:
    """Shorter paths when everything lies in one bundle's folder, as in a tar made of the folder itself."""
    folders = root_folders(gathered.members)
    everything = [*gathered.members, *gathered.archives]
    if len(folders) != 1 or not folders[0] or not all(path.startswith(folders[0]) for path in everything):
        return gathered
    cut = len(folders[0])

    def renamed(members: Mapping[str, Member]) -> dict[str, Member]:
        return {path[cut:]: replace(member, path=path[cut:]) for path, member in members.items()}

    warnings = [
        replace(warning, path=warning.path.removeprefix(folders[0]) if warning.path else None) for warning in gathered.warnings
    ]
    nested = {path[cut:] for path in gathered.nested}
    return Gathered(renamed(gathered.members), renamed(gathered.archives), nested, warnings)


def root_folders(members: Mapping[str, Member]) -> list[str]:
    """Folders (with a closing slash, empty for the top) that hold a bundle.json; deepest first."""
    found = (path.removesuffix(BUNDLE) for path in members if path.rpartition("/")[2] == BUNDLE)
    return sorted(found, key=lambda folder: (-len(folder), folder))
