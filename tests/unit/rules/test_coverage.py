"""Coverage names what a verdict rests on also where no collector made a record of it."""

from __future__ import annotations

import json
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


def test_what_counters_of_ports_alone_cannot_show_is_said(tmp_path: Path) -> None:
    reads = {
        f"nodes/n1/ib/counters-{read}.json": json.dumps({
            "schema": "forensics.ib/1", "node": "n1", "time_ns": (1 + 5 * read) * 10**9,
            "devices": {"mlx5_0": {"ports": {"1": {"counters": {"port_xmit_data": 1000 * read}}}}},
        }).encode()
        for read in range(2)
    }  # fmt: skip
    alone, beside = (
        [label.reason for label in diagnose(open_case([write_captures(tmp_path / name, files)])).labels]
        for name, files in {"alone": reads, "both": reads | captures(Ring())}.items()
    )
    assert any("counters of 1 port do not show" in reason and "less than 5 s" in reason for reason in alone)
    assert not any("counters of" in reason for reason in beside)
