"""The merged stacks of all ranks as the branches of a tree, in ASCII."""

from __future__ import annotations

from collections.abc import Sequence

from forensics.model import TreeLine
from forensics.report import ranks

_DEEPEST = 12
"""Branches drawn beside each other; deeper lines say their depth, so that the text keeps its width."""


def branches(tree: Sequence[TreeLine]) -> list[str]:
    """The drawing before each line of a tree in depth-first order: `|- `, or a backtick for the last branch."""
    drawn: list[str] = []
    open_depths: set[int] = set()
    for line in reversed(tree):
        drawn.append(_branch(line.depth, open_depths))
        open_depths = {depth for depth in open_depths if depth < line.depth} | {line.depth}
    return drawn[::-1]


def label(line: TreeLine, world_size: int | None, most: int | None) -> str:
    """`3/4 [0-1,3]  train_step (hang.py:11) > backward   collective_wait`."""
    of = f"/{world_size}" if world_size else ""
    wait = f"   {line.wait}" if line.wait else ""
    return f"{len(set(line.ranks))}{of} [{ranks.fold(line.ranks, most)}]  {' > '.join(line.frames)}{wait}"


def leaves(tree: Sequence[TreeLine]) -> list[bool]:
    """Whether each line is the innermost of its branch."""
    following = [*(line.depth for line in tree[1:]), -1]
    return [depth <= line.depth for line, depth in zip(tree, following, strict=False)]


def _branch(depth: int, open_depths: set[int]) -> str:
    if depth <= 0:
        return ""
    if depth > _DEEPEST:
        return f"(depth {depth}) "
    bars = "".join("|  " if level in open_depths else "   " for level in range(1, depth))
    return bars + ("|- " if depth in open_depths else "`- ")
