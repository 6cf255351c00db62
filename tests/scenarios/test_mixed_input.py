"""Dumps that do not belong together, or are too few: another job, another time, another attempt, half of the ranks."""

from __future__ import annotations

import pickle
from pathlib import Path

import pytest

from tests.recordings.collection import loose, write
from tests.recordings.hang import CULPRIT, hung
from tests.recordings.job import SECOND, Job, as_pickle
from tests.recordings.verdicts import blamed, named, verdict_of, warned


def of_another_job(ranks: tuple[int, ...]) -> dict[str, bytes]:
    """Dumps of a job that gathers tokens, a little later."""
    job = Job(4, "gloo")
    for _ in range(20):
        job.call(job.everyone, "all_gather", shapes=((77,),))
    job.hang({1}, kind="all_gather")
    return {f"nccl_trace_rank_{rank}": as_pickle(job.dump(rank, skew_ns=60 * SECOND)) for rank in ranks}


def test_two_jobs_in_one_folder_without_a_majority_accuse_nobody(tmp_path: Path) -> None:
    folder = write(loose(hung(), tmp_path, ranks=(0, 2)), of_another_job((1, 3)))
    verdict = verdict_of(folder)
    assert not named(verdict)
    assert len(warned(verdict)) == 4


def test_experts_with_loads_of_their_own_are_one_job(tmp_path: Path) -> None:
    """Every rank sends another number of tokens in every all-to-all: no two dumps agree on a size."""
    job = Job(4, "nccl")
    for step in range(20):
        for rank in range(4):
            job.call(job.everyone, "all_to_all", [rank], shapes=((100 + 7 * step + rank, 64),))
    job.hang({CULPRIT}, kind="all_to_all")
    verdict = verdict_of(loose(job, tmp_path))
    assert not warned(verdict)
    assert named(verdict) == {CULPRIT}


def test_a_schema_of_the_future_everywhere(tmp_path: Path) -> None:
    dumps = {f"rank{rank}.pickle": pickle.dumps({**hung().dump(rank), "version": "99.0"}, 2) for rank in range(4)}
    verdict = verdict_of(write(tmp_path, dumps))
    assert named(verdict) <= {CULPRIT}
    assert len(warned(verdict)) == 4


@pytest.mark.parametrize("backend", ["gloo", "nccl"])
@pytest.mark.parametrize("kept", [(1, 3), (0, 3), (3,)])
def test_with_half_of_the_ranks_missing_no_victim_is_named(tmp_path: Path, kept: tuple[int, ...], backend: str) -> None:
    """The culprit is among those that left nothing; who it is cannot be known."""
    verdict = verdict_of(loose(hung(backend=backend), tmp_path, ranks=kept))
    assert not named(verdict) & set(kept)
    assert not blamed(verdict)
    for suspect in verdict.suspects:
        assert CULPRIT in suspect.ranks
        assert suspect.members == "one_of"


@pytest.mark.parametrize("backend", ["gloo", "nccl"])
@pytest.mark.parametrize("odd", [0, 1])
def test_with_every_other_dump_of_sixteen_the_answer_is_weaker(tmp_path: Path, odd: int, backend: str) -> None:
    """With the culprit's dump it is found with less confidence; without it no rank that was heard is named."""
    job = Job(16, backend)
    job.steps(12)
    job.hang({5})
    verdict = verdict_of(loose(job, tmp_path, ranks=range(odd, 16, 2)))
    assert not blamed(verdict)
    assert all(5 in suspect.ranks for suspect in verdict.suspects)
    assert {label.axis for label in verdict.labels if label.label == "telemetry_limited"} >= {"ranks", "stacks"}
    assert named(verdict) == {5} if odd else not named(verdict) & set(range(0, 16, 2))


def test_without_any_sign_of_the_other_half_nobody_is_blamed(tmp_path: Path) -> None:
    """gloo does not say how large the world is: two ranks look like all there are."""
    assert not blamed(verdict_of(loose(hung(), tmp_path, ranks=(0, 1))))
