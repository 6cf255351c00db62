"""Call paths of a section under the numbers of a case; ranks of one job are in the same places, so that most are met again."""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache

from forensics.ingest._shared.frames import Frame, FrameTable
from forensics.ingest.interface import Batch
from forensics.ingest.rank_summary.columns import Rows

Numbers = Mapping[int, int | None]
"""The number that each call path has in a case, by the one that it has in its section."""

_MOST_REMEMBERED = 4096
_PLACES = ("call_path", "depth", "frame")
_Column = tuple[str | int | None, ...]


def call_paths(parts: Mapping[str, Rows]) -> tuple[Numbers, tuple[Batch, ...]]:
    """The numbers of the call paths in tables of a section, and the rows of `frames` and `call_paths` for the case."""
    if len(parts) < 2 or not {"frame", "name"} <= parts["frames"].columns.keys() or not _is_whole(parts["call_paths"]):
        return {}, ()
    frames, paths = parts["frames"], parts["call_paths"]
    unknown = [None] * frames.count
    listed: tuple[_Column, ...] = tuple(
        tuple(frames.columns.get(name, unknown)) for name in ("frame", "name", "filename", "line")
    )
    places = tuple(tuple(paths.columns[name]) for name in _PLACES)
    return (_numbered if paths.count + frames.count <= _MOST_REMEMBERED else _numbered.__wrapped__)(listed, places)


def _is_whole(part: Rows) -> bool:
    return set(_PLACES) <= part.columns.keys() and all(part.columns[name].mask is None for name in _PLACES)


@lru_cache(maxsize=64)
def _numbered(listed: tuple[_Column, ...], places: tuple[tuple[int, ...], ...]) -> tuple[Numbers, tuple[Batch, ...]]:
    frames = _frames(listed)
    paths: dict[int, list[tuple[int, int]]] = {}
    for path, depth, frame in zip(*places, strict=True):
        paths.setdefault(path, []).append((depth, frame))
    table = FrameTable()
    numbers = {path: table.call_path([frames.get(frame) for _, frame in sorted(steps)]) for path, steps in paths.items()}
    return numbers, tuple(table.batches())


def _frames(listed: tuple[_Column, ...]) -> dict[int, Frame]:
    rows = zip(*listed, strict=True)
    return {
        number: (name, filename if isinstance(filename, str) else None, line if isinstance(line, int) else None)
        for number, name, filename, line in rows
        if isinstance(number, int) and isinstance(name, str)
    }
