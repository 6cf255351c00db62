"""An error above steps that begin again is of an earlier attempt, if these were trained after it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import pytest

from forensics.ingest._job_logs.resumption import resumed


@dataclass(frozen=True)
class Line:
    locator: int
    at_s: float | None
    clock: str | None = "line"


def lines(first: int, *times: float | None) -> list[Line]:
    return [Line(first + place, at) for place, at in enumerate(times)]


@pytest.mark.parametrize(
    ("below", "begin"),
    [
        (lines(11, 100, 160, 220), 11),
        (lines(11, 0, 1, 60), None),
        (lines(11, None, None, None), None),
        (lines(11, 100, 160), None),
        (lines(9, 100, 160, 220), None),
    ],
    ids=["trained later", "written late", "not dated", "a peer that was ahead", "begun above it"],
)
def test_an_error_is_over_where_steps_begin_again_later(below: Sequence[Line], begin: int | None) -> None:
    assert resumed([[lines(1, 0, 30, 60), below]], (), (), (10,)) == begin


def test_steps_that_go_on_do_not_show_that_an_error_was_survived() -> None:
    assert resumed([[lines(1, 0, 30, 60, 90, 120)]], (), (), (3,)) is None
