"""Stage matrices out of a case: windows, roles, refined and accumulated stages, side channels."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

import numpy as np
import pytest

from forensics.case.columns import CaseWriter
from forensics.case.database import Connection, new_case
from forensics.rules.reductions.frontier.cut import cut
from forensics.rules.reductions.frontier.gates import Gates
from forensics.rules.reductions.frontier.matrix import StageMatrix
from forensics.rules.reductions.frontier.reading import frontier_windows, stage_matrices

MS = 1_000_000


@pytest.fixture
def case() -> Iterator[Connection]:
    connection = new_case(None, 0)
    yield connection
    connection.close()


def fill(
    case: Connection,
    ranks: dict[int, Iterable[int]],
    stages: tuple[str, ...] = ("data", "forward", "backward"),
    by_rank: dict[int, tuple[str, ...]] | None = None,
    roles: dict[int, str] | None = None,
    kind: str = "stage_vectors",
    first_source: int = 0,
) -> None:
    """Steps of each rank, its stages of 1, 2, 3... ms; `name/part` refines a stage, `name#2` repeats it, `+name` is beside."""
    writer = CaseWriter(case)
    for rank, steps in ranks.items():
        source = first_source + rank + 1
        facts: dict[str, list[Any]] = {
            "source_id": [source],
            "path": [f"{kind}_{rank}"],
            "kind": [kind],
            "host": ["h"],
            "status": ["ok"],
            "rows": [1],
        }
        if not case.execute("SELECT 1 FROM sources WHERE source_id = ?", [source]).fetchall():
            writer.add("sources", facts, {})
        for step in steps:
            own = (by_rank or {}).get(rank, stages)
            begin = 10**18 + step * 100 * MS
            writer.add(
                "steps",
                {"step": [step], "begin_ns": [begin], "end_ns": [begin + 50 * MS], "wall_ns": [50 * MS]},
                {"source_id": source, "rank": rank},
            )
            writer.add(
                "stage_spans",
                spans(own, step, begin),
                {"source_id": source, "rank": rank, "group_role": (roles or {}).get(rank)},
            )
    writer.flush()


def spans(names: tuple[str, ...], step: int, begin: int) -> dict[str, list[Any]]:
    columns: dict[str, list[Any]] = {
        name: [] for name in ("step", "stage", "substage", "substep", "order_index", "side_channel")
    }
    columns |= {"begin_ns": [], "duration_ns": [], "schema_hash": []}
    for place, name in enumerate(names):
        stage, _, part = name.strip("+").partition("/")
        stage, _, repeat = stage.partition("#")
        row = (
            step,
            stage,
            part or None,
            int(repeat or 0),
            place,
            name.startswith("+"),
            begin,
            (place + 1) * MS,
            ",".join(names),
        )
        begin += (place + 1) * MS
        for column, value in zip(columns, row, strict=True):
            columns[column].append(value)
    return columns


def only(case: Connection, world: int | None = None) -> StageMatrix:
    (matrix,) = stage_matrices(case, world)
    return matrix


def test_a_window_holds_every_rank_step_and_stage(case: Connection) -> None:
    fill(case, {0: range(5), 1: range(5)})
    matrix = only(case, 2)
    assert [column.label for column in matrix.columns] == ["data", "forward", "backward"]
    assert matrix.durations.shape == (5, 3, 2)
    assert (matrix.durations == np.array([1, 2, 3])[None, :, None] * MS).all()
    assert (matrix.residual == 44 * MS).all() and matrix.missing == ()


def test_a_rank_whose_record_ends_early_is_in_a_window_of_its_own_and_missing_in_the_longer_one(case: Connection) -> None:
    fill(case, {0: range(10), 1: range(6)})
    assert [(len(m.steps), m.ranks, m.missing) for m in stage_matrices(case, 2)] == [(6, (0, 1), ()), (10, (0,), (1,))]


def test_a_change_of_the_ordered_stages_closes_the_window(case: Connection) -> None:
    fill(case, {0: range(4), 1: range(4)})
    fill(case, {0: range(4, 9), 1: range(4, 9)}, ("forward", "backward", "data"), first_source=0)
    assert [len(m.steps) for m in stage_matrices(case, 2)] == [4, 5]


def test_ranks_of_different_roles_are_not_compared(case: Connection) -> None:
    fill(case, {rank: range(4) for rank in range(4)}, roles={0: "pp0", 1: "pp0", 2: "pp1", 3: "pp1"})
    assert [(m.role, m.ranks) for m in stage_matrices(case, 4)] == [("pp0", (0, 1)), ("pp1", (2, 3))]


def test_pipeline_groups_are_roles(case: Connection) -> None:
    fill(case, {rank: range(4) for rank in range(4)})
    for group, members in (("a", (0, 2)), ("b", (1, 3))):
        case.execute(
            "INSERT INTO communicators VALUES (?, 0, ?, 'PIPELINE_MODEL_PARALLEL_GROUP', 'nccl', 2, 'reported', 'read')",
            [group, group],
        )
        for position, rank in enumerate(members):
            case.execute("INSERT INTO members VALUES (?, ?, ?, NULL)", [group, position, rank])
    assert [(m.role, m.ranks) for m in stage_matrices(case, 4)] == [("pipeline stage 0", (0, 1)), ("pipeline stage 1", (2, 3))]


def test_a_refined_stage_replaces_its_parent(case: Connection) -> None:
    fill(case, {0: range(3), 1: range(3)}, ("data/decode", "data/copy", "forward"))
    matrix = only(case)
    assert [column.label for column in matrix.columns] == ["data/decode", "data/copy", "forward"]
    assert matrix.stage_list() == ("data", "forward", "other") and matrix.members("data") == [0, 1]


def test_parts_are_added_up_where_a_peer_has_only_the_whole(case: Connection) -> None:
    fill(case, {0: range(3), 1: range(3)}, by_rank={0: ("data/decode", "data/copy", "forward"), 1: ("data", "forward")})
    matrix = only(case)
    assert [column.label for column in matrix.columns] == ["data", "forward"] and matrix.collapsed
    assert matrix.durations[0, 0].tolist() == [3 * MS, 1 * MS]


def test_microsteps_stay_apart_and_in_order(case: Connection) -> None:
    fill(case, {0: range(3), 1: range(3)}, ("forward", "backward", "forward#1", "backward#1"))
    assert [column.label for column in only(case).columns] == ["forward", "backward", "forward#1", "backward#1"]


def test_a_stage_of_one_rank_only_is_zero_on_the_others(case: Connection) -> None:
    fill(
        case,
        {0: range(3), 1: range(3)},
        by_rank={0: ("data", "forward", "callbacks", "optimizer"), 1: ("data", "forward", "optimizer")},
    )
    matrix = only(case)
    assert [column.label for column in matrix.columns] == ["data", "forward", "callbacks", "optimizer"] and matrix.is_ordered
    assert matrix.durations[0, 2].tolist() == [3 * MS, 0]


def test_ranks_that_disagree_on_the_order_are_stated_of(case: Connection) -> None:
    fill(case, {0: range(3), 1: range(3)}, by_rank={0: ("data", "forward"), 1: ("forward", "data")})
    assert not only(case).is_ordered


def test_side_channels_never_enter_the_account(case: Connection) -> None:
    fill(case, {0: range(3), 1: range(3)}, ("data", "forward", "+forward/arrived"))
    matrix = only(case)
    assert len(matrix.columns) == 2
    assert (matrix.arrived or {})["forward"].shape == (3, 2)


def test_the_evidence_of_most_ranks_is_taken(case: Connection) -> None:
    fill(case, {0: range(3), 1: range(3)})
    fill(case, {0: range(9)}, ("forward",), kind="kineto", first_source=50)
    matrix = only(case)
    assert matrix.source == "stage_vectors" and len(matrix.steps) == 3


def test_device_time_of_a_trace_is_added_up_by_stage(case: Connection) -> None:
    fill(case, {0: range(4), 1: range(4)}, ("data", "forward/a", "forward/b", "backward"), kind="kineto")
    case.execute("UPDATE stage_spans SET device_ns = 7 * order_index WHERE stage = 'forward' AND step < 3")
    device = only(case, 2).device
    assert device is not None and list(device) == ["forward"]
    assert (device["forward"][:3] == 7 * (1 + 2)).all() and np.isnan(device["forward"][3]).all()


def test_one_rank_is_a_window_without_peers(case: Connection) -> None:
    fill(case, {3: range(4)})
    assert only(case).ranks == (3,)


def test_a_case_without_stages_has_no_windows(case: Connection) -> None:
    assert frontier_windows(case, 4) == ()


@pytest.mark.parametrize(("name", "limited"), [("gloo:recv", True), ("gloo:all_reduce", False)])
def test_stages_in_which_hosts_wait_for_messages_tell_no_rank(case: Connection, name: str, limited: bool) -> None:
    """A trace of a pipeline over gloo has sends and receives by name only: a victim's stage grows with the culprit's."""
    fill(case, {0: range(6), 1: range(6)}, kind="kineto")
    case.execute(
        "INSERT INTO spans (source_id, rank, name, category, begin_ns, end_ns) VALUES (2, 1, ?, 'collective', 5, 9)", [name]
    )
    ((matrix, waits),) = [(window.matrix, window.waits) for window in frontier_windows(case, 2)]
    reason = cut(matrix, Gates(), waits)
    assert (isinstance(reason, str) and "messages of other ranks" in reason) is limited
