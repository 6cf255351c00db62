"""A rank of a pipeline that is outside of calls for longer than those with the same work, by traces of devices alone."""

from __future__ import annotations

from pathlib import Path

import pytest

from forensics.case.build import open_case
from forensics.fixtures.simulator.faults import parse
from forensics.fixtures.simulator.simulation import simulate
from forensics.model import Cause, StageName, Verdict
from forensics.rules.diagnosis import diagnose
from tests.unit.pipeline.made_up_traces import END, FORWARD, MS, STAGES, Took, Work, usual, write
from tests.unit.pipeline.simulated import traced_case_of
from tests.unit.simulator.small_jobs import DENSE

SLOW = 5
"""Stage 1 of the second replica: rank 1 has the same work."""


def host_late(work: Work) -> tuple[int, int]:
    """The host of a rank is late with every forward pass: its device is idle meanwhile."""
    return usual(work)[0], 60 * MS * (work.rank == SLOW and work.kind == FORWARD)


def device_slow(work: Work) -> tuple[int, int]:
    """The device of a rank takes a third longer."""
    return round(usual(work)[0] * (4 / 3 if work.rank == SLOW and work.kind != END else 1)), 0


def longer_data(work: Work) -> tuple[int, int]:
    """All stages of a replica take longer, the slow one most."""
    return round(usual(work)[0] * ((1.5 if work.rank == SLOW else 1.3) if work.rank >= STAGES else 1)), 0


def heavy_last_stage(work: Work) -> tuple[int, int]:
    """The host is late, and everybody waits for a stage with more work all the same."""
    return usual(work)[0] * (2 if work.stage == STAGES - 1 else 1), host_late(work)[1]


def loads_long(work: Work) -> tuple[int, int]:
    """The host of a rank of the first stage comes late to each step."""
    return usual(work)[0], 250 * MS * (work.rank == STAGES and (work.kind, work.microbatch) == (FORWARD, 0))


def _verdict(took: Took, folder: Path, *forms: str) -> Verdict:
    write(folder, took, 4, forms=forms)
    with open_case([folder]) as connection:
        return diagnose(connection)


@pytest.mark.parametrize("took", [host_late, device_slow])
def test_who_works_longer_than_the_only_other_one_with_the_same_work_is_where_to_begin(took: Took, tmp_path: Path) -> None:
    verdict = _verdict(took, tmp_path)
    assert not verdict.suspects
    (lead,) = verdict.leads
    assert lead.startswith(f"rank {SLOW}: rank {SLOW} worked for") and "rank 1, with the same work" in lead


@pytest.mark.parametrize("took", [usual, longer_data, heavy_last_stage])
def test_what_costs_the_others_nothing_or_is_the_data_is_not(took: Took, tmp_path: Path) -> None:
    verdict = _verdict(took, tmp_path)
    assert not verdict.suspects and not verdict.leads


@pytest.mark.parametrize(
    ("forms", "said"), [(("loading",), (StageName.DATA, Cause.DATALOADER_STALL)), ((), (StageName.UNKNOWN, Cause.UNKNOWN))]
)
def test_the_stage_in_which_a_host_is_longer_has_its_name(
    forms: tuple[str, ...], said: tuple[StageName, Cause], tmp_path: Path
) -> None:
    (suspect,) = _verdict(loads_long, tmp_path, *forms).suspects
    assert suspect.ranks == (STAGES,)
    assert (suspect.stage.name, suspect.cause) == said


@pytest.mark.slow
@pytest.mark.parametrize(("fault", "ranks"), [("frontier-forward-host@rank5:200", [5]), ("none", [])])
def test_a_host_that_is_late_in_every_pass_is_named_among_several_equals(fault: str, ranks: list[int], tmp_path: Path) -> None:
    made = simulate(DENSE, [parse(fault)] if fault != "none" else [], 3, iterations=8)
    with traced_case_of(made, tmp_path, steps=3) as connection:
        verdict = diagnose(connection)
    assert [suspect.ranks for suspect in verdict.suspects] == [(rank,) for rank in ranks]
    assert all((each.cause, each.rules) == (Cause.UNKNOWN, ("FX170",)) for each in verdict.suspects)
