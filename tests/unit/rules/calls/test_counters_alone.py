"""Dumps that hold counters of groups and no calls: who is behind by them is a suspect, where they fit one moment."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from forensics.model import Confidence, Verdict
from tests.recordings.verdicts import named, verdict_of

Counted = tuple[int, int]


def counted(folder: Path, counters: list[Counted]) -> Verdict:
    """The verdict on dumps of one group: what each rank enqueued last, and what it completed last."""
    for rank, (enqueued, completed) in enumerate(counters):
        status = {
            "last_enqueued_collective": enqueued,
            "last_started_collective": enqueued,
            "last_completed_collective": completed,
        }
        ranks = str([*range(len(counters))])
        dump = {
            "version": "2.10",
            "pg_config": {"0": {"name": "0", "desc": "default_pg", "ranks": ranks}},
            "pg_status": {"0": status},
            "entries": [],
        }
        (folder / f"nccl_trace_rank_{rank}.json").write_text(json.dumps(dump))
    return verdict_of(folder)


def test_the_rank_that_enqueued_less_is_a_suspect(tmp_path: Path) -> None:
    verdict = counted(tmp_path, [(71, 70), (71, 70), (70, 70), (73, 70)])
    (suspect,) = verdict.suspects
    assert (suspect.ranks, suspect.confidence) == ((2,), Confidence.SUSPECT)
    assert any("hold no calls" in each.statement and not each.supports for each in suspect.evidence)
    assert suspect.evidence[0].source == "nccl_trace_rank_2.json#pg_config=0"


@pytest.mark.parametrize(
    "counters",
    [
        [(71, 70)] * 4,
        [(71, 71)] * 4,
        [(71, 70), (71, 70), (68, 68), (71, 70)],
        [(100, 100), (200, 199), (200, 200), (100, 100)],
        [(74, 73), (71, 70), (70, 69), (73, 72)],
    ],
    ids=["all wait", "nobody waits", "its peers went past it", "messages of a pipeline", "moments of a job that moves"],
)
def test_counters_that_show_nobody_behind_name_nobody(tmp_path: Path, counters: list[Counted]) -> None:
    assert not named(counted(tmp_path, counters))
