"""Public defects of NCCL, PyTorch and the driver that look like a bad rank, and which of them a case shows.

The catalogue is data, known_defects.toml; docs/known-defects.md is made from it. A defect is named beside the suspects and
never changes them: what was seen of it is also seen where it is not the cause.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

from forensics.model import Evidence, GroupRow, KnownDefect

DATA = Path(__file__).with_suffix(".toml")
_MOST_SIGNS = 3
_NUMBER = re.compile(r"v?(\d+(?:\.\d+)*)(?:-\d+)?(?:\+[\w.-]+)?")


@dataclass(frozen=True, slots=True, kw_only=True)
class Defect:
    """One entry of the catalogue; known_defects.toml says what the fields mean."""

    id: str
    product: str
    since: str
    fixed: str
    title: str
    action: str
    links: tuple[str, ...]
    machine: str | None = None
    frames: tuple[str, ...] = ()
    lines: tuple[str, ...] = ()
    call: str | None = None
    members: int = 0
    environment: Mapping[str, str] = field(default_factory=dict)
    unless: Mapping[str, str] = field(default_factory=dict)


class Sign(NamedTuple):
    """Something seen: what, of which ranks, and where."""

    text: str
    ranks: tuple[int, ...]
    source: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Facts:
    """What a case holds of the things that defects are recognised by.

    `versions` and `machines` are as stated, each with its place. `frames` are the named functions on one thread in each of its
    samples, `lines` are lines of logs, `calls` the groups at the stall, `environment` all values of a variable.
    """

    versions: Mapping[str, tuple[Evidence, ...]] = field(default_factory=dict)
    machines: tuple[Evidence, ...] = ()
    frames: tuple[tuple[frozenset[str], Sign], ...] = ()
    lines: tuple[Sign, ...] = ()
    calls: tuple[GroupRow, ...] = ()
    environment: Mapping[str, frozenset[str]] = field(default_factory=dict)


@cache
def catalogue() -> tuple[Defect, ...]:
    """All known defects in the order of the file."""
    entries: list[dict[str, Any]] = tomllib.loads(DATA.read_text(encoding="utf-8"))["defect"]
    return tuple(Defect(**{key: _frozen(value) for key, value in entry.items()}) for entry in entries)


def _frozen(value: Any) -> Any:
    return tuple(value) if isinstance(value, list) else value


def known_defects(facts: Facts, defects: Iterable[Defect] | None = None) -> tuple[KnownDefect, ...]:
    """Defects whose signs were seen, those whose version is stated first; none where version or machine exclude it.

    RCCL prints the messages of the NCCL that it was made from, and has not its versions.
    """
    is_amd = any("rocm" in stated.statement for stated in facts.versions.get("torch", ()))
    found = [_seen(defect, facts) for defect in (catalogue() if defects is None else defects)]
    named = [each for each in found if each is not None and not (is_amd and each.product != "torch")]
    return tuple(sorted(named, key=lambda each: not each.certain))


def _seen(defect: Defect, facts: Facts) -> KnownDefect | None:
    signs = _signs(defect, facts)
    versions = facts.versions.get(defect.product, ())
    in_range = _all(_affected(defect, stated.statement) for stated in versions)
    fits = _all(stated.statement == defect.machine for stated in facts.machines) if defect.machine else True
    if not signs or in_range is False or fits is False:
        return None
    return KnownDefect(
        id=defect.id,
        product=defect.product,
        title=defect.title,
        certain=bool(in_range and fits),
        versions=tuple(dict.fromkeys(stated.statement for stated in versions)),
        since=defect.since,
        fixed=defect.fixed,
        machine=defect.machine,
        ranks=tuple(sorted({rank for sign in signs for rank in sign.ranks})),
        action=defect.action,
        links=defect.links,
        evidence=(*(Evidence(sign.text, sign.source) for sign in signs), *versions[:1]),
    )


def _all(answers: Iterable[bool | None]) -> bool | None:
    """True and False where all answers agree; None where there is none, or some differ or are unknown."""
    given = set(answers)
    return given.pop() if len(given) == 1 else None


def _affected(defect: Defect, version: str) -> bool | None:
    """Whether a version has the defect; None for builds between releases, and where the part that decides is missing."""
    match = _NUMBER.fullmatch(version)
    if match is None:
        return None
    number, fixed = _parts(match[1]), _parts(defect.fixed)
    if len(number) < len(fixed) and number == fixed[: len(number)]:
        return None
    return _parts(defect.since) <= number < fixed


def _parts(version: str) -> tuple[int, ...]:
    return tuple(map(int, version.split(".")))


def _signs(defect: Defect, facts: Facts) -> list[Sign]:
    """What was seen of a defect; empty unless all that it asks for was."""
    wanted = [*_frames(defect, facts), *_lines(defect, facts), *_calls(defect, facts)]
    environment = facts.environment
    excluded = any(value in environment.get(name, ()) for name, value in defect.unless.items())
    missing = any(value not in environment.get(name, ()) for name, value in defect.environment.items())
    return [] if excluded or missing or not all(wanted) else [sign for signs in wanted for sign in signs[:_MOST_SIGNS]]


def _frames(defect: Defect, facts: Facts) -> Iterator[list[Sign]]:
    if defect.frames:
        yield [sign for names, sign in facts.frames if names.issuperset(defect.frames)]


def _lines(defect: Defect, facts: Facts) -> Iterator[list[Sign]]:
    for line in defect.lines:
        yield [sign for sign in facts.lines if re.search(line, sign.text)]


def _calls(defect: Defect, facts: Facts) -> Iterator[list[Sign]]:
    if defect.call is None:
        return
    rows = [row for row in facts.calls if (row.operation or "").startswith(defect.call) and len(row.members) >= defect.members]
    stuck = [row for row in rows if set(row.joined) == set(row.members) and not row.missing and not row.finished]
    yield [
        Sign(f"all {len(row.members)} members of {row.communicator} entered {row.operation}; none finished", row.joined, None)
        for row in stuck
    ]
