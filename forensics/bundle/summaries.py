"""Summaries of ranks: sections of a file, each in place of one artefact (docs/formats/rank-summary.md).

Sections lie one after the other, so that files are merged by concatenation. Here they are only found: what one holds is read
by its ingester, as if it were the artefact that it stands for.
"""

from __future__ import annotations

import hashlib
import re
import struct
import zlib
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from io import BytesIO
from typing import Any, BinaryIO

import orjson

from forensics.bundle.members import BundleWarning, Member
from forensics.bundle.streams import COMPRESSED_SUFFIXES, content_opener, first_bytes

MAGIC = b"FXSUMMA\x01"
VERSION = 1
SUFFIX = ".summary"
HEADER = struct.Struct("<8sHHIQQII")
"""magic, version, flags (1: the columns are zstd), bytes of the description, bytes of the columns as stored and expanded,
CRC-32 of the description and the stored columns, 0."""
ZSTD = 1
MOST_DESCRIPTION = 64 << 10
MOST_EXPANDED = 64 << 20
FREE_EXPANDED, MOST_RATIO = 4 << 10, 32
"""Expanded bytes may be so many, and so many times the stored ones: a file of tiny sections is to stay small in memory."""
_MOST_SECTIONS = 1 << 18
_MOST_COMPRESSED = 1 << 30
_PATH = re.compile(r"(?!/)(?:(?!\.\.?/)[\w.+=@#-]+/)*(?!\.\.?$)[\w.+=@#-]+", re.ASCII)
_RANK_FROM = ("content", "manifest", "path")
_DIGEST = re.compile(r"[0-9a-f]{64}")


@dataclass(frozen=True, slots=True)
class Described:
    """What a section says of the artefact that it stands for; None where it says nothing usable.

    `stored_bytes` and `sha256` are those that it had. `rank_from` says where the rank stood: content, manifest or path.
    """

    path: str
    stored_bytes: int = 0
    sha256: str | None = None
    host: str | None = None
    rank: int | None = None
    rank_from: str = "content"
    pid: int | None = None
    sample: int | None = None
    captured_ns: int | None = None


@dataclass(frozen=True, slots=True)
class Summarised:
    """An artefact that is there as a section: its member opens the bytes of the section."""

    member: Member
    described: Described


def section(description: Mapping[str, Any], columns: bytes, expanded: int, flags: int) -> bytes:
    """The bytes of one section."""
    text = orjson.dumps(description)
    crc = zlib.crc32(columns, zlib.crc32(text))
    return HEADER.pack(MAGIC, VERSION, flags, len(text), len(columns), expanded, crc, 0) + text + columns


def summarised(
    members: Mapping[str, Member],
    digests: Mapping[str, str | None],
    begun: Collection[str],
    folders: Sequence[str],
    warnings: list[BundleWarning],
) -> dict[str, list[Summarised]]:
    """The sections of every summary among the members, by its path; what is wrong with one is added to `warnings`.

    `begun` are paths of files that begin as summaries do; compressed ones are looked into here.
    In a bundle (`folders` are those of bundles) an artefact has the path that it had there, elsewhere one below its file. What
    is there twice counts once; different sections of one path are numbered by their content, not by their place. An artefact
    that is there itself, by its path or its digest, needs no summary.
    """
    whole = {digest for digest in digests.values() if digest is not None}
    files = [path for path, member in members.items() if _may_be_summary(member, path in begun)]
    by_path: dict[str, list[tuple[str, Summarised]]] = {}
    found: dict[str, list[Summarised]] = {}
    for file in sorted(files):
        home = next((folder for folder in folders if file.startswith(folder)), None)
        for one in _sections(members[file], f"{file}/" if home is None else home, warnings):
            found.setdefault(file, [])
            by_path.setdefault(one.member.path, []).append((file, one))
    for path, several in by_path.items():
        for file, one in _distinct(several):
            if path in members or one.described.sha256 in whole:
                message = f"its summary in {file} is left out: the artefact itself is there too"
                warnings.append(BundleWarning(path, None, message))
            else:
                found[file].append(one)
    return found


def _distinct(same: Sequence[tuple[str, Summarised]]) -> Iterator[tuple[str, Summarised]]:
    """Sections of one path: a copy is left out without a word, another one gets a number."""
    if len(same) == 1:
        yield same[0]
        return
    by_digest: dict[str, tuple[str, Summarised]] = {}
    for file, one in same:
        by_digest.setdefault(_digest(one), (file, one))
    for number, digest in enumerate(sorted(by_digest), 1):
        file, one = by_digest[digest]
        path = one.member.path + (f"#{number}" if number > 1 else "")
        yield file, replace(one, member=replace(one.member, path=path))


def _digest(one: Summarised) -> str:
    with one.member.open_raw() as stream:
        return hashlib.sha256(stream.read()).hexdigest()


def _may_be_summary(member: Member, has_magic: bool) -> bool:
    """By its first bytes; of a compressed file by its name first, for most bundles are full of those."""
    if not member.path.endswith(COMPRESSED_SUFFIXES):
        return has_magic
    if SUFFIX not in member.path.rpartition("/")[2]:
        return False
    try:
        with content_opener(member.open_raw, member.stored_bytes)() as stream:
            return first_bytes(stream, len(MAGIC)) == MAGIC
    except OSError:
        return False


def _sections(member: Member, prefix: str, warnings: list[BundleWarning]) -> Iterator[Summarised]:
    """The sections of one file up to its end, or to what is none."""
    source = _seekable(member)
    try:
        with source() as stream:
            for place, item in _places(stream):
                if isinstance(item, str):
                    warnings.append(BundleWarning(member.path, f"byte={place}", item))
                    continue
                size, described = item
                opened = partial(_part, source, place, size)
                yield Summarised(Member(prefix + described.path, size, opened), described)
    except OSError as error:
        warnings.append(BundleWarning(member.path, None, f"cannot be read: {error.strerror or error}"))


def _seekable(member: Member) -> Any:
    """Opens the content so that any place of it can be gone to: of a compressed file all of it is held."""
    with member.open_raw() as stream:
        if first_bytes(stream, len(MAGIC)) == MAGIC:
            return member.open_raw
    with content_opener(member.open_raw, member.stored_bytes)() as stream:
        return partial(BytesIO, first_bytes(stream, _MOST_COMPRESSED))


def _part(source: Any, place: int, size: int) -> BinaryIO:
    with source() as stream:
        stream.seek(place)
        return BytesIO(stream.read(size))


def _places(stream: BinaryIO) -> Iterator[tuple[int, tuple[int, Described] | str]]:
    """Begin of each section with its size and description, or with what is wrong there."""
    end = stream.seek(0, 2)
    place = 0
    for number in range(_MOST_SECTIONS):
        if place >= end:
            return
        stream.seek(place)
        head = stream.read(HEADER.size)
        if len(head) < HEADER.size or head[: len(MAGIC)] != MAGIC:
            yield place, "no (whole) section begins here; the rest is left out"
            return
        _, version, _, text, stored, *_ = HEADER.unpack(head)
        size = HEADER.size + text + stored
        if place + size > end:
            yield place, f"cut: this section has {size} bytes, {end - place} are there; it is left out"
            return
        if version != VERSION:
            yield place, f"version {version} of a section is not known; it is left out"
        elif text > MOST_DESCRIPTION:
            yield place, f"a description of {text} bytes is refused; the section is left out"
        else:
            yield place, (size, described(stream.read(text), number))
        place += size
    yield place, f"more than {_MOST_SECTIONS} sections; the rest is left out"


def described(text: bytes, number: int = 0) -> Described:
    """A description as far as it is of the known form; a path that leads elsewhere becomes the number of the section."""
    try:
        found = orjson.loads(text)
    except orjson.JSONDecodeError:
        found = None
    stated = found if isinstance(found, dict) else {}
    path, digest, host = (stated.get(key) for key in ("path", "sha256", "host"))
    is_path = isinstance(path, str) and len(path) < 512 and _PATH.fullmatch(path)
    return Described(
        path=str(path) if is_path else f"section-{number}",
        stored_bytes=_count(stated.get("bytes")) or 0,
        sha256=digest if isinstance(digest, str) and _DIGEST.fullmatch(digest) else None,
        host=host if isinstance(host, str) and 0 < len(host) < 256 else None,
        rank=_count(stated.get("rank"), 31),
        rank_from=str(stated.get("rank_from", _RANK_FROM[0])) if stated.get("rank_from") in _RANK_FROM else _RANK_FROM[0],
        pid=_count(stated.get("pid"), 31),
        sample=_count(stated.get("sample"), 31),
        captured_ns=_count(stated.get("captured_ns")),
    )


def _count(value: Any, bits: int = 62) -> int | None:
    return value if isinstance(value, int) and not isinstance(value, bool) and 0 <= value < 1 << bits else None
