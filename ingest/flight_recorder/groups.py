"""The process groups one rank knows: pg_config and pg_status of a Flight Recorder dump, joined."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from forensics.ingest._shared.values import integer, rank_number, text

_STATUS = ("last_enqueued", "last_started", "last_completed")

Named = tuple[int | None, str | None, str | None]
"""pg_id, group name and description of an entry."""


@dataclass(frozen=True, slots=True)
class _Group:
    """One group as pg_config or the entries name it."""

    description: str | None
    members: tuple[int, ...] | None
    locator: str


def group_columns(values: Mapping[str, Any], entries: Iterable[Named]) -> dict[str, list[Any]]:
    """Columns of `group_views`: a row for each group of pg_config, pg_status or the entries."""
    named = {(pg_id, name, text) for pg_id, name, text in entries if name}
    groups = _configured(values.get("pg_config"))
    for pg_id, name, description in sorted(named, key=str):
        groups.setdefault(str(name), _Group(description, None, f"entries.pg_id={pg_id}"))
    statuses = _statuses(values.get("pg_status"))
    numbers = _numbers({name: pg_id for pg_id, name, _ in named if name and pg_id is not None}, groups, statuses)
    rows = [(name, groups[name], numbers.get(name)) for name in groups]
    taken = {number for _, _, number in rows}
    unnamed = [number for number in statuses if number not in taken]
    return _columns(rows, unnamed, statuses)


def _columns(
    rows: list[tuple[str, _Group, int | None]], unnamed: list[int], statuses: Mapping[int, Mapping[str, int | None]]
) -> dict[str, list[Any]]:
    """The named groups, then the rows of pg_status that no name is known for."""
    numbers: list[int | None] = [*(number for _, _, number in rows), *unnamed]
    known = [statuses.get(number, {}) if number is not None else {} for number in numbers]
    blank = [None] * len(unnamed)
    columns: dict[str, list[Any]] = {
        "pg_id": numbers,
        "pg_name": [*(name for name, _, _ in rows), *blank],
        "description": [*(group.description for _, group, _ in rows), *blank],
        "members": [*(group.members for _, group, _ in rows), *blank],
        "locator": [*(group.locator for _, group, _ in rows), *(f"pg_status={number}" for number in unnamed)],
    }
    return columns | {key: [status.get(key) for status in known] for key in _STATUS}


def read_ranks(value: Any) -> tuple[int, ...] | None:
    """Members from the text `[0, 1, 2]` or a list, each once; None when there are none: an empty list is `not reported`."""
    if isinstance(value, str):
        return _ranks_of_text(value)
    if not isinstance(value, (list, tuple)):
        return None
    ranks = [rank_number(item) for item in value]
    sound = [rank for rank in ranks if rank is not None]
    return tuple(dict.fromkeys(sound)) if sound and len(sound) == len(ranks) else None


# Every dump of a job lists the same members.
@lru_cache(maxsize=1 << 10)
def _ranks_of_text(value: str) -> tuple[int, ...] | None:
    parts = value.strip().removeprefix("[").removesuffix("]").strip().removesuffix(",").split(",")
    digits = [part.strip() for part in parts]
    return tuple(dict.fromkeys(map(int, digits))) if all(part.isdecimal() and len(part) < 8 for part in digits) else None


def _configured(config: Any) -> dict[str, _Group]:
    """Groups of pg_config by name; the nameless one that gloo writes carries another group's members and is left out."""
    found: dict[str, _Group] = {}
    for key, value in config.items() if isinstance(config, dict) else ():
        if not isinstance(value, dict) or not isinstance(key, str) or not (name := text(value.get("name")) or key):
            continue
        members = read_ranks(value.get("ranks"))
        found[name] = _Group(text(value.get("desc")), members, f"pg_config={name}")
    return found


def _statuses(status: Any) -> dict[int, dict[str, int | None]]:
    """Counters of pg_status by pg_id; JSON writes them as strings."""
    found: dict[int, dict[str, int | None]] = {}
    for key, value in status.items() if isinstance(status, dict) else ():
        number = integer(key)
        if number is not None and abs(number) < 1 << 31 and isinstance(value, dict):
            found[number] = {name: integer(value.get(f"{name}_collective")) for name in _STATUS}
    return dict(sorted(found.items()))


def _numbers(seen: Mapping[str, int], groups: Mapping[str, _Group], statuses: Mapping[int, Any]) -> dict[str, int]:
    """pg_id of each group name: from the entries, else by order of creation.

    Both the numbers of pg_status and numeric group names grow in the order the process made its groups. They are joined by
    that order only when there are as many of one as of the other and every pair seen in an entry agrees.
    """
    numbers = dict(seen)
    configured = [name for name, group in groups.items() if group.locator.startswith("pg_config=")]
    if not configured or len(configured) != len(statuses) or not all(name.isdecimal() for name in configured):
        return numbers
    by_order = dict(zip(sorted(configured, key=int), sorted(statuses), strict=True))
    if all(by_order.get(name, number) == number for name, number in seen.items()):
        return by_order | numbers
    return numbers
