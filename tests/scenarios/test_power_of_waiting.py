"""A backward pass that became longer on all ranks, without times inside calls: which rank it is shows what its GPU draws."""

from __future__ import annotations

from pathlib import Path

import pytest

from forensics.case.build import open_case
from forensics.fixtures.simulator import bundle, losses
from forensics.fixtures.simulator.faults import parse
from forensics.fixtures.simulator.simulation import simulate
from forensics.fixtures.simulator.writers.interface import Recorder
from forensics.fixtures.suites.frontier import job
from forensics.rules.diagnosis import diagnose


@pytest.mark.parametrize(("fault", "size", "named"), [
    ("frontier-backward@rank5:120ms", 8, (5,)),
    ("frontier-backward-comm@rank5:120ms", 8, ()),
    ("none", 8, ()),
    ("frontier-backward@rank13:120ms", 32, (13,)),
    ("frontier-backward-comm@rank13:120ms", 32, ()),
])  # fmt: skip
def test_who_computes_while_the_others_wait_draws_more(fault: str, size: int, named: tuple[int, ...], tmp_path: Path) -> None:
    made = simulate(job(size), [parse(fault)], 5, iterations=40, onset=12, after_s=60.0)
    options = bundle.options_of(made, timing=False, ring=400, recorder=Recorder(timed=(), every=0))
    lost = losses.drawn(size, made.random("losses"), beside=("stages",))
    bundle.write(made, options, lost, tmp_path / "bundle.tar")
    connection = open_case([tmp_path / "bundle.tar"])
    verdict = diagnose(connection)
    connection.close()
    assert {rank for suspect in verdict.suspects for rank in suspect.ranks} == {*named}
