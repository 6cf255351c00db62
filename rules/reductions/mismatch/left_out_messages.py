"""A rank of a circle of waits that left out a message which those that work in step with it received or sent.

Messages that look alike are matched by order: a later one takes the turn of the one that was left out, and only the end of the
step finds the ranks in each other's way. Tensor-parallel ranks make the same messages between the same of their own calls.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import NewType

import numpy as np
from duckdb import DuckDBPyConnection

from forensics.case.database import rows_of
from forensics.rules.reductions.interface import reduction
from forensics.rules.reductions.pipeline.axes import Axis
from forensics.rules.reductions.pipeline.layout import Layout
from forensics.rules.reductions.steps.records import Record, Recorded
from forensics.rules.reductions.waits.graph import Root, RootKind, WaitGraph


@dataclass(frozen=True, slots=True)
class LeftOut:
    """`rank` made no `kind` with `peer` between calls `anchor` - 1 and `anchor` of `measure`, and later ones.

    `equal` made it as call `sequence` of `communicator`, at `source`, of `source_id`.
    """

    rank: int
    peer: int
    kind: str
    measure: str
    anchor: int
    equal: int
    communicator: str
    sequence: int
    source_id: int
    source: str


LeftOutMessages = NewType("LeftOutMessages", tuple[LeftOut, ...])
"""At most one for each circle of waits."""

_Form = tuple[str, tuple[int, ...]]
"""A kind of message, with the ranks that work in step with its peer."""
_Made = Mapping[int, Sequence[tuple[_Form, int]]]
"""Messages before each call of a communicator, by its number, with their places in the record."""


@reduction
def left_out_messages(connection: DuckDBPyConnection, graph: WaitGraph, layout: Layout, records: Recorded) -> LeftOutMessages:
    """Of each circle the one rank that left out a message for which its peer waits, where those in step with it all made it."""
    in_step = {rank: label for label in layout.along(Axis.TENSOR) for rank in layout.members[label]}
    circles = [root for root in graph.roots if root.kind is RootKind.CYCLE] if in_step else []
    wanted = {rank for root in circles for rank in root.ranks} & in_step.keys()
    known = records.of({each for rank in wanted for each in layout.members[in_step[rank]]}) if wanted else {}
    found = {rank: left for rank in sorted(wanted) if (left := _of_rank(rank, in_step, layout.members, known)) is not None}
    paths = dict(rows_of(connection, "sources", "SELECT source_id, path FROM sources")) if found else {}
    return LeftOutMessages(
        tuple(
            replace(found[rank], source=f"{paths[found[rank].source_id]}#entry={found[rank].source}")
            for root in circles
            for rank in _odd(root, found)
        )
    )


def _odd(root: Root, found: Mapping[int, LeftOut]) -> Sequence[int]:
    """The only rank of a circle that left out a message, if its peer waits for it."""
    odd = [rank for rank in root.ranks if rank in found]
    waits = any(found[rank].peer in wait.waiting for rank in odd for wait in root.waits if rank in wait.missing)
    return odd if len(odd) == 1 and waits else ()


def _of_rank(
    rank: int, in_step: Mapping[int, str], members: Mapping[str, Sequence[int]], known: Mapping[int, Record]
) -> LeftOut | None:
    label = in_step[rank]
    if rank not in known or len(members[label]) < 2 or not known.keys() >= {*members[label]}:
        return None
    groups = {each: tuple(members[of]) for each, of in in_step.items()}
    made = {each: _messages(known[each], label, groups) for each in members[label]}
    found = [_difference(made[rank], made[each]) for each in members[label] if each != rank]
    first = found[0]
    if first is None or any(each != first for each in found):
        return None
    anchor, form = first
    equal = next(each for each in members[label] if each != rank)
    place = next(at for each, at in made[equal][anchor] if each == form)
    # Later ones of its kind were made in their place: it is not that the rank came to this one later than to others.
    own = [at for number in made[rank] if number > anchor for each, at in made[rank][number] if each == form]
    if not own:
        return None
    there = known[equal]
    return LeftOut(
        rank, int(known[rank].peer[own[0]]), form[0], label, anchor, equal, there.label(place), int(there.sequence[place]),
        int(there.source_id[place]), str(there.locator[place]),
    )  # fmt: skip


def _messages(record: Record, label: str, groups: Mapping[int, tuple[int, ...]]) -> _Made:
    """Messages before each call of a communicator but the first one, before which the record may begin anywhere."""
    shared = np.flatnonzero(record.of(label) & ~record.is_message)
    found: dict[int, Sequence[tuple[_Form, int]]] = {}
    for begin, end in zip(shared[:-1].tolist(), shared[1:].tolist(), strict=True):
        at = (begin + 1 + np.flatnonzero(record.is_message[begin + 1 : end])).tolist()
        found[int(record.sequence[end])] = [(_form(record, each, groups), each) for each in at]
    return found


def _form(record: Record, at: int, groups: Mapping[int, tuple[int, ...]]) -> _Form:
    peer = int(record.peer[at])
    return record.names.kinds[int(record.kind[at])], groups.get(peer, (peer,))


def _difference(own: _Made, other: _Made) -> tuple[int, _Form] | None:
    """The only message that another one made more between the calls that both made, with the number of the call behind it."""
    more = [(number, *each) for number in sorted(own.keys() & other.keys()) for each in _more(own[number], other[number])]
    return (more[0][0], more[0][1]) if len(more) == 1 and more[0][2] == 1 else None


def _more(own: Collection[tuple[_Form, int]], other: Collection[tuple[_Form, int]]) -> Iterator[tuple[_Form, int]]:
    """Forms of messages of which another one made more, or less, with how many more."""
    mine, theirs = (Counter(form for form, _ in each) for each in (own, other))
    yield from ((form, theirs[form] - mine[form]) for form in sorted(mine | theirs) if theirs[form] != mine[form])
