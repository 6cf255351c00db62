"""SHA-256 of the stored bytes of members: of large ones on all cores, since hashing takes as long as reading a trace does."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import NamedTuple

from forensics.bundle.members import Member
from forensics.bundle.streams import chunks
from forensics.cores import usable_cores

_LARGE_BYTES = 4 << 20
"""Below this a thread of its own costs more than it saves."""
_HEAD_BYTES = 16
_CHUNK_BYTES = 256 << 10  # stays in the cache of the core that hashes it


class Digest(NamedTuple):
    """The digest in hexadecimal digits, or why the bytes cannot be read, and the first bytes: some files are known by them."""

    sha256: str | None
    problem: str | None = None
    head: bytes = b""


def digests_of(members: Mapping[str, Member]) -> dict[str, Digest]:
    """The digest of each member, by path, in their order. Threads have ended when it returns: processes may be forked."""
    large = {path: member for path, member in members.items() if member.stored_bytes >= _LARGE_BYTES}
    at_once = min(usable_cores(), len(large))
    if at_once < 2:
        return {path: _digest(member) for path, member in members.items()}
    with ThreadPoolExecutor(at_once) as pool:
        of_large = dict(zip(large, pool.map(_digest, large.values()), strict=True))
    return {path: of_large.get(path) or _digest(member) for path, member in members.items()}


def _digest(member: Member) -> Digest:
    digest, head = hashlib.sha256(), b""
    try:
        with member.open_raw() as stream:
            for chunk in chunks(stream, _CHUNK_BYTES):
                digest.update(chunk)
                head = head or chunk[:_HEAD_BYTES]
    except OSError as error:
        return Digest(None, f"file cannot be read: {error.strerror or error}", head)
    return Digest(digest.hexdigest(), None, head)
