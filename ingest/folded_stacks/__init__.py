"""Folded stacks with the ranks in each, as tools write them that merge stacks of ranks (docs/formats/folded-stacks.md)."""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Iterator
from typing import Any

from forensics.bundle.artefact import Artefact
from forensics.ingest._shared.content import Lines
from forensics.ingest._shared.frames import MAX_DEPTH, Frame, FrameTable
from forensics.ingest.interface import Batch, Ingester, Item, Problem

MAX_RANKS = 1_000_000
"""Rank and stack pairs of one file."""
_RANKS = r"\[?(\d{1,7}(?:-\d{1,7})?(?:[, ]+\d{1,7}(?:-\d{1,7})?)*)\]?"
_LISTED = re.compile(rf"[# ]*\(?ranks?[ :=]+{_RANKS}\)?\s*$")
_COUNT = re.compile(r"\s(\d{1,12})\s*$")
_PLACE = re.compile(r"(.+) \(([^()]+?)(?::(\d{1,9}))?\)")


def sniff(head: bytes, path: str) -> int:
    """Folded stacks in most lines, and ranks with some of them: without ranks they are a profile of nobody knows whom."""
    if b"\0" in head or b";" not in head:
        return 0
    lines = [line for line in head.decode("utf-8", "replace").splitlines() if line.strip()]
    read = [_read(line) for line in lines]
    folded = sum(bool(stack) for stack, _ in read)
    return 66 if folded and any(ranks for _, ranks in read) and 2 * folded >= len(lines) else 0


def rows(artefact: Artefact) -> Iterator[Item]:
    """One stack for each rank of a line; where a rank is in several, none of them is said to be its main thread."""
    lines = Lines(artefact)
    found: list[tuple[int, int, list[Frame]]] = []
    announced: list[int] = []
    nameless = 0
    for number, line in lines:
        stack, ranks = _read(line)
        if not stack:
            announced = ranks or announced
            continue
        own = ranks or announced
        nameless += not own
        found += [(number, rank, stack) for rank in own]
        if len(found) > MAX_RANKS:
            yield Problem(f"more than {MAX_RANKS} stacks of ranks; the rest was left out", f"line={number}")
            break
    if lines.problem is not None:
        yield lines.problem
    if nameless:
        yield Problem(f"{nameless} stacks name no ranks and were left out")
    if not found:
        yield Problem("no stack of a rank could be read", "line=1", fatal=True)
        return
    yield from _batches(artefact, found[:MAX_RANKS])


def _batches(artefact: Artefact, found: list[tuple[int, int, list[Frame]]]) -> Iterator[Batch]:
    table = FrameTable()
    times = Counter(rank for _, rank, _ in found)
    columns: dict[str, list[Any]] = defaultdict(list)
    paths: dict[int, int | None] = {}
    for number, rank, stack in found:
        if number not in paths:
            paths[number] = table.call_path(stack)
        columns["rank"].append(rank)
        columns["locator"].append(f"line={number}")
        columns["is_main"].append(times[rank] == 1)
        columns["call_path"].append(paths[number])
    size = len(found)
    same: dict[str, list[Any]] = {
        "is_child": [False] * size,
        "sample": [artefact.sample or 0] * size,
        "time_ns": [artefact.captured_ns] * size,
    }
    yield Batch("stacks", columns | same)
    yield from table.batches()


def _read(line: str) -> tuple[list[Frame], list[int]]:
    """Frames (innermost first) and ranks of a line; either may be missing."""
    ranks: list[int] = []
    if match := _LISTED.search(line[-4096:]):
        ranks = _listed(match[1])
        line = line[: len(line) - len(match[0])]
    count = _COUNT.search(line[-32:])
    parts = (line[: len(line) - len(count[0])] if count else line).strip().split(";")
    if len(parts) < 2 or not (count or ranks):
        return [], ranks
    return [_frame(part.strip()) for part in reversed(parts[:MAX_DEPTH]) if part.strip()], ranks


def _listed(text: str) -> list[int]:
    """Ranks of `0-3,5`; a range that is no range, or has too many, names nobody."""
    ranks: list[int] = []
    for part in re.split(r"[, ]+", text):
        first, _, last = part.partition("-")
        low, high = int(first), int(last or first)
        if high < low or high - low + len(ranks) >= MAX_RANKS:
            return []
        ranks += range(low, high + 1)
    return ranks


def _frame(text: str) -> Frame:
    match = _PLACE.fullmatch(text[:2048])
    return (match[1], match[2], int(match[3]) if match[3] else None) if match else (text, None, None)


INGESTER = Ingester("folded_stacks", "python_stacks", sniff, rows, most=66)
