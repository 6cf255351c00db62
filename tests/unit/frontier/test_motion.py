"""Whether recorded steps show that a job moves, beside what looks at hangs."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest

from forensics.case.columns import CaseWriter
from forensics.case.database import Connection, new_case
from forensics.rules.reductions.frontier.verdicts import FrontierWindow
from forensics.rules.reductions.progress.liveness import Liveness, Motion
from forensics.rules.reductions.progress.motion import moving_by_steps
from tests.unit.frontier.jobs import job

SECOND = 1_000_000_000
UNSEEN = Liveness(Motion.UNSEEN, "stacks do not tell")


@pytest.fixture
def case() -> Iterator[Connection]:
    connection = new_case(None, 0)
    yield connection
    connection.close()


def fill(case: Connection, ends_s: dict[int, float], captured_s: float | None, kind: str | None = "python_stacks") -> None:
    """The newest step of each rank ends at a time; all files are of one moment."""
    writer = CaseWriter(case)
    captured = None if captured_s is None else round(captured_s * SECOND)
    kinds = [*(("stage_vectors", rank) for rank in ends_s), *([(kind, 0)] if kind else [])]
    for source, (kind, rank) in enumerate(kinds, 1):
        facts: dict[str, list[Any]] = {
            "source_id": [source],
            "path": [str(source)],
            "kind": [kind],
            "status": ["ok"],
            "rows": [1],
        }
        writer.add("sources", facts | {"captured_ns": [captured]}, {})
        if kind == "stage_vectors":
            end = round(ends_s[rank] * SECOND)
            step = {"step": [1], "begin_ns": [end - SECOND // 10], "end_ns": [end], "wall_ns": [SECOND // 10]}
            writer.add("steps", step, {"source_id": source, "rank": rank})
    writer.flush()


def motion(case: Connection, missing: tuple[int, ...] = ()) -> Motion:
    window = FrontierWindow(replace(job(ranks=2, steps=10), missing=missing))
    return moving_by_steps(case, UNSEEN, [window], 2.0).motion


def test_a_record_that_goes_on_until_it_is_fetched_outweighs_equal_stacks(case: Connection) -> None:
    fill(case, {0: 99.6, 1: 99.5}, 100)
    assert motion(case) is Motion.MOVING


@pytest.mark.parametrize(
    ("ends", "captured"), [({0: 99.6, 1: 90.0}, 100.0), ({0: 90.0, 1: 90.0}, 100.0), ({0: 99.6, 1: 99.5}, None)]
)
def test_a_record_that_ended_before_or_has_no_date_does_not(
    case: Connection, ends: dict[int, float], captured: float | None
) -> None:
    fill(case, ends, captured)
    assert motion(case) is Motion.UNSEEN


def test_a_record_without_some_ranks_does_not(case: Connection) -> None:
    fill(case, {0: 99.6, 1: 99.5}, 100)
    assert motion(case, missing=(2,)) is Motion.UNSEEN


def test_alone_an_undated_record_is_enough_and_a_silent_one_is_not(case: Connection) -> None:
    fill(case, {0: 90.0, 1: 90.0}, None, kind=None)
    assert motion(case) is Motion.MOVING
    case.execute("UPDATE sources SET captured_ns = ?", [100 * SECOND])
    assert motion(case) is Motion.UNSEEN
