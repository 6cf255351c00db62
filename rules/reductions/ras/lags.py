"""Who launched fewer collectives than its peers, by NCCL RAS, and waits for nobody itself.

Ranks that launched an operation wait for those that have not. A rank may be behind in one communicator because it waits in
another one: only sinks of these waits are roots, as in the wait-for graph of the recorder.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from forensics.rules.reductions.ras.report import Process, Ras, RasGroup, RasMember
from forensics.rules.reductions.waits.graph import Wait, wait_graph

_SETTLED = frozenset({None, "running", "dead", "unresponsive"})


@dataclass(frozen=True, slots=True)
class Lag:
    """One member that is behind in one kind of collective: what it launched, what most others did, and how many of them."""

    process: Process
    group: RasGroup
    member: RasMember
    kind: str
    launched: int
    usual: int


@dataclass(frozen=True, slots=True)
class Lags:
    """`roots` by process: where it is behind. `mixed` are members that are behind in one kind and ahead in another.

    `ambiguous` says that a root may wait after all, in a set of ranks that the report does not name.
    """

    roots: dict[Process, tuple[Lag, ...]]
    mixed: tuple[tuple[RasGroup, RasMember], ...]
    ambiguous: bool


def lags(ras: Ras) -> Lags:
    """Find the roots among the ranks that are behind; those that moved between two looks are no evidence."""
    groups = [group for group in ras.groups if _is_settled(group)]
    mixed = tuple((group, member) for group in groups for member in group.members if _mixed(group, member))
    sound = [group for group in groups if all(group is not other for other, _ in mixed)]
    processes = sorted({member.process for group in sound for member in group.members if member.process})
    numbers = {process: number for number, process in enumerate(processes)}
    waits = [wait for group in sound for wait in _waits(group, numbers)]
    free = {processes[root.ranks[0]] for root in wait_graph(waits).free_roots}
    moved = {member.process for group in ras.groups for member in group.members if member.moved}
    behind = [lag for group in sound for lag in _behind(group)]
    roots = {
        process: tuple(lag for lag in behind if lag.process == process and (lag.member.still or ras.looks < 2))
        for process in sorted(free - moved)
    }
    kept = {process: found for process, found in roots.items() if found}
    return Lags(kept, mixed, any(_may_wait(group, process) for process in kept for group in sound))


def _is_settled(group: RasGroup) -> bool:
    """Whether nobody creates, leaves or aborts the communicator: ranks that do differ for good reasons."""
    return all(member.status in _SETTLED for member in group.members)


def _mixed(group: RasGroup, member: RasMember) -> bool:
    """Whether it launched more of one kind and less of another than most: another operation, not a late one."""
    signs = {member.counts[kind] > usual for kind, usual in group.usual.items() if member.counts.get(kind, usual) != usual}
    return len(signs) == 2


def _behind(group: RasGroup) -> Iterator[Lag]:
    for kind, usual in group.usual.items():
        top = max((usual, *(member.counts.get(kind, 0) for member in group.members)))
        for member in group.members:
            launched = member.counts.get(kind)
            if launched is not None and launched < top and member.process:
                yield Lag(member.process, group, member, kind, launched, top)


def _waits(group: RasGroup, numbers: dict[Process, int]) -> Iterator[Wait]:
    """One wait for each count above the least: those that have just this count wait for those with less."""
    for kind in group.usual:
        counts = {numbers[m.process]: m.counts[kind] for m in group.members if m.process and kind in m.counts}
        values = {*counts.values(), *(value for folded, value in group.unnamed if folded == kind)}
        for value in sorted(values)[1:]:
            waiting = {number: None for number, count in counts.items() if count == value}
            less = tuple(number for number, count in counts.items() if count < value)
            yield Wait(f"{group.communicator} {kind}", value, waiting, less)


def _may_wait(group: RasGroup, process: Process) -> bool:
    """Whether the rank may be in a set without names that differs from others: then it may wait there for somebody else."""
    own = next((member.counts for member in group.members if member.process == process), {})
    differing = {kind for kind, usual in group.usual.items() for m in group.members if m.counts.get(kind, usual) != usual}
    return any(kind in differing and kind not in own for kind, _ in group.unnamed)
