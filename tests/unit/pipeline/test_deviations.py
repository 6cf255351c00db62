"""The call that a step left out, or made too much, among calls that look alike but for their call paths."""

from __future__ import annotations

from pathlib import Path

import pytest

from forensics.case.build import open_case
from forensics.rules.reductions.pipeline.deviations import first_difference
from forensics.rules.reductions.steps.records import records
from tests.recordings.collection import loose
from tests.recordings.job import Job

USUAL = "ffffbbbbe"
PLACES = {"f": ("run_forward", "engine.py", 70), "b": ("run_backward", "engine.py", 91), "e": ("clip", "engine.py", 140)}


@pytest.mark.parametrize(
    ("made", "paths", "expected"),
    [
        (USUAL, True, None),
        ("ffffbbbe", True, 7),  # which of the backward calls is left out cannot be known: the last of its run
        ("fffbbbbe", True, 3),
        ("fffbbbbe", False, 7),  # without call paths the run of look-alikes ends one call early
        ("ffffbbbbbe", True, 8),
        ("fffffbbbbe", True, 4),
        ("fbffbbbe", True, 7),  # paths that differ on the way are another program, not one moved by a call
        ("ebbbbbbe", True, 0),
    ],
)
def test_the_call_from_which_a_step_is_moved_by_one(made: str, paths: bool, expected: int | None, tmp_path: Path) -> None:
    job = Job(2, "nccl")
    for name in USUAL + made:
        frames = (("main", "train.py", 20), PLACES[name]) if paths else ()
        job.call(job.everyone, shapes=((1,),) if name == "e" else ((64, 64),), frames=frames)
    with open_case([loose(job, tmp_path)]) as connection:
        record = records(connection, [0])[0]
    assert first_difference(record, (0, len(USUAL)), (len(USUAL), len(record))) == expected
