"""Operations of several communicators that all members entered and nobody finished: do their kernels wait for each other?

A collective holds its place on the device from its launch until all members run it too. Two communicators that share ranks
deadlock when one rank's device took them in one order and another's in the other, and there is no room, or no stream, to run
both (NCCL user guide, "Using multiple NCCL communicators concurrently"). What is recorded is the order of enqueueing, and with
timing on what the device has begun.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import combinations
from typing import NewType

from forensics.model import Family
from forensics.rules.reductions.calls.positions import Communicators, labelled
from forensics.rules.reductions.interface import reduction
from forensics.rules.reductions.waits.completions import HOST_BACKENDS
from forensics.rules.reductions.waits.graph import Root, RootKind, Wait, WaitGraph


@dataclass(frozen=True, slots=True)
class OrderInversion:
    """Waits of at least two communicators, and the ranks that are members of two of them.

    `order` says what shows it: `enqueued` or `started` (in opposite orders), or `overlap` (both run, none ends).
    """

    waits: tuple[Wait, ...]
    ranks: tuple[int, ...]
    order: str


OrderInversions = NewType("OrderInversions", tuple[OrderInversion, ...])
"""Operations that wait for each other on the devices."""


@reduction
def order_inversions(groups: Communicators, graph: WaitGraph) -> OrderInversions:
    """Find them: first contradicting orders of enqueueing, then what the devices have begun."""
    enqueued = tuple(_of_root(root) for root in graph.roots if is_order_inversion(groups, root))
    known = {(wait.communicator, wait.sequence) for found in enqueued for wait in found.waits}
    joined = [wait for wait in _joined(groups, graph) if (wait.communicator, wait.sequence) not in known]
    return OrderInversions((*enqueued, *_begun(joined)))


def is_order_inversion(groups: Communicators, root: Root) -> bool:
    """Whether a root is a launch-order inversion of device communicators: several of them, and no member is out of any."""
    labels = {wait.communicator for wait in root.waits}
    return root.kind is RootKind.INVERTED and len(labels) > 1 and all(_unfinished(groups, wait) for wait in root.waits)


def _of_root(root: Root) -> OrderInversion:
    return OrderInversion(root.waits, _shared(root.waits), "enqueued")


def _shared(waits: tuple[Wait, ...]) -> tuple[int, ...]:
    """Ranks that take part in operations of at least two of the communicators."""
    where: dict[int, set[str]] = defaultdict(set)
    for wait in waits:
        for rank in (*wait.waiting, *wait.queued):
            where[rank].add(wait.communicator)
    return tuple(sorted(rank for rank, labels in where.items() if len(labels) > 1))


def _joined(groups: Communicators, graph: WaitGraph) -> Iterator[Wait]:
    for wait in graph.waits:
        if wait.communicator and not wait.missing and not wait.peers and _unfinished(groups, wait):
            yield wait


def _unfinished(groups: Communicators, wait: Wait) -> bool:
    """Whether it runs on devices and nobody is out of it: a collective that one member finished ran on all of them."""
    group = labelled(groups, wait.communicator)
    if group is None or group.backend in HOST_BACKENDS:
        return False
    return bool(wait.peers) or not set(group.finished(wait.sequence)) - set(wait.waiting)


def _begun(waits: list[Wait]) -> Iterator[OrderInversion]:
    """Pairs of joined operations that share at least two ranks, as far as the devices tell what they have begun."""
    of_rank: dict[int, list[int]] = defaultdict(list)
    for index, wait in enumerate(waits):
        for rank in wait.waiting:
            of_rank[rank].append(index)
    pairs = sorted({pair for found in of_rank.values() for pair in combinations(found, 2)})
    for one, two in ((waits[a], waits[b]) for a, b in pairs):
        shared = tuple(sorted(rank for rank in set(one.waiting) & set(two.waiting) if _is_one_record(rank, one, two)))
        order = _device_order(_started(one), _started(two), shared) if len(shared) > 1 else None
        if order and one.communicator != two.communicator:
            yield OrderInversion((one, two), shared, order)


def _is_one_record(rank: int, one: Wait, two: Wait) -> bool:
    """Whether one source tells of both calls of a rank: what began is seen at another moment by a recorder than by a shim."""
    return one.families.get(rank, Family.RECORDER) is two.families.get(rank, Family.RECORDER)


def _started(wait: Wait) -> Mapping[int, bool]:
    return {rank: operation is not None and operation.started for rank, operation in wait.waiting.items()}


def _device_order(one: Mapping[int, bool], two: Mapping[int, bool], shared: tuple[int, ...]) -> str | None:
    only_one = any(one[rank] and not two[rank] for rank in shared)
    only_two = any(two[rank] and not one[rank] for rank in shared)
    if only_one and only_two:
        return "started"
    return "overlap" if all(one[rank] and two[rank] for rank in shared) else None
