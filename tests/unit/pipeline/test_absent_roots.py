"""A step that a rank without a record held up: it is named where all waits lead to it, and nobody for another's delay."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from forensics.fixtures.simulator.faults import parse
from forensics.fixtures.simulator.job import Parallelism
from forensics.fixtures.simulator.simulation import simulate
from forensics.model import Confidence, Verdict
from forensics.rules.diagnosis import diagnose
from tests.unit.pipeline.simulated import case_of
from tests.unit.pipeline.test_delays import JOB, named


def verdict(fault: str, folder: Path, missing: str, tensor: int = 2, seed: int = 3) -> Verdict:
    job = replace(JOB, parallel=Parallelism(tensor=tensor, pipeline=4, data=4 // tensor))
    made = simulate(job, [parse(fault)], seed, iterations=14)
    with case_of(made, folder, timing=True, missing=missing) as case:
        return diagnose(case)


@pytest.mark.slow
@pytest.mark.parametrize("tensor", [2, 1])
@pytest.mark.parametrize("stage", ["backward", "forward"])
@pytest.mark.parametrize("rank", [6, 13])
def test_who_left_no_record_is_named_by_those_that_wait_for_it(stage: str, rank: int, tensor: int, tmp_path: Path) -> None:
    found = verdict(f"compute-delay@rank{rank}:900ms/{stage}", tmp_path, str(rank), tensor)
    assert {each for suspect in found.suspects for each in suspect.ranks} <= {rank}
    if tensor > 1:
        (suspect,) = found.suspects
        assert (suspect.ranks, suspect.confidence) == ((rank,), Confidence.SUSPECT)
        assert any("left no record" in each.statement for each in suspect.evidence if not each.supports)


def test_it_is_named_with_its_pass(tmp_path: Path) -> None:
    found = verdict("compute-delay@rank6:900ms/backward", tmp_path, "6")
    assert named(found) == [(6,)]
    assert found.suspects[0].stage.name == "backward"


@pytest.mark.parametrize(
    ("missing", "said"),
    [("6,1,13", [(6,)]), ("6,7,13", []), ("6,10,13", []), ("6,11,13", [(6,)])],
    ids=["equals", "both in step", "a peer of its own", "an equal of its peer"],
)
def test_of_several_without_a_record_it_is_the_one_that_its_equal_waits_for_first(
    missing: str, said: list[tuple[int, ...]], tmp_path: Path
) -> None:
    assert named(verdict("compute-delay@rank6:900ms/backward", tmp_path, missing)) == said


@pytest.mark.slow
@pytest.mark.parametrize("missing", ["7", "3", "10", "1", "6,14", "7,13", "3,13", "10,15", "1,10,12", "3,7", "3,11", "7,11"])
@pytest.mark.parametrize(
    "fault", ["compute-delay@rank6:900ms/backward", "transfer-delay@rank6:900ms", "host-delay@rank6:900ms"]
)
def test_a_missing_rank_is_not_named_for_the_delay_of_another(fault: str, missing: str, tmp_path: Path) -> None:
    found = verdict(fault, tmp_path, missing)
    innocent = {int(each) for each in missing.split(",")} - {6}
    assert not innocent & {rank for suspect in found.suspects if len(suspect.ranks) == 1 for rank in suspect.ranks}
