"""All ranks' stacks merged into one prefix tree whose branches carry rank sets (LLNL STAT; unary chains folded)."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

from forensics.model import TreeLine, WaitKind
from forensics.rules.reductions.stacks.activity import Activity

# Three in one place for each one that is elsewhere: with fewer it is a matter of taste who stands apart.
_MANY_FOR_EACH = 3
_UNCLEAR = frozenset({WaitKind.UNKNOWN, WaitKind.LOCK})
_FOR_OTHERS = frozenset({WaitKind.COLLECTIVE, WaitKind.POINT_TO_POINT, WaitKind.STORE})
_MAY_BE_FOR_OTHERS = _FOR_OTHERS | {WaitKind.DEVICE}


@dataclass(slots=True)
class _Node:
    ranks: list[int] = field(default_factory=list)
    children: dict[str, _Node] = field(default_factory=dict)
    wait: WaitKind | None = None


def stack_tree(activities: Mapping[int, Activity]) -> tuple[TreeLine, ...]:
    """Merge one activity a rank; outermost frames first, the largest branch first, ties by the lowest rank."""
    root = _Node()
    for rank, found in sorted(activities.items()):
        node = root
        for entry in _shown(found):
            node = node.children.setdefault(entry, _Node())
            node.ranks.append(rank)
        node.wait = found.wait
    return tuple(_lines(root, depth=0))


def known_to_wait(latest: Mapping[int, Activity], waiting: Collection[int]) -> dict[int, Activity]:
    """Newest activity of each rank; a native wait of one that is known to wait for others is shown as what it is."""
    unclear = {rank: found for rank, found in latest.items() if found.wait in _UNCLEAR and rank in waiting}
    return {**latest, **{rank: replace(found, wait=WaitKind.COLLECTIVE) for rank, found in unclear.items()}}


def apart(tree: Sequence[TreeLine]) -> tuple[TreeLine, TreeLine] | None:
    """The one leaf that few ranks are in while all the others are in one other leaf, and that other leaf.

    Few that wait for others, while these do something else, are no place at which anything begins.
    """
    leaves = [line for line in tree if line.wait is not None]
    if len(leaves) != 2:
        return None
    many, few = sorted(leaves, key=lambda line: -len(line.ranks))
    if few.wait in _FOR_OTHERS and many.wait not in _MAY_BE_FOR_OTHERS:
        return None
    return (few, many) if len(few.ranks) * _MANY_FOR_EACH <= len(many.ranks) else None


def _shown(found: Activity) -> list[str]:
    """Frames worth a place in the tree, outermost first: the job's own, and the ones that stated stage and wait."""
    telling = (found.stage_frame, found.call_frame)
    keep = [entry for entry in found.path if entry.origin == "app" or entry in telling]
    if found.path and found.path[0] not in keep:
        keep.insert(0, found.path[0])
    return [str(entry) for entry in reversed(keep)] or ["(no Python frames)"]


def _lines(node: _Node, depth: int) -> Iterator[TreeLine]:
    ordered = sorted(node.children.items(), key=lambda item: (-len(item[1].ranks), item[1].ranks[0], item[0]))
    for name, child in ordered:
        frames = [name]
        while len(child.children) == 1 and child.wait is None:
            ((name, child),) = child.children.items()
            frames.append(name)
        leaf = child.wait if not child.children else None
        yield TreeLine(depth, tuple(child.ranks), tuple(frames), leaf)
        yield from _lines(child, depth + 1)
