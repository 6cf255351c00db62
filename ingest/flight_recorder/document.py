"""A Flight Recorder dump as one dictionary, from pickle or JSON, whole or cut, of any schema."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from forensics.ingest._shared.content import parse_json
from forensics.ingest._shared.values import text
from forensics.ingest.flight_recorder.pickle import load_pickle
from forensics.ingest.interface import Problem

_KNOWN_MAJOR = 2
_MAX_REPORTED = 20
_MAX_REPEATS = 4096
_SPACE = re.compile(r"[\s,]*")


@dataclass(frozen=True, slots=True)
class Dump:
    """Entries with their numbers in the artefact, the other top-level values, and what was wrong."""

    entries: list[dict[str, Any]]
    numbers: list[int]
    values: dict[str, Any]
    problems: list[Problem]


def read_dump(content: bytes) -> Dump:
    """Read a dump; its entries are those that are objects with a profiling name."""
    problems: list[Problem] = []
    value, problem = load_pickle(content) if content[:1] == b"\x80" else _load_json(content)
    if problem is not None:
        problems.append(problem)
    if isinstance(value, list):
        value = {"version": "1", "entries": value}
    if not isinstance(value, dict):
        if problem is None:
            problems.append(Problem("not a Flight Recorder dump: neither an object nor a list", "byte=0", fatal=True))
        return Dump([], [], {}, problems)
    problems += version_problems(value)
    entries, numbers = _sound_entries(value.get("entries", []), problems)
    return Dump(entries, numbers, value, problems)


def _load_json(content: bytes) -> tuple[Any, Problem | None]:
    """The document, or of a cut one the top-level values and entries before the cut."""
    value = parse_json(content)
    if not isinstance(value, Problem):
        return value, None
    source = content.decode("utf-8", "replace")
    salvaged, position = _salvage(source)
    if not salvaged:
        return None, value
    cut = len(source[:position].encode())
    return salvaged, Problem(f"the JSON is cut or damaged after byte {cut}; kept what is complete", f"byte={cut}")


def _salvage(source: str) -> tuple[dict[str, Any], int]:
    """Top-level values that are complete, with the complete entries of a list that is not, and where that ended."""
    found: dict[str, Any] = {}
    position = _skip(source, 0)
    decoder = json.JSONDecoder()
    if source[position : position + 1] == "[":
        found["entries"], position = _salvage_list(source, position + 1, decoder)
        return (found, position) if found["entries"] else ({}, position)
    position += 1
    try:
        while source[_skip(source, position) : _skip(source, position) + 1] == '"':
            key, end = decoder.raw_decode(source, _skip(source, position))
            start = _skip(source, source.index(":", end) + 1)
            if key == "entries" and source[start : start + 1] == "[":
                found["entries"], position = _salvage_list(source, start + 1, decoder)
            else:
                found[key], position = decoder.raw_decode(source, start)
    except (ValueError, RecursionError):
        pass
    return found, position


def _salvage_list(source: str, position: int, decoder: json.JSONDecoder) -> tuple[list[Any], int]:
    """Complete elements from `position` on, and the position behind the list or the last complete element."""
    items: list[Any] = []
    try:
        while (start := _skip(source, position)) < len(source) and source[start] != "]":
            item, position = decoder.raw_decode(source, start)
            items.append(item)
        return items, start + 1
    except (ValueError, RecursionError):
        return items, position


def _skip(source: str, position: int) -> int:
    """The next position that is neither white space nor a comma."""
    match = _SPACE.match(source, position)
    return match.end() if match else position


def version_problems(value: dict[str, Any]) -> Iterator[Problem]:
    """A major version that is not known yet; the dump is still read key by key."""
    version = text(value.get("version")) or ""
    major = version.partition(".")[0]
    if major.isdecimal() and len(major) < 10 and int(major) > _KNOWN_MAJOR:
        yield Problem(f"Flight Recorder schema {version} is newer than {_KNOWN_MAJOR}.x; read as far as its keys are known")


def _sound_entries(entries: Any, problems: list[Problem]) -> tuple[list[dict[str, Any]], list[int]]:
    """Entries that can be used, with their numbers; the others are reported, the first few one by one."""
    if not isinstance(entries, list):
        problems.append(Problem("`entries` is not a list", None))
        return [], []
    if len(entries) - len(set(map(id, entries))) > _MAX_REPEATS:
        problems.append(Problem(f"more than {_MAX_REPEATS} entries are one and the same as another; of those one is used"))
        entries = list({id(entry): entry for entry in entries}.values())
    if set(map(type, entries)) == {dict} and set(map(type, map(_profiling_name, entries))) == {str}:
        return entries, list(range(len(entries)))
    sound = [type(entry) is dict and type(entry.get("profiling_name")) is str for entry in entries]
    broken = [number for number, is_sound in enumerate(sound) if not is_sound]
    message = "entry is not an object with a profiling_name; left out"
    problems += [Problem(message, f"entry={number}") for number in broken[:_MAX_REPORTED]]
    if len(broken) > _MAX_REPORTED:
        problems.append(Problem(f"{len(broken) - _MAX_REPORTED} more such entries", f"entry={broken[_MAX_REPORTED]}"))
    numbers = [number for number, is_sound in enumerate(sound) if is_sound]
    return [entries[number] for number in numbers], numbers


def _profiling_name(entry: dict[str, Any]) -> Any:
    return entry.get("profiling_name")
