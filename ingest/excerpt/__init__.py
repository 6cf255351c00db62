"""The piece of an artefact that a locator of a report names, as text for people."""

from __future__ import annotations

from typing import Any

import orjson

from forensics.bundle.artefact import Artefact
from forensics.ingest._shared.content import parse_json, read_document
from forensics.ingest.flight_recorder.document import read_dump
from forensics.ingest.interface import Problem

_AROUND = 4


def excerpt(artefact: Artefact, locator: str | None) -> str | Problem:
    """Return the entry, thread or line that `locator` (`entry=12`, `thread=41`, `line=7`) names; all of it without one.

    Flight Recorder pickles are shown as JSON. A `Problem` says why there is nothing to show.
    """
    content = read_document(artefact)
    if isinstance(content, Problem):
        return content
    kind, _, number = (locator or "").partition("=")
    if kind == "line":
        return _lines(content, number)
    if content[:1] == b"\x80" or kind == "entry":
        dump = read_dump(content)
        chosen = [e for n, e in zip(dump.numbers, dump.entries, strict=True) if str(n) == number]
        return _pretty(chosen[0]) if chosen else _whole(dump.values, dump.problems, locator)
    document = parse_json(content)
    if isinstance(document, Problem):
        return content.decode("utf-8", "replace")
    if kind == "thread":
        return _thread(document, number)
    return _pretty(document)


def _thread(document: Any, number: str) -> str | Problem:
    threads = document if isinstance(document, list) else []
    chosen = [thread for thread in threads if isinstance(thread, dict) and str(thread.get("os_thread_id")) == number]
    return _pretty(chosen) if chosen else Problem(f"there is no thread {number} in it", f"thread={number}")


def _whole(values: dict[str, Any], problems: list[Problem], locator: str | None) -> str | Problem:
    if locator:
        return Problem(f"there is no {locator} in it", locator)
    return _pretty(values) if values else (problems or [Problem("nothing in it could be read")])[0]


def _lines(content: bytes, number: str) -> str | Problem:
    lines = content.decode("utf-8", "replace").splitlines()
    if not number.isdigit() or not 1 <= int(number) <= len(lines):
        return Problem(f"there is no line {number} in it", f"line={number}")
    chosen = int(number)
    first = max(1, chosen - _AROUND)
    shown = lines[first - 1 : chosen + _AROUND]
    return "\n".join(f"{'>' if n == chosen else ' '} {n:6}  {line}" for n, line in enumerate(shown, first))


def _pretty(value: Any) -> str:
    return orjson.dumps(value, option=orjson.OPT_INDENT_2 | orjson.OPT_NON_STR_KEYS, default=str).decode()
