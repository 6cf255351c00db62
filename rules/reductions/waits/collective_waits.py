"""Waits that positions show: who is in an operation of a communicator, and which members have not entered it."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace

from forensics.model import Family
from forensics.rules.reductions.calls.positions import Communicator, Operation, Position
from forensics.rules.reductions.calls.semantics import is_meeting
from forensics.rules.reductions.waits.completions import HOST_BACKENDS
from forensics.rules.reductions.waits.graph import Wait

Heard = Mapping[Family, Collection[int]]
"""Ranks of whose calls each family tells."""


def recorded_waits(
    groups: Sequence[Communicator], world: Collection[int], ignore: Collection[int] = (), heard: Heard | None = None
) -> tuple[Wait, ...]:
    """Build the waits that positions show; `ignore` are ranks whose positions are out of date: their processes are gone."""
    found: list[Wait] = []
    stated = {rank for ranks in (heard or {}).values() for rank in ranks}
    unseen = [rank for rank in sorted(world) if rank not in stated] if stated else []
    for group in groups:
        pending = [p for p in group.pending if p.rank not in ignore]
        others = {entered for entered in group.nameless.values() if entered > group.least}
        sequences = sorted(others.union(p.pending for p in pending if p.pending is not None))
        found.extend(_wait(group, sequence, pending, world, (unseen, ignore)) for sequence in sequences)
    kept = (without_other_records(wait, heard or {}) for wait in found)
    return tuple(wait for wait in kept if wait is not None)


def without_other_records(wait: Wait, heard: Heard) -> Wait | None:
    """The wait in a call of shim logs without members that only a dump tells of; None when nothing is left to wait for.

    What such a member did in this communicator is in its dump, under another name and other numbers. In a call of dumps those
    that only a shim log tells of stay, for somebody is inside it: they are `elsewhere`.
    """
    own = Family.SHIM if Family.SHIM in wait.families.values() else Family.RECORDER
    other = Family.RECORDER if own is Family.SHIM else Family.SHIM
    elsewhere = set(heard.get(other, ())) - set(heard.get(own, ()))
    if elsewhere.isdisjoint(wait.unheard):
        return wait
    if own is Family.RECORDER:
        return replace(wait, elsewhere=tuple(rank for rank in wait.unheard if rank in elsewhere))
    unheard = tuple(rank for rank in wait.unheard if rank not in elsewhere)
    return replace(wait, unheard=unheard) if unheard else None


def _wait(
    group: Communicator,
    sequence: int,
    pending: Sequence[Position],
    world: Collection[int],
    lost: tuple[Collection[int], Collection[int]],
) -> Wait:
    """The wait in one call; `lost` are ranks that nothing is known of, and those whose processes are gone."""
    unseen, gone = lost
    waiting = {p.rank: p.operation for p in pending if p.pending == sequence}
    behind = [r for r in group.members if r in group.positions and group.positions[r].entered < sequence]
    early = _early(group, behind, [p for p in pending if p.pending == sequence])
    left = _left(group, sequence, waiting)
    absent = [r for r in behind if r not in group.cut and r not in early] if not left else []
    # Whoever had issued the call when its process ended had a device and connections that ended with it.
    cut_off = {r for r in gone if r in group.positions and group.positions[r].done < sequence} if waiting else set()
    known = group.positions.keys() - behind - cut_off
    unheard = [] if absent or left else [r for r in group.members if r not in known]
    is_whole = group.confidence != "assumed" or absent or unheard or left or behind
    assumed = [] if is_whole else _assumed(group, set(waiting), world, unseen)
    queued = tuple(p.rank for p in pending if p.pending is not None and p.pending < sequence <= p.entered)
    known_at = {*waiting, *group.finished(sequence), *queued}
    families = {r: group.positions[r].family for r in (*waiting, *absent)}
    return Wait(
        group.label, sequence, waiting, tuple(absent), tuple(unheard), tuple(assumed), queued=queued, left=left,
        families=families, nameless=_nameless(group, sequence), overdue=group.overdue,
        lost=tuple(rank for rank in unheard if rank in cut_off and rank not in behind),
        unended=tuple(rank for rank in group.members if rank not in known_at) if left else (),
    )  # fmt: skip


def _assumed(group: Communicator, waiting: set[int], world: Collection[int], unseen: Collection[int]) -> list[int]:
    """Ranks that may be members: all, or those without any record once a call had completed, which it did with all members."""
    if group.family is Family.RECORDER and any(position.done for position in group.positions.values()):
        return [rank for rank in unseen if rank not in group.members]
    return [rank for rank in sorted(world) if rank not in group.members] if waiting == set(group.members) else []


def _left(group: Communicator, sequence: int, waiting: Mapping[int, Operation | None]) -> tuple[int, ...]:
    """Members that came out of the operation, where that proves that all have entered it; a shim log sees hosts only.

    Back ends that run on the host also come out of it when a member dies: the recorder does not tell an error from an end.
    """
    if group.backend in HOST_BACKENDS or not is_meeting(operation.kind for operation in waiting.values() if operation):
        return ()
    finished = (rank for rank in group.finished(sequence) if rank not in waiting and rank not in group.cut)
    return tuple(rank for rank in finished if group.positions[rank].family is Family.RECORDER)


def _nameless(group: Communicator, sequence: int) -> tuple[tuple[str, ...], tuple[str, ...]]:
    inside = tuple(process for process, entered in group.nameless.items() if entered == sequence)
    return inside, tuple(process for process, entered in group.nameless.items() if entered < sequence)


def _early(group: Communicator, behind: Collection[int], waiting: Sequence[Position]) -> set[int]:
    """Ranks last seen before the first of the others issued the operation: nothing shows whether they followed.

    A log shows when it saw a rank wait, which may be long after the call: of a dump that is older than that nothing is known.
    """
    issued = [p.operation.enqueued_ns for p in waiting if p.operation and p.operation.enqueued_ns]
    seen = issued or [p.time_ns for p in waiting if p.time_ns is not None]
    found = set()
    for rank in behind if seen else ():
        position = group.positions[rank]
        taken = group.captured.get(rank) if position.time_ns is None else position.time_ns
        if taken is not None and taken < min(seen) and (issued or position.family is not Family.LOG):
            found.add(rank)
    return found
