"""The wait-for graph: which rank waits for which, over all communicators, and who waits for nobody.

A rank with a pending operation waits for the members that have not entered it. The graph has one node for a rank and one for
an operation somebody waits in (communicator, sequence), so that its size grows with the sum of the group sizes, not with
their squares. A root is a sink of the graph of strongly connected components: a rank that waits for nobody, a cycle, or an
operation that everyone entered and nobody finished. What only logs or counters tell (`reported`) adds to what calls and stacks
record and never turns it over. (VenusTrace section 4.2, incomplete graph; MegaTrace Algorithm 1: first incomplete node, then
the missing call.)
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum

from forensics.model import Family
from forensics.rules.reductions.calls.positions import DIRECT, Operation


class RootKind(StrEnum):
    """What the sink of a chain of waits is."""

    FREE = "free"
    CYCLE = "cycle"
    ALL_JOINED = "all_joined"
    INVERTED = "inverted"


@dataclass(frozen=True, slots=True, eq=False)
class Wait:
    """One operation somebody waits in: who waits (with the operation's facts) and for whom. Equal to itself only.

    `absent` are members known not to have entered; `unheard` are members without recorder evidence, or whose dump was cut
    before it, filled only when no known member is absent; `elsewhere` are those of them that left a record of another kind,
    which names and counts the operation differently. `assumed` are ranks outside the inferred membership that may belong
    to the group: used when membership was inferred from the very ranks that wait, or from records that some rank lacks.
    `peers` are sender and receiver of a point-to-point call. `queued` are members that issued it behind an earlier operation
    of the same communicator that they are still in. `left` came out of it: all have entered, and nothing shows whether the
    `unended` came out. `families` says what shows where a member stands; `nameless` are processes of unknown rank, that wait
    in it and that are missing; `overdue`: its source speaks of it because a limit has passed. `lost` are members that had
    issued it, and are missing because their processes ended.
    """

    communicator: str
    sequence: int
    waiting: Mapping[int, Operation | None]
    absent: tuple[int, ...]
    unheard: tuple[int, ...] = ()
    assumed: tuple[int, ...] = ()
    peers: tuple[int, int] | None = None
    queued: tuple[int, ...] = ()
    left: tuple[int, ...] = ()
    unended: tuple[int, ...] = ()
    elsewhere: tuple[int, ...] = ()
    families: Mapping[int, Family] = field(default_factory=dict)
    nameless: tuple[tuple[str, ...], tuple[str, ...]] = ((), ())
    overdue: bool = False
    lost: tuple[int, ...] = ()

    @property
    def recorded(self) -> bool:
        """Whether the calls or the stack of some rank show that it waits here."""
        return any(self.families.get(rank, Family.RECORDER) in DIRECT for rank in self.waiting)

    @property
    def is_counted(self) -> bool:
        """Whether nothing but counters of dumps that hold no calls show who waits here."""
        of_recorders = all(self.families.get(rank, Family.RECORDER) is Family.RECORDER for rank in self.waiting)
        return of_recorders and not any(self.waiting.values())

    def records(self, rank: int) -> bool:
        """Whether what was recorded, of the rank itself or for want of it by its peers, says that it is missing here."""
        if rank in self.absent:
            return self.families.get(rank, Family.RECORDER) in DIRECT
        return self.recorded and rank in self.missing

    @property
    def missing(self) -> tuple[int, ...]:
        """Everyone who is waited for, whatever the strength of the evidence."""
        return self.absent or self.unheard or self.assumed

    @property
    def since_ns(self) -> int | None:
        """When the first of the waiting ranks issued the operation."""
        return min((op.enqueued_ns for op in self.waiting.values() if op and op.enqueued_ns is not None), default=None)


@dataclass(frozen=True, slots=True)
class Root:
    """A sink: its ranks, and the waits that end in it (directly).

    `INVERTED` are operations that all members entered, in orders that contradict each other: each is behind another of them on
    some rank. `ALL_JOINED` is one such operation, or several that group calls of their members tie together. `reported` are
    roots that only logs or counters show.
    """

    kind: RootKind
    ranks: tuple[int, ...]
    waits: tuple[Wait, ...]
    reported: bool = False


@dataclass(frozen=True, slots=True)
class WaitGraph:
    """All waits, the sinks by what shows them, for each waiting rank whom it waits for directly, and what lacks each rank."""

    waits: tuple[Wait, ...]
    roots: tuple[Root, ...]
    waits_for: Mapping[int, tuple[int, ...]]
    reported_roots: tuple[Root, ...] = ()
    lacking: Mapping[int, tuple[Wait, ...]] = field(default_factory=dict)

    @property
    def recorded(self) -> tuple[Wait, ...]:
        """Waits that calls or stacks show."""
        return tuple(wait for wait in self.waits if wait.recorded)

    @property
    def free_roots(self) -> tuple[Root, ...]:
        """Sinks that are a single rank, in the order of ranks."""
        return tuple(root for root in self.roots if root.kind is RootKind.FREE)

    def waiting_for(self, rank: int) -> tuple[Wait, ...]:
        """Waits in which `rank` is missing."""
        return self.lacking.get(rank, ())

    def waiters(self, rank: int) -> tuple[int, ...]:
        """Ranks that wait for `rank`, directly or through others."""
        reached, frontier = set[int](), {rank}
        while frontier:
            frontier = {r for r, whom in self.waits_for.items() if r not in reached and not frontier.isdisjoint(whom)} - {rank}
            reached |= frontier
        return tuple(sorted(reached))

    def awaited(self, rank: int) -> frozenset[int]:
        """Ranks that `rank` waits for, directly or through others."""
        reached, frontier = set[int](), {rank}
        while frontier:
            frontier = {other for one in frontier for other in self.waits_for.get(one, ())} - reached
            reached |= frontier
        return frozenset(reached)
