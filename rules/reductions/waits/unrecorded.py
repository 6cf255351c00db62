"""Waits that no recorder describes and only stacks show: gloo's point-to-point calls, rendezvous, ranks without a dump."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace

from forensics.model import Family, WaitKind
from forensics.rules.reductions.calls.positions import Operation
from forensics.rules.reductions.calls.semantics import stem_of
from forensics.rules.reductions.ranks.roster import Roster
from forensics.rules.reductions.stacks.activity import Activity
from forensics.rules.reductions.stacks.call_paths import CallPath
from forensics.rules.reductions.stacks.samples import Stacks
from forensics.rules.reductions.waits.graph import Wait, WaitGraph


def unrecorded_wait(waiting: Mapping[int, Operation | None], free: Iterable[int]) -> Wait:
    """Build the wait of ranks whose stacks show a collective that no recorder described; `free` are ranks that are in none."""
    return Wait("", 0, dict(waiting), (), tuple(sorted(free)), families=dict.fromkeys(waiting, Family.STACK))


def joined_by_stack(
    waits: Sequence[Wait], ranks: Roster, samples: Mapping[int, Stacks], members: Mapping[str, Collection[int]]
) -> tuple[Wait, ...]:
    """Count a member without a dump as waiting too, where its stack is inside the very call that it is missing in.

    So is one that stands on the very line, and sleeps in the same way, as members that are recorded to wait in it: a wait for a
    device leaves no frame of its own. A stopped process is not waiting, wherever its stack stands. Where somebody is known not
    to have entered, `members` of the communicator whose record is cut stand where they do all the same.
    """
    running = {rank: found for rank, found in samples.items() if not ranks.rank(rank).stopped}
    cut = {rank for rank in running if not ranks.rank(rank).recorded}
    joined = (_joined(wait, running) if wait.unheard else wait for wait in waits)
    return tuple(_beside(wait, running, cut.intersection(members.get(wait.communicator, ()))) for wait in joined)


def _joined(wait: Wait, samples: Mapping[int, Stacks]) -> Wait:
    kinds = {stem_of(operation.kind) for operation in wait.waiting.values() if operation}
    beside = _recorded(wait, samples)
    inside = [rank for rank in wait.unheard if rank in samples and _is_inside(samples[rank], kinds, beside)]
    waiting = {**wait.waiting, **dict.fromkeys(inside)}
    return replace(wait, waiting=waiting, unheard=tuple(rank for rank in wait.unheard if rank not in inside))


def _beside(wait: Wait, samples: Mapping[int, Stacks], cut: Collection[int]) -> Wait:
    """With the members among those whose record is `cut` that stand where recorded ones wait."""
    known = {*wait.waiting, *wait.absent, *wait.unheard, *wait.queued, *wait.left, *wait.unended, *wait.lost}
    if wait.peers or not wait.absent or not (open_ := [rank for rank in sorted(cut) if rank not in known]):
        return wait
    beside = _recorded(wait, samples)
    return replace(wait, waiting={**wait.waiting, **{r: None for r in open_ if _on_the_line(samples[r], beside)}})


def _recorded(wait: Wait, samples: Mapping[int, Stacks]) -> list[Stacks]:
    return [samples[rank] for rank, operation in wait.waiting.items() if operation and rank in samples]


def _on_the_line(found: Stacks, beside: Sequence[Stacks]) -> bool:
    places = _places(found)
    return bool(places) and places <= {place for other in beside for place in _places(other)}


def _is_inside(found: Stacks, kinds: Collection[str], beside: Sequence[Stacks]) -> bool:
    """Whether a stack is of a rank in a call of these kinds; `beside` are those of the ranks recorded to wait in it.

    Below the autograd engine no frame shows a call: nobody is in one there that the others, who run the same program, all made
    elsewhere or have left for a later place.
    """
    if _on_the_line(found, beside):
        return True
    apart = found.below_autograd and bool(beside) and not any(other.below_autograd for other in beside)
    return collective_of(found) in kinds and not apart


def not_whole(waits: Sequence[Wait], guessed: Mapping[str, Collection[int]], samples: Mapping[int, Stacks]) -> tuple[Wait, ...]:
    """The waits, with ranks that are still at a store as those that may be missing; `guessed` are members that only calls tell.

    A group that somebody is still making has members that made no call in it; and numbers name several groups where each rank
    makes its own ones only.
    """
    at_store = [rank for rank, found in sorted(samples.items()) if found.in_store_now]
    return tuple(
        replace(wait, assumed=tuple(rank for rank in at_store if rank not in guessed[wait.communicator]))
        if wait.communicator in guessed and not (wait.missing or wait.peers)
        else wait
        for wait in waits
    )


def _places(found: Stacks) -> set[tuple[CallPath, WaitKind]]:
    """Where the main thread of a rank was in its samples, and how it slept there."""
    return {(sample.activity.python_path, sample.activity.wait) for sample in found.main}


def collective_of(found: Stacks) -> str | None:
    """The collective that every sample of a rank was in; hooks below the autograd engine reduce gradients.

    A function of a library that communicates, and whose name shows no collective, is a call of its own.
    """
    calls = {"all_reduce" if sample.activity.below_autograd else _collective(sample.activity) for sample in found.main}
    call = calls.pop() if len(calls) == 1 else ""
    return None if call in ("", "send", "recv") else call


def call_of(found: Stacks) -> str | None:
    """Name the collective and how the job came to it; a hook below the autograd engine has no line of its own."""
    kind, newest = collective_of(found), found.latest
    if kind is None or newest is None:
        return None
    own = " < ".join(str(entry) for entry in newest.path if entry.origin == "app")
    return f"{kind} at {own}" if own and not newest.below_autograd else kind


def _collective(activity: Activity) -> str:
    if activity.call_frame is None:
        return ""
    name = activity.call_frame.function
    return stem_of(name) or (name if activity.wait is WaitKind.COLLECTIVE else "")


def waits_by_stack(
    waits: Sequence[Wait],
    ranks: Roster,
    samples: Mapping[int, Stacks],
    gone: Collection[int],
    messages: Collection[int],
    answers: Collection[int] = (),
) -> Iterator[Wait]:
    """Build the waits of ranks that stacks show in communication or in a store, and that no recorded wait explains.

    `messages` are ranks that may wait for a message, `answers` those that wait for the answer to a remote call. All wait for
    ranks that are busy elsewhere; where nobody is, for those inside recorded operations: one owes the answer.
    """
    explained = {rank for wait in waits for rank in wait.waiting}
    sure, perhaps = _unexplained(ranks, samples, {*explained, *gone}, messages)
    sure, perhaps = sure | {*answers} - {*explained, *gone}, perhaps - {*answers}
    elsewhere = set(ranks.ranks) - explained - sure - perhaps
    if all(ranks.rank(rank).unseen for rank in elsewhere) and not sure:
        # Where nobody is seen elsewhere, whoever perhaps waits has company in that, and owes nobody anything. One whose record
        # lacks a call that others wait in is in no collective, or that would be in its record: it waits for no rank unseen.
        perhaps -= {rank for wait in waits for rank in wait.absent} if elsewhere else perhaps
    waiting = sure | perhaps
    others = set(ranks.ranks) - explained - waiting
    busy = {rank for rank in others if not ranks.rank(rank).unseen} or others or explained
    store = {rank for rank in waiting if samples[rank].in_store_now}
    messages_to = _messages(ranks, samples, waiting - store)
    for rank, peer in sorted(messages_to.items()):
        yield unrecorded_wait({rank: None}, (peer,))
    for camp in (store, waiting - store - messages_to.keys()):
        if camp:
            yield unrecorded_wait(dict.fromkeys(sorted(camp)), busy or waiting - camp)


def _messages(ranks: Roster, samples: Mapping[int, Stacks], waiting: Collection[int]) -> dict[int, int]:
    """Of ranks in a send or receive whose peer is known: the peer, unless it is at the other end and the message on its way."""
    found = {rank: message for rank in waiting if (message := samples[rank].message) and message[1] in ranks.ranks}
    return {
        rank: peer
        for rank, (kind, peer) in found.items()
        if peer != rank and found.get(peer) != ("send" if kind == "recv" else "recv", rank)
    }


def _unexplained(
    ranks: Roster, samples: Mapping[int, Stacks], explained: Collection[int], messages: Collection[int]
) -> tuple[set[int], set[int]]:
    """Ranks that surely wait, and ranks that perhaps do.

    Native waits leave no Python frame of their own: a rank that sleeps below the autograd engine, or may wait for a message,
    counts when some rank is elsewhere, never when all ranks are there.
    """
    candidates = {rank: found for rank, found in samples.items() if rank not in explained and not ranks.rank(rank).stopped}
    sure = {rank for rank, found in candidates.items() if found.waits_now}
    perhaps = {rank for rank, found in candidates.items() if rank not in sure and (found.below_autograd or rank in messages)}
    return sure, perhaps


def stands_with_waiters(ranks: Roster, graph: WaitGraph, rank: int) -> bool:
    """Whether a rank without a stack left a dump that stands where that of another one does which waits in what no dump holds.

    It may wait there too (a receive of gloo, a store): only its own stack would tell more.
    """
    facts = ranks.rank(rank)
    if facts.has_stack or not facts.dumped:
        return False
    beside = {other for wait in graph.waiting_for(rank) for other in wait.missing if ranks.rank(other).dumped}
    return any(not wait.communicator and not beside.isdisjoint(wait.waiting) for wait in graph.waits)
