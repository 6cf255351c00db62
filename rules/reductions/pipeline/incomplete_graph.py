"""The incomplete graph of a pipeline that stopped as rows of the verdict (VenusTrace section 3.3 and figure 15)."""

from __future__ import annotations

from collections.abc import Iterable, Sequence, Set
from typing import NewType

import numpy as np

from forensics.incomplete_graphs import COMPLETE, HALTED, WAITS
from forensics.model import Anomaly, GraphPassRow, IncompleteGraphRow, Suspect
from forensics.rules.reductions.pipeline.call_places import CallPlaces
from forensics.rules.reductions.pipeline.critical_path import halted, longest
from forensics.rules.reductions.pipeline.halts import Halt, halt
from forensics.rules.reductions.pipeline.layout import Layout

Stopped = NewType("Stopped", tuple[tuple[int, ...], ...])
"""The ranks of each suspect that stopped, the first suspect first."""
_MOST_PASSES = 4096
_MOST_SUSPECTS = 4


def stopped(suspects: Iterable[Suspect]) -> Stopped:
    """The ranks of those that stopped."""
    return Stopped(tuple(each.ranks for each in suspects if each.ranks and each.anomaly is Anomaly.FAIL_STOP))


def incomplete_graph_row(ranks: Stopped, places: CallPlaces, layout: Layout) -> IncompleteGraphRow | None:
    """The graph of the first suspect at one of whose own passes its pipeline halted; None without one."""
    accused = {rank for each in ranks for rank in each}
    for own in ranks[:_MOST_SUSPECTS]:
        found = halt(own[0], places, layout)
        if found is not None and any(set(own) & set(each.ranks) for each in found.passes):
            return _row(found, accused)
    return None


def _row(found: Halt, accused: Set[int]) -> IncompleteGraphRow:
    graph = found.step.graph
    turn = longest(graph, np.ones(graph.size)).earliest_start.astype(np.int64)
    order = np.lexsort((turn, found.step.stage)).tolist()
    states, waits = _states(found, accused), _open_before(found, order)
    rows = tuple(_pass(found, node, int(turn[node]), states[node], tuple(sorted(waits[node]))) for node in order)
    shown = rows if len(rows) <= _MOST_PASSES else ()
    return IncompleteGraphRow(int(found.complete.sum()), len(rows), tuple(row for row in rows if row.state == HALTED), shown)


def _states(found: Halt, accused: Set[int]) -> list[str]:
    """The state of each node: a pass of others whose predecessors are complete lacks the other half of a group call."""
    is_accused = np.array([not accused.isdisjoint(stage) for stage in found.step.stages])[found.step.stage]
    at_halt = np.zeros(len(found.complete), np.bool_)
    at_halt[halted(found.step.graph, found.complete)] = True
    states: list[str] = np.where(found.complete, COMPLETE, np.where(at_halt & is_accused, HALTED, WAITS)).tolist()
    return states


def _open_before(found: Halt, order: Sequence[int]) -> dict[int, list[int]]:
    """The incomplete passes directly before each incomplete node, as places in `order`."""
    graph, complete = found.step.graph, found.complete
    place = {node: number for number, node in enumerate(order)}
    waits: dict[int, list[int]] = {node: [] for node in order}
    is_open = ~complete[graph.source] & ~complete[graph.target]
    for source, target in zip(graph.source[is_open].tolist(), graph.target[is_open].tolist(), strict=True):
        waits[target].append(place[source])
    return waits


def _pass(found: Halt, node: int, turn: int, state: str, waits_for: tuple[int, ...]) -> GraphPassRow:
    where = found.step.place(node)
    return GraphPassRow(
        ranks=found.step.stages[int(found.step.stage[node])],
        stage=int(found.step.stage[node]),
        model_chunk=where.chunk,
        microbatch=int(found.step.microbatch[node]),
        direction=where.direction or "",
        turn=turn,
        state=state,
        waits_for=waits_for,
    )
