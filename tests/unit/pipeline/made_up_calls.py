"""Dumps of jobs as rows: groups with members, and for each rank its calls in order."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import NamedTuple

from forensics.case.database import Connection, insert_rows, new_case
from forensics.rules.engine import supply_of
from forensics.rules.reductions.pipeline.layout import Layout
from tests.recordings.grouped_calls import insert_groups


class Call(NamedTuple):
    """A call in a group; `peer` is a place in it, calls of one `batch` are one group call."""

    group: str
    kind: str
    elements: int = 4096
    peer: int | None = None
    batch: int | None = None


Program = Mapping[int, Iterable[Call]]
_COLUMNS = "source_id locator snapshot rank communicator backend record_id group_call kind is_p2p peer count state"


def case(
    groups: Mapping[str, tuple[int, ...]],
    program: Program,
    names: Mapping[str, str] | None = None,
    *,
    backend: str = "nccl",
    first: int = 100,
) -> Connection:
    """A case of one dump a rank, whose first record has the number `first`; `names` are descriptions of groups."""
    connection = new_case()
    insert_groups(connection, groups, backend, names)
    world = len({rank for ranks in groups.values() for rank in ranks})
    insert_rows(connection, "job_config", "key value", [("world_size", str(world))])
    insert_rows(connection, "operations", _COLUMNS, [*_rows(program, backend, first)])
    return connection


def _rows(program: Program, backend: str, first: int) -> Iterator[tuple[object, ...]]:
    for rank, calls in program.items():
        for number, call in enumerate(calls):
            batch = None if call.batch is None else call.batch
            message = call.kind in ("send", "recv")
            place = (call.group, backend, first + number, batch, call.kind, message, call.peer, call.elements, "done")
            yield (rank, number, 0, rank, *place)


def layout_of(connection: Connection, **settings: str) -> Layout:
    """The layout, with settings such as `parallel_tensor="2"`."""
    insert_rows(connection, "job_config", "key value", [(key.replace("_", ".", 1), value) for key, value in settings.items()])
    return supply_of(connection, None).get(Layout)


def axis(layout: Layout, group: str) -> str:
    """The axis of a group."""
    return str(layout.axes[group].axis)
