"""How much a bundle may ask of the machine that reads it; nothing else bounds what an unknown archive expands to."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, fields, replace

from forensics.errors import ExitCode, ForensicsError


@dataclass(frozen=True, slots=True)
class Budget:
    """What one input may take: `bytes` of a decompressed archive, and of all files together as they are stored; `members`
    (files) looked at; `seconds` of wall clock for each file; `memory` (bytes) of each process, 0 for no limit.
    """

    bytes: int = 64 << 30
    members: int = 200_000
    seconds: int = 600
    memory: int = 0


_budget: ContextVar[Budget] = ContextVar("budget", default=Budget())  # noqa: B039 - frozen
_PART = re.compile(r"(?P<name>\w+)=(?P<number>\d{1,15})(?P<unit>[KMGT]?)(?:i?B)?")
_UNITS = {"": 0, "K": 10, "M": 20, "G": 30, "T": 40}


def budget() -> Budget:
    """The budget in force."""
    return _budget.get()


@contextmanager
def within(allowed: Budget) -> Iterator[None]:
    """Read under this budget."""
    token = _budget.set(allowed)
    try:
        yield
    finally:
        _budget.reset(token)


def parse_budget(text: str) -> Budget:
    """Parse `bytes=8G,members=1000,seconds=60,memory=4G`; what is not named keeps its default."""
    found = Budget()
    known = [each.name for each in fields(Budget)]
    for part in filter(None, text.split(",")):
        match = _PART.fullmatch(part.strip())
        if match is None or match["name"] not in known:
            raise ForensicsError(f"--budget {part}: expected NAME=NUMBER with one of {', '.join(known)}", ExitCode.USAGE)
        found = replace(found, **{match["name"]: int(match["number"]) << _UNITS[match["unit"]]})
    return found


def exceeded(name: str) -> str:
    """Say which part of the budget does not suffice."""
    return f"more than {getattr(budget(), name)} {name}, the budget; --budget {name}=NUMBER raises it"


MAX_MEMBER_BYTES = 8 << 30
"""Decompressed size of one file."""

MAX_RATIO = 500
"""Decompressed over stored bytes, looked at beyond `RATIO_FREE_BYTES`; repetitive JSON stays well below 200."""

RATIO_FREE_BYTES = 64 << 20
"""Size up to which the ratio does not matter: a small file may compress as well as it likes."""

MAX_EXTENDED_HEADER_BYTES = 1 << 20
"""Largest PAX or GNU extended header of a tar: names and a few attributes."""

MAX_MANIFEST_BYTES = 256 << 20
"""Largest bundle.json, collectors.jsonl or SHA256SUMS."""

ZSTD_WINDOW_BYTES = 1 << 27
"""Largest zstd window, which is the decoder's memory; `zstd --long` writes 2^27."""

XZ_MEMORY_BYTES = 1 << 27
"""Largest memory of the xz decoder; what `xz -9` writes needs half of it."""
