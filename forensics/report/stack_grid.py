"""Ranks by pipeline stage, replica and tensor, one letter a call path: who is elsewhere stands out (Mycroft section 6.2)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from itertools import groupby
from string import ascii_uppercase

from forensics.model import GridRow, TreeLine, Verdict
from forensics.report import ranks
from forensics.report.section import Item, Section

_UNSEEN, _FURTHER = ".", "*"
_WIDEST = 72
"""Letters and gaps of one stage that are drawn in full; else only replicas that differ from most."""
_FRAMES = 1
_MOST_OTHERS = 4


def stack_grid(verdict: Verdict, most: int | None = ranks.MOST_RANGES) -> Section:
    """One line a stage and one a call path; empty where all are at one place, or where the places of ranks are not known."""
    grid = verdict.layout.grid if verdict.layout else ()
    at = _path_of(verdict.tree)
    paths = [path for path, _ in Counter(at[rank] for row in grid for rank in row.ranks if rank in at).most_common()]
    if len(paths) < 2:
        return Section("STACK GRID", ())
    letters = dict(zip(paths, (*ascii_uppercase, *_FURTHER * len(paths)), strict=False))
    drawn = {rank: letters[path] for rank, path in at.items() if path in letters}
    lines = (_stage(stage, tuple(rows), drawn) for stage, rows in groupby(grid, key=lambda row: row.stage))
    return Section("STACK GRID", (*lines, *_legend(verdict, letters, at, most)))


def _path_of(tree: Sequence[TreeLine]) -> Mapping[int, int]:
    """The innermost line of the tree that each rank is in: those further in come later."""
    return {rank: number for number, line in enumerate(tree) for rank in line.ranks}


def _stage(stage: int | None, rows: Sequence[GridRow], drawn: Mapping[int, str]) -> Item:
    blocks = [(row.replica, "".join(drawn.get(rank, _UNSEEN) for rank in row.ranks)) for row in rows]
    gap = " " if any(len(block) > 1 for _, block in blocks) else ""
    whole = gap.join(block for _, block in blocks)
    marker = "no stage" if stage is None else f"stage {stage}"
    return Item(whole if len(whole) <= _WIDEST else _differing(blocks), marker)


def _differing(blocks: Sequence[tuple[int | None, str]]) -> str:
    usual, count = Counter(block for _, block in blocks).most_common(1)[0]
    others = [f"replica {'?' if number is None else number} {block}" for number, block in blocks if block != usual]
    more = f", +{len(others) - _MOST_OTHERS} more" if len(others) > _MOST_OTHERS else ""
    return ", ".join([*others[:_MOST_OTHERS], f"{count} replicas {usual}"]) + more


def _legend(verdict: Verdict, letters: Mapping[int, str], at: Mapping[int, int], most: int | None) -> Iterator[Item]:
    for path, letter in letters.items():
        if letter == _FURTHER:
            yield Item(f"{len(letters) - len(ascii_uppercase)} further call paths", _FURTHER)
            break
        line, here = verdict.tree[path], [rank for rank, place in at.items() if place == path]
        wait = f"   {line.wait}" if line.wait else ""
        yield Item(f"{len(here)} [{ranks.fold(here, most)}]  {' > '.join(line.frames[-_FRAMES:])}{wait}", letter)
    if verdict.layout and any(rank not in at for row in verdict.layout.grid for rank in row.ranks):
        yield Item("no stack", _UNSEEN)
