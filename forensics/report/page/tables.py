"""Parts of the page that are tables: items of the report, the stack prefix tree, coverage."""

from __future__ import annotations

from collections.abc import Iterable

from forensics.model import CoverageRow, TreeLine, Verdict
from forensics.report import coverage, ranks, stack_tree, suspects
from forensics.report.markup import Markup, join, tag
from forensics.report.section import Item

MOST_ROWS = 200
"""Rows of one table; the rest is counted."""
_OPEN_ROWS = 20
_DEEPEST = 24
_SHORT = 36


def items(entries: Iterable[Item], is_grid: bool = False) -> Markup:
    """One row an item: its marker, what it says, where that was read; in a grid, letters of all rows stand below each other."""
    return rows([_item(item, "wide frames" if is_grid else "wide") for item in entries])


def rows(lines: list[Markup], head: Markup | None = None) -> Markup:
    """A table whose rows after the first ones are folded."""
    shown, folded = lines[:_OPEN_ROWS], lines[_OPEN_ROWS:]
    table = tag("table", *([head] if head else []), *shown)
    if not folded:
        return table
    rest = tag("table", *([head] if head else []), *folded)
    return join((table, tag("details", tag("summary", f"{len(folded)} more rows"), rest)))


def _item(item: Item, kind: str) -> Markup:
    source = [tag("div", item.source, class_="source")] if item.source else []
    return tag("tr", _marker(item.marker.strip()), tag("td", item.text, *source, class_=kind))


def _marker(shown: str) -> Markup:
    """The cell that leads a row; only a long one is broken."""
    return tag("td", shown, class_="marker" if len(shown) > _SHORT else "marker short")


def tree(verdict: Verdict, all_ranks: bool) -> Markup:
    """The merged stacks, the outermost frames first: a row a branch, indented by its depth, with the share of the ranks."""
    accused = set(verdict.suspects[0].ranks) if verdict.suspects else set()
    total = verdict.world_size or len({rank for line in verdict.tree for rank in line.ranks})
    most = None if all_ranks else ranks.MOST_RANGES
    leaves = stack_tree.leaves(verdict.tree)
    chosen = list(zip(verdict.tree, leaves, strict=True))
    if not all_ranks:
        chosen = chosen[:MOST_ROWS]
    lines = [_branch(line, leaf and bool(line.ranks) and accused.issuperset(line.ranks), total, most) for line, leaf in chosen]
    left = len(verdict.tree) - len(chosen)
    note = [tag("p", f"(+{left} more branches, --all-ranks)", class_="note")] if left else []
    return join((rows(lines, _heads("ranks", "", "stack", "waits for")), *note))


def _heads(*names: str) -> Markup:
    return tag("tr", *(tag("th", name) for name in names))


def _branch(line: TreeLine, is_suspect: bool, total: int, most: int | None) -> Markup:
    count = len(set(line.ranks))
    depth = min(line.depth, _DEEPEST)
    deeper = f"(depth {line.depth}) " if line.depth > _DEEPEST else ""
    frames = tag("td", deeper + " > ".join(line.frames), class_="frames", style=f"padding-left:{1.2 * depth:.1f}rem")
    who = _marker(ranks.fold(line.ranks, most) + (" (suspect)" if is_suspect else ""))
    share = tag("td", bar(count, 0, max(total, count)), f" {count}/{max(total, count)}", class_="share")
    return tag("tr", who, share, frames, _marker(suspects.words(line.wait or "")), class_="accused" if is_suspect else None)


def bar(whole: int, part: int, total: int) -> Markup:
    """A bar of `total`: so many whole, so many in part, the rest absent."""
    parts = ((whole, None), (part, "partial"))
    filled = [tag("i", class_=name, style=f"width:{100 * count / max(total, 1):.1f}%") for count, name in parts if count]
    return tag("span", *filled, class_="bar")


def covered(verdict: Verdict, all_ranks: bool) -> Markup:
    """Evidence by kind: what share of the ranks or hosts has it, and why the others have not; then what nobody looked at."""
    said = list(coverage.rows(verdict, None if all_ranks else ranks.MOST_RANGES))
    shown = [_covered(row, words) for row, (_, words) in zip(verdict.coverage, said, strict=False)]
    unchecked = items(Item(words, marker) for marker, words in said[len(verdict.coverage) :])
    return join((rows(shown), unchecked) if shown else (unchecked,))


def _covered(row: CoverageRow, words: str) -> Markup:
    total = len(row.present) + len(row.partial) + len(row.absent)
    share = bar(len(row.present), len(row.partial), total)
    return tag("tr", _marker(row.kind), tag("td", share, class_="share"), tag("td", words, class_="wide"))
