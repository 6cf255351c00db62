"""Dumps alone of a job that hangs, some of them cut: whoever is known to be behind is named as if they were whole."""

from __future__ import annotations

import tarfile
from collections.abc import Collection, Mapping
from dataclasses import replace
from pathlib import Path

import pytest

from forensics.case.build import open_case
from forensics.fixtures.simulator.faults import parse
from forensics.fixtures.simulator.job import Parallelism
from forensics.fixtures.simulator.simulation import simulate
from forensics.model import Outcome, Verdict
from forensics.rules.diagnosis import diagnose
from tests.unit.pipeline.simulated import case_of
from tests.unit.simulator.small_jobs import DENSE

JOB = replace(DENSE, parallel=Parallelism(tensor=2, pipeline=2, data=2))
STUCK = 5


@pytest.fixture(scope="module")
def dumps(tmp_path_factory: pytest.TempPathFactory) -> dict[str, bytes]:
    """What the recorders of a job left in which one rank is stuck in a forward pass, by file name."""
    folder = tmp_path_factory.mktemp("hang")
    with case_of(simulate(JOB, [parse(f"host-hang@rank{STUCK}/forward")], 3, iterations=5, onset=3), folder):
        pass
    found = {}
    with tarfile.open(folder / "bundle.tar") as bundle:
        for member in bundle.getmembers():
            content = bundle.extractfile(member)
            if "/fr/" in member.name and content is not None:
                found[f"nccl_trace_rank_{member.name.split('/')[1]}"] = content.read()
    return found


def _verdict(dumps: Mapping[str, bytes], cut: Collection[int], folder: Path, kept: float) -> Verdict:
    names = {f"nccl_trace_rank_{rank}" for rank in cut}
    for name, whole in dumps.items():
        (folder / name).write_bytes(whole[: int(len(whole) * (kept if name in names else 1))])
    with open_case([folder]) as connection:
        return diagnose(connection)


@pytest.mark.parametrize("kept", [0.7, 0.3])
@pytest.mark.parametrize("cut", [(), (0,), (2,), (0, 6), (STUCK,)], ids=["none", "first", "another", "two", "its own"])
def test_a_cut_dump_hides_nobody_who_is_known_to_be_behind(
    dumps: Mapping[str, bytes], cut: Collection[int], kept: float, tmp_path: Path
) -> None:
    verdict = _verdict(dumps, cut, tmp_path, kept)
    assert (verdict.outcome, [suspect.ranks for suspect in verdict.suspects]) == (Outcome.HANG, [(STUCK,)])


def test_where_the_dumps_of_who_is_behind_and_of_another_are_cut_nobody_is_named(
    dumps: Mapping[str, bytes], tmp_path: Path
) -> None:
    verdict = _verdict(dumps, (0, STUCK), tmp_path, 0.7)
    assert not verdict.suspects
    assert "0,5" in verdict.leads[0]
