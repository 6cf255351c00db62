"""Traces of too few ranks to name one: whom those recorded wait for, and what takes the only one long."""

from __future__ import annotations

from collections.abc import Collection
from pathlib import Path

import numpy as np
import pytest

from forensics.case.build import open_case
from forensics.model import Outcome, Verdict
from forensics.rules.diagnosis import diagnose
from forensics.rules.leads.frontier import frontier_leads, waits_least
from forensics.rules.reductions.frontier.in_calls import InCalls
from forensics.rules.reductions.frontier.reading import FrontierWindows
from forensics.rules.reductions.frontier.verdicts import FrontierWindow
from forensics.rules.reductions.pipeline.device_work import DeviceWork
from forensics.rules.reductions.pipeline.traced_work import TracedWork
from tests.unit.frontier.jobs import matrix
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


@pytest.mark.parametrize(
    ("passes_ms", "begins_with"),
    [
        ((2, 75, 3, 2), "forward and backward on rank 1: 72"),
        ((2, 75, 70, 2), None),
        ((2, 75, 40, 38), None),
        ((2, 4, 2, 2), None),
        ((2, 75), None),
    ],
    ids=["one works", "two do", "others wait inside", "short", "two ranks"],
)
def test_whose_passes_alone_are_long_in_a_pipeline_of_hosts(passes_ms: Collection[float], begins_with: str | None) -> None:
    step = [[1.0] * len(passes_ms), [each / 2 for each in passes_ms], [each / 2 for each in passes_ms], [1.0] * len(passes_ms)]
    step.append([100.0 - sum(column) for column in zip(*step, strict=True)])
    found = matrix(np.array([step] * 6), messages=True)
    nobody = DeviceWork()
    leads = list(frontier_leads(FrontierWindows((FrontierWindow(found),)), InCalls({}), nobody, TracedWork(nobody)))
    assert [lead[: len(begins_with or "")] for lead in leads] == ([begins_with] if begins_with else [])


@pytest.mark.parametrize(
    ("shares", "staged", "rank"),
    [
        ((0.85, 0.82, 0.9, 0.09), False, 3),
        ((0.85, 0.82, 0.9, 0.09), True, None),
        ((0.85, 0.82, 0.3, 0.09), False, None),
        ((0.4, 0.42, 0.45, 0.09), False, None),
        ((0.85, 0.82, 0.9, 0.45), False, None),
        ((0.85, 0.09), False, None),
        ((), False, None),
    ],
    ids=["one works", "stages say more", "two work", "little is waited", "it waits too", "two ranks", "no calls"],
)
def test_who_hardly_waits_while_all_others_do_is_where_to_begin(
    shares: Collection[float], staged: bool, rank: int | None
) -> None:
    windows = FrontierWindows((FrontierWindow(matrix(np.ones((6, 5, 4)))),) if staged else ())
    leads = list(waits_least(InCalls(dict(enumerate(shares))), windows))
    assert [lead.partition(":")[0] for lead in leads] == ([] if rank is None else [f"what takes rank {rank} long"])
