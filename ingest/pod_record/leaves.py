"""Values of a record with the keys above them, from the YAML that kubectl prints or from its JSON.

The YAML is read line by line: kubectl writes one key a line, two spaces a level, and lists at the level of their key.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, NamedTuple

MAX_LINE = 4096
MAX_DEPTH = 24
_KEY = re.compile(r"(?P<pad> {0,80}(?:- ){0,4})(?P<key>[A-Za-z][\w./-]{0,200}):(?: (?P<value>.*))?$")


class Leaf(NamedTuple):
    """One value as text; `path` are the keys above it without `items` of a list of pods, `line` is 1 in JSON."""

    path: tuple[str, ...]
    value: str
    line: int


def of_lines(lines: Iterable[tuple[int, str]]) -> Iterator[Leaf]:
    """Values of YAML as kubectl writes it; what stands in a text of several lines is below no key that counts."""
    above: list[tuple[int, str]] = []
    for number, whole in lines:
        found = _KEY.match(whole[:MAX_LINE].rstrip())
        if found is None:
            continue
        depth = len(found["pad"])
        while above and above[-1][0] >= depth:
            above.pop()
        value = found["value"]
        if value is not None and len(above) < MAX_DEPTH:
            yield Leaf(_below_items((*(key for _, key in above), found["key"])), value.strip("\"'"), number)
        # The lines of a text, `|` or `>`, are deeper than its key.
        above.append((depth, found["key"]))


def of_document(document: Mapping[str, Any]) -> Iterator[Leaf]:
    """Values of JSON, in its order."""
    yield from (Leaf(_below_items(path), value, 1) for path, value in _walk(document, ()))


def _walk(value: Any, path: tuple[str, ...]) -> Iterator[tuple[tuple[str, ...], str]]:
    if len(path) > MAX_DEPTH:
        return
    if isinstance(value, Mapping):
        for key, inner in value.items():
            yield from _walk(inner, (*path, str(key)))
    elif isinstance(value, list):
        for inner in value:
            yield from _walk(inner, path)
    elif isinstance(value, str | int):
        yield path, str(value)


def _below_items(path: tuple[str, ...]) -> tuple[str, ...]:
    return path[1:] if path[0] == "items" else path
