"""A map of queue pairs: a table that says whose they are and who is at the other end, and nothing of what they moved."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from forensics.ingest.interface import Item, Problem
from forensics.ingest.nic_epochs.ends import End, end_of, names_of, queue_pairs, whole

_NEEDED = frozenset({"queue_pair", "nic"})
_OWNERS = frozenset({"rank", "peer"})
_MOST_ROWS = 1 << 22
_MOST_SHOWN = 20


def is_map(names: Sequence[str]) -> bool:
    """Whether columns with these names are a map: those of epochs have bytes as well."""
    return set(names) >= _NEEDED and not _OWNERS.isdisjoint(names) and "bytes" not in names


def items(names: Sequence[str], rows: Iterable[tuple[str, Sequence[Any]]], said: Mapping[str, Any]) -> Iterator[Item]:
    """Queue pairs of rows of cells, each with its place; `said` holds what the file says of all of them."""
    ends: dict[End, None] = {}
    bad = 0
    for place, row in rows:
        cells = {**said, **{name: cell for name, cell in zip(names, row, strict=False) if cell not in (None, "")}}
        number = whole(cells.get("queue_pair"))
        end = None if number is None else end_of(cells, number)
        if end is None or end.nic is None or (end.rank is None and end.peer is None):
            bad += 1
            if bad <= _MOST_SHOWN:
                yield Problem("no number of a queue pair, NIC, or rank or peer", place)
        elif len(ends) == _MOST_ROWS:
            yield Problem(f"more than {_MOST_ROWS} queue pairs; the rest was left out", place)
            break
        else:
            ends[end] = None
    if bad > _MOST_SHOWN:
        yield Problem(f"{bad - _MOST_SHOWN} more rows could not be read")
    if ends:
        yield queue_pairs(list(ends), names_of(list(ends)))
