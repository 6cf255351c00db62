"""Coverage names what a verdict rests on also where no collector made a record of it."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from forensics.case.build import open_case
from forensics.rules.diagnosis import diagnose
from tests.recordings.nic_captures import Ring, captures
from tests.recordings.nic_captures import write as write_captures
from tests.unit.frontier.recorded import synchronous, write

STAGES = ("data", "forward", "backward", "callbacks", "optimizer")


def covered(path: Path) -> dict[str, tuple[tuple[str, ...], int]]:
    with open_case([path]) as connection:
        return {row.kind: (row.present, len(row.absent)) for row in diagnose(connection).coverage}


def test_recorded_stages_are_in_it_and_traces_that_nobody_has_are_not(tmp_path: Path) -> None:
    does = np.tile(np.array([5.0, 60, 100, 4, 20])[None, :, None], (12, 1, 4))
    found = covered(write(tmp_path / "stages", synchronous(STAGES, does)))
    assert found["stages"] == (("0", "1", "2", "3"), 0) and found["stacks"] == ((), 4)
    assert "traces" not in found and "NIC epochs" not in found


def test_captures_of_nics_are_in_it(tmp_path: Path) -> None:
    found = covered(write_captures(tmp_path, captures(Ring())))
    assert found["NIC epochs"] == (tuple(map(str, range(8))), 0) and "stages" not in found
