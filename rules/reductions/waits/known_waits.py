"""Who waits for whom: waits that recorded calls show, then those of stacks, then those of logs and counters."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace

from forensics.model import Family
from forensics.rules.reductions.calls.positions import Communicator
from forensics.rules.reductions.calls.shim_calls import Calls
from forensics.rules.reductions.interface import reduction
from forensics.rules.reductions.ranks.file_locks import FileLocks
from forensics.rules.reductions.ranks.roster import Roster
from forensics.rules.reductions.stacks.remote_calls import AnswerWaits
from forensics.rules.reductions.stacks.samples import Stacks, StacksByRank
from forensics.rules.reductions.waits.collective_waits import recorded_waits
from forensics.rules.reductions.waits.combined_positions import Positions
from forensics.rules.reductions.waits.device_waits import DeviceWaits
from forensics.rules.reductions.waits.graph import Wait, WaitGraph
from forensics.rules.reductions.waits.messages import MessageWaits
from forensics.rules.reductions.waits.point_to_point import point_to_point_waits
from forensics.rules.reductions.waits.sinks import explained_waits, wait_graph
from forensics.rules.reductions.waits.unrecorded import joined_by_stack, not_whole, unrecorded_wait, waits_by_stack

_LEAST_RANKS = 4
"""Ranks of a job of which one is shown by all others: of fewer, one that was ended early is as likely."""


@reduction
def known_waits(
    calls: Calls,
    placed: Positions,
    roster: Roster,
    samples: StacksByRank,
    messages: MessageWaits,
    devices: DeviceWaits,
    answers: AnswerWaits,
    locks: FileLocks,
) -> WaitGraph:
    """The graph of all waits; what a process that is gone recorded is out of date."""
    ranks, groups = roster.ranks, placed.recorded
    gone = {rank for rank, facts in ranks.items() if facts.ended or facts.heartbeat_gap_ns}
    dumped = {rank for rank, facts in ranks.items() if facts.has_recorder} - (calls.logged - calls.dumped)
    heard = {Family.RECORDER: dumped, Family.SHIM: calls.logged}
    collective = recorded_waits(groups, ranks.keys(), ignore=gone, heard=heard)
    between_two = point_to_point_waits(calls.connection, groups, heard, ignore=gone)
    guessed = {group.label: group.members for group in groups if group.confidence == "assumed"}
    members = {group.label: group.members for group in groups}
    joined = joined_by_stack((*collective, *between_two), roster, samples, members)
    recorded = not_whole(joined, guessed, samples)
    for_locks = [unrecorded_wait(dict.fromkeys(waiting), (owner,)) for owner, waiting in sorted(locks.items())]
    found = (*recorded, *for_locks, *waits_by_stack(recorded, roster, samples, gone, messages | devices, answers))
    reports = reported_waits(placed.reported, roster, samples)
    return wait_graph(explained_waits(found) if calls.logged else found, *reports)


def reported_waits(groups: Sequence[Communicator], ranks: Roster, samples: Mapping[int, Stacks]) -> Iterator[tuple[Wait, ...]]:
    """Waits that only logs and counters tell, of ranks whose own calls and stacks are not here or do not say otherwise.

    From the strongest to the weakest: a watchdog knows what was completed, others count calls only.
    """
    known = {rank for rank, facts in ranks.ranks.items() if facts.recorded or facts.stopped or facts.ended}
    known |= {rank for rank, found in samples.items() if not (found.waits_now or found.below_autograd)}
    units = {group.unit for group in groups}
    for stated in ({"work"}, {"opCount"}, units - {"work", "opCount"}):
        waits = filled(
            recorded_waits([group for group in groups if group.unit in stated], (), ignore=known), groups, ranks.ranks
        )
        yield ended_in(waits, ranks)


def filled(waits: Sequence[Wait], groups: Iterable[Communicator], ranks: Collection[int]) -> tuple[Wait, ...]:
    """The waits that watchdogs tell, with the ranks that must be in an empty place of a group as unheard; `ranks` are all.

    A watchdog shows the numbers of the group it gave up in; the rank that never entered has nothing to give up and says nothing
    of it. Groups of one description (all tensor-parallel groups) share no rank, so an empty place belongs to a rank that is in
    none of the others and waits nowhere. It is filled where it is the only one among groups of its description, and fits as
    many ranks as are left.
    """
    waiting = {rank for wait in waits for rank in wait.waiting}
    unheard: dict[str, tuple[int, ...]] = {}
    for alike in _by_description(groups).values():
        size = max(group.size for group in alike.values())
        spoken = {rank for group in alike.values() for rank in group.positions}
        left = tuple(rank for rank in ranks if rank not in spoken and rank not in waiting)
        holes = [wait for wait in waits if _has_room(alike.get(wait.communicator), size) and not wait.missing]
        if len(holes) == 1 and left and len(left) == size - len(alike[holes[0].communicator].positions):
            unheard[holes[0].communicator] = left
    return tuple(replace(wait, unheard=wait.unheard or unheard.get(wait.communicator, ())) for wait in waits)


def ended_in(waits: Sequence[Wait], ranks: Roster) -> tuple[Wait, ...]:
    """The waits that lack nobody, with the one rank of the job that did not give up as unheard.

    Whoever the others lack gave up elsewhere. Its own log is of the same run. Watchdogs end their processes one after another:
    of several that say nothing most were ended before they came to it.
    """
    silent = [rank for rank, facts in ranks.ranks.items() if not facts.timed_out]
    if (
        len(silent) != 1
        or len(ranks.ranks) < _LEAST_RANKS
        or not ranks.rank(silent[0]).of_the_run
        or any(not ranks.rank(rank).timed_out for wait in waits for rank in wait.missing)
    ):
        return tuple(waits)
    inside = any(silent[0] in wait.waiting for wait in waits)
    return tuple(wait if inside or wait.missing else replace(wait, unheard=tuple(silent)) for wait in waits)


def _has_room(group: Communicator | None, size: int) -> bool:
    return group is not None and len(group.positions) < size


def _by_description(groups: Iterable[Communicator]) -> dict[str, dict[str, Communicator]]:
    """Groups by what their creator called them; those that it gave no name do not tell what they are for."""
    found: dict[str, dict[str, Communicator]] = defaultdict(dict)
    for group in groups:
        _, _, description = group.label.partition(":")
        if group.unit == "work" and description not in ("", "undefined", "default_pg"):
            found[description][group.label] = group
    return found
