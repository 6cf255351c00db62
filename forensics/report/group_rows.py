"""What communicators wait in, those of one kind that differ in nothing but their ranks and numbers on one line."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence

from forensics.model import GroupRow, Verdict
from forensics.rank_ranges import format_ranks
from forensics.report import ranks
from forensics.report.section import Item

_FEW = 2
"""Rows that are shown one by one although they are alike."""
_NUMBER = re.compile(r"^\d+(?=:|$)|(?<=_)\d+$")
"""What tells groups of one kind apart in their labels: `25:mesh_pp`, `33`, `tp_3`."""


def items(verdict: Verdict, rows: Iterable[GroupRow], most: int | None = ranks.MOST_RANGES) -> Iterator[Item]:
    """Those first that the suspect is missing from, then those that others are; `most` None shows every group and all ranks."""
    accused = frozenset(verdict.suspects[0].ranks) if verdict.suspects else frozenset()
    alike: dict[tuple[int, object], list[GroupRow]] = {}
    for row in rows:
        alike.setdefault((_urgency(row, accused), _kind(row)), []).append(row)
    for _, each in sorted(alike.items(), key=lambda found: found[0][0]):
        if most is None or len(each) <= _FEW:
            yield from (Item(_words([row], most), row.communicator) for row in each)
        else:
            yield Item(_words(each, most), _label(each, most))


def _urgency(row: GroupRow, accused: frozenset[int]) -> int:
    return 2 - bool(row.missing) - (not accused.isdisjoint(row.missing))


def _kind(row: GroupRow) -> object:
    sizes = tuple(len(set(members)) for members in (row.members, row.joined, row.missing, row.finished))
    name = _NUMBER.sub("", row.communicator)
    return name, row.operation, row.sequence is None, row.sizes, row.membership, sizes


def _label(rows: Sequence[GroupRow], most: int | None) -> str:
    """`25-32:mesh_pp` of the labels `25:mesh_pp` to `32:mesh_pp`."""
    numbers = {int(found[0]) for row in rows if (found := _NUMBER.search(row.communicator))}
    return _NUMBER.sub(format_ranks(numbers, most), rows[0].communicator)


def _words(rows: Sequence[GroupRow], most: int | None) -> str:
    """What the communicators do, and who is where."""
    first, groups = rows[0], len({row.communicator for row in rows})
    doing = first.operation or ("no operation" if first.sequence is None else "at")
    sizes = f" {first.sizes}" if first.sizes else ""
    members = f"{len(first.members)} members ({first.membership})"
    many = f"{groups} groups of " if groups > 1 else ""
    names = ("joined", "missing", "finished")
    sets = ((name, {rank for row in rows for rank in getattr(row, name)}) for name in names)
    who = "".join(f"   {name} {len(found)} [{ranks.fold(found, most)}]" for name, found in sets if found)
    return f"{doing}{_sequence(rows)}{sizes}   {many}{members}{who}"


def _sequence(rows: Sequence[GroupRow]) -> str:
    numbers = [row.sequence for row in rows if row.sequence is not None]
    if not numbers:
        return ""
    low, high = min(numbers), max(numbers)
    return f" seq {low}" + (f"-{high}" if high > low else "")
