"""Artefacts of which a bundle holds only the columns that were read of them: folders `<path>.shard` (docs/bundle.md)."""

from __future__ import annotations

import errno
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, BinaryIO, NoReturn

import orjson

from forensics.bundle.artefact import Shard
from forensics.bundle.members import BundleWarning, Member
from forensics.bundle.streams import content_opener

SCHEMA = "forensics.shard/1"
SUFFIX = ".shard"
RECORD = "reading.json"
MOST_RECORD_BYTES = 64 << 20
_TABLE = re.compile(r"[a-z_]{1,64}\.parquet")
_DIGEST = re.compile(r"[0-9a-f]{64}")


@dataclass(frozen=True, slots=True)
class Sharded:
    """An artefact that is there as a shard: the member that it was, its digest, its columns."""

    member: Member
    sha256: str | None
    shard: Shard


def record_path(path: str) -> str:
    """Where the record of an artefact lies."""
    return f"{path}{SUFFIX}/{RECORD}"


def table_path(path: str, table: str) -> str:
    """Where the rows of an artefact for one table lie."""
    return f"{path}{SUFFIX}/{table}.parquet"


def is_part(path: str) -> bool:
    """Whether a member is part of a shard."""
    return path.rpartition("/")[0].endswith(SUFFIX)


def sharded(members: Mapping[str, Member], warnings: list[BundleWarning]) -> Iterator[Sharded]:
    """The shards among the members, in path order; what is wrong with one is added to `warnings`."""
    folders: dict[str, dict[str, Member]] = {}
    for path, member in members.items():
        if is_part(path):
            folder, _, name = path.rpartition("/")
            folders.setdefault(folder, {})[name] = member
    for folder, parts in sorted(folders.items()):
        path = folder.removesuffix(SUFFIX)
        if path in members:
            warnings.append(BundleWarning(folder, None, "left out: the artefact itself is there too"))
        elif RECORD not in parts:
            warnings.append(BundleWarning(folder, None, f"left out: it has no {RECORD}, which says what its columns are of"))
        else:
            yield _sharded(path, parts)


def _sharded(path: str, parts: Mapping[str, Member]) -> Sharded:
    reading = content_opener(parts[RECORD].open_raw, parts[RECORD].stored_bytes)
    record = read_record(reading)
    size, digest = record.get("bytes"), record.get("sha256")
    stored = size if isinstance(size, int) and 0 <= size < 1 << 62 else 0
    tables = {
        name.removesuffix(".parquet"): content_opener(member.open_raw, member.stored_bytes)
        for name, member in parts.items()
        if _TABLE.fullmatch(name)
    }
    sha256 = digest if isinstance(digest, str) and _DIGEST.fullmatch(digest) else None
    return Sharded(Member(path, stored, _absent), sha256, Shard(reading, tables))


def read_record(reading: Callable[[], BinaryIO]) -> dict[str, Any]:
    """The record of a shard, empty where it is none."""
    try:
        with reading() as stream:
            content = stream.read(MOST_RECORD_BYTES + 1)
        found = orjson.loads(content) if len(content) <= MOST_RECORD_BYTES else None
    except (OSError, orjson.JSONDecodeError):
        return {}
    return found if isinstance(found, dict) and found.get("schema") == SCHEMA else {}


def _absent() -> NoReturn:
    raise OSError(errno.ENODATA, "only its columns are in the bundle")
