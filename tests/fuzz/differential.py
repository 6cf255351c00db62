"""Whether the native readers and those in Python say the same of an input."""

from __future__ import annotations

import ctypes
import io
import json
import random
from collections.abc import Iterator
from typing import Any
from unittest.mock import patch

import numpy as np
import orjson

from forensics.bundle.artefact import Artefact
from forensics.ingest import flight_recorder
from forensics.ingest.flight_recorder import native as recorder_native
from forensics.ingest.flight_recorder.native import open_dump
from forensics.ingest.flight_recorder.pickle import load_pickle
from forensics.ingest.interface import Batch
from forensics.ingest.kineto.columns import Tally, TraceColumns
from forensics.ingest.kineto.events import read_slowly
from forensics.ingest.kineto.native import read_native

OK, CUT, MALFORMED = 0, 1, 3
_MEMORY = 64 << 20
_LAYOUTS: tuple[dict[str, Any], ...] = ({"separators": (",", ":")}, {}, {"indent": 1}, {"indent": 2}, {"indent": "\t"})
_LEADS = ("", "", " ", "\n", "\n ", "\n  ", "\n  ", "\r\n  ", "\n\t", "\n    ")


def disagreement(reader: str, content: bytes) -> str | None:
    """What the two readers differ in, None where they agree."""
    return _of_pickles(content) if reader == "pickle" else _of_traces(content)


def _of_pickles(content: bytes) -> str | None:
    status = _status(content)
    value, problem = load_pickle(content)
    if status == OK and problem is not None:
        return f"only the native reader takes it: {problem.message}"
    if status in (CUT, MALFORMED) and problem is None:
        return f"only Python takes it: {value!r:.200}"
    if status != OK or content[:1] != b"\x80":
        return None
    with open_dump(content) as native:
        if native is None:
            return None
    here, there = _facts(content), _without_library(content)
    return None if here == there else f"other facts: {here!r:.400} natively, {there!r:.400} in Python"


def _status(content: bytes) -> int:
    library = recorder_native._library()
    assert library is not None
    status = ctypes.c_int()
    pickle = library.read(content, len(content), _MEMORY, ctypes.byref(status))
    if pickle:
        library.free(pickle)
    return status.value


def _facts(content: bytes) -> list[str]:
    items = flight_recorder.rows(Artefact("dump", len(content), lambda: io.BytesIO(content)))
    return [
        repr((item.table, {name: list(column) for name, column in item.columns.items()}))
        if isinstance(item, Batch)
        else repr(item)
        for item in items
    ]


def _without_library(content: bytes) -> list[str]:
    with patch.object(recorder_native, "_library", lambda: None):
        return _facts(content)


def _of_traces(content: bytes) -> str | None:
    """Natively the same in blocks of any size; in every layout that a writer of JSON makes, the same in Python."""
    found = _rows(_native(content, len(content) + 1))
    for block in (17, 200):
        if _is_trace(content) and _rows(_native(content, block)) != found:
            return f"other events in blocks of {block} bytes"
    if not _is_trace(content):
        return None
    before = found
    for layout, written in (("as it is", content), *_layouts(content)):
        here, there = _rows(_native(written, len(written) + 1)), _rows(read_slowly([written], Tally()))
        if here != there:
            return f"other events {layout}: {here!r:.400} natively, {there!r:.400} in Python"
        if layout.startswith("mixed") and here != before:
            return f"other events {layout}: {here!r:.400}, before {before!r:.400}"
        before = here
        parts = [written[at : at + 300] for at in range(0, len(written), 300)]
        if _rows(read_slowly(parts, Tally())) != there:
            return f"other events {layout} in blocks of 300 bytes in Python"
    return None


def _layouts(content: bytes) -> Iterator[tuple[str, bytes]]:
    """The same in each layout that a writer of JSON makes, and in several at once."""
    document = json.loads(content)
    for layout in _LAYOUTS:
        yield f"with {layout}", json.dumps(document, **layout).encode()
    for seed in range(3):
        yield f"mixed ({seed})", mixed(document, random.Random(f"{seed}{len(content)}"))


def mixed(document: dict[str, Any], dice: random.Random) -> bytes:
    """A trace of which each event has a layout and stands behind white space of its own."""
    written = []
    for event in document["traceEvents"]:
        lead = dice.choice(_LEADS)
        text = json.dumps(event, **dice.choice(_LAYOUTS))
        written.append(lead + (text.replace("\n", lead) if dice.random() < 0.5 and "\n" in lead else text))
    events = "".join(text + dice.choice(_LEADS) + "," for text in written).removesuffix(",")
    return json.dumps({**document, "traceEvents": 7}).replace('"traceEvents": 7', f'"traceEvents": [{events}]').encode()


def _native(content: bytes, block: int) -> TraceColumns:
    found = read_native([content[at : at + block] for at in range(0, len(content), block)], Tally())
    assert found is not None
    return found


def _is_trace(content: bytes) -> bool:
    try:
        orjson.loads(content)  # refuses numbers that no double holds
        document = json.loads(content, object_pairs_hook=_without_twins)
    except (ValueError, RecursionError):
        return False
    events = document.get("traceEvents") if isinstance(document, dict) else None
    return content.count(b'"traceEvents"') == 1 and isinstance(events, list) and all(map(_is_plain, events))


def _without_twins(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """No writer gives an object the same name twice; each reader takes another of the two."""
    if len(found := dict(pairs)) < len(pairs):
        raise ValueError("the same name twice")
    return found


def _is_plain(event: Any) -> bool:
    """An event as writers make them: its own members are texts and numbers."""
    if not isinstance(event, dict) or not all(type(event.get(key, "")) in (str, int) for key in ("pid", "tid")):
        return False
    text = json.dumps(event)
    return "\\" not in text and len(text) < 1 << 16


def _rows(columns: TraceColumns) -> list[tuple[Any, ...]]:
    everything = np.arange(len(columns.kinds))
    tracks = [columns.track_texts[code] for code in columns.tracks.tolist()]
    numbers = (columns.kinds, columns.begins, columns.durations, columns.externals, columns.correlations)
    return list(zip(*(each.tolist() for each in numbers), columns.named(everything), tracks, strict=True))
