"""Traces of too few ranks to name one: whom those recorded wait for, and what takes the only one long."""

from __future__ import annotations

from collections.abc import Collection
from pathlib import Path

import pytest

from forensics.case.build import open_case
from forensics.model import Outcome, Verdict
from forensics.rules.diagnosis import diagnose
from tests.unit.frontier.short_traces import RANKS, write

LONG_MS = 900.0


def _verdict(folder: Path, kept: Collection[int], stage: str = "data", delay_ms: float = LONG_MS) -> Verdict:
    """Of traces in which rank 2 is late in a stage, those of the ranks `kept`."""
    write(folder, stage, delay_ms=delay_ms)
    for rank in {*range(RANKS)} - {*kept}:
        (folder / f"rank{rank}.pt.trace.json.gz").unlink()
    return diagnose(open_case([folder]))


@pytest.mark.parametrize(
    ("kept", "missing"), [((0, 1, 3), "rank 2"), ((0,), "ranks 1-3"), ((1, 3), "ranks 0,2")], ids=["three", "one", "two"]
)
@pytest.mark.parametrize("stage", ["data", "backward"])
def test_who_is_not_recorded_while_all_others_wait_is_where_to_begin(
    kept: Collection[int], missing: str, stage: str, tmp_path: Path
) -> None:
    verdict = _verdict(tmp_path, kept, stage)
    assert (verdict.outcome, verdict.suspects) == (Outcome.INCONCLUSIVE, ())
    assert verdict.leads[0].startswith(f"a trace or the stages of {missing}: rank")


def test_data_that_takes_most_of_the_only_trace_is_where_to_begin(tmp_path: Path) -> None:
    verdict = _verdict(tmp_path, (2,))
    assert not verdict.suspects
    assert [lead.partition(":")[0] for lead in verdict.leads] == ["data on rank 2"]


@pytest.mark.parametrize("kept", [(0, 1, 3), (0,), (2,)], ids=["the others", "another one", "the late one"])
def test_steps_that_go_to_passes_point_nowhere(kept: Collection[int], tmp_path: Path) -> None:
    verdict = _verdict(tmp_path, kept, delay_ms=0.0)
    assert (verdict.leads, verdict.suspects) == ((), ())


def test_a_rank_that_is_recorded_is_named_itself(tmp_path: Path) -> None:
    verdict = _verdict(tmp_path, range(RANKS))
    assert [suspect.ranks for suspect in verdict.suspects] == [(2,)]
    assert not verdict.leads
