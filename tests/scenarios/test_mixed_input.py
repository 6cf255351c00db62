"""Dumps that do not belong together, or are too few: another job, another time, another attempt, half of the ranks."""

from __future__ import annotations

import pickle
from pathlib import Path

import pytest

from tests.recordings.collection import loose, write
from tests.recordings.commands import Command, command
from tests.recordings.hang import CULPRIT, hung
from tests.recordings.job import SECOND, Job, as_pickle
from tests.recordings.verdicts import blamed, named, verdict_of, warned


@pytest.fixture
def forensics(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Command:
    return command(monkeypatch, capsys)


def test_a_dump_of_another_job_is_left_out_and_named(tmp_path: Path, forensics: Command) -> None:
    folder = loose(hung(), tmp_path / "dumps", ranks=(0, 1, 2))
    loose(hung(steps=30), folder, ranks=(3,), skew_ns={3: -48 * 3600 * SECOND})
    answer = forensics("diagnose", folder)
    assert "nccl_trace_rank_3" in answer.out and "left out" in answer.out
    assert answer.out.splitlines()[0].startswith("HANG  rank 2 ")


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


def test_a_few_dumps_of_another_job_are_left_out(tmp_path: Path) -> None:
    verdict = verdict_of(write(loose(hung(), tmp_path, ranks=(1, 2, 3)), of_another_job((0,))))
    assert named(verdict) == {CULPRIT}
    assert "nccl_trace_rank_0" in warned(verdict)


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


def test_dumps_that_are_all_hours_apart_accuse_nobody(tmp_path: Path) -> None:
    verdict = verdict_of(loose(hung(), tmp_path, skew_ns={rank: 5 * rank * 3600 * SECOND for rank in range(4)}))
    assert not verdict.suspects
    assert len(warned(verdict)) == 4
    assert "telemetry_limited" in {label.label for label in verdict.labels}


def test_a_schema_of_the_future_everywhere(tmp_path: Path) -> None:
    dumps = {f"rank{rank}.pickle": pickle.dumps({**hung().dump(rank), "version": "99.0"}, 2) for rank in range(4)}
    verdict = verdict_of(write(tmp_path, dumps))
    assert named(verdict) <= {CULPRIT}
    assert len(warned(verdict)) == 4


def test_members_that_are_code_everywhere(tmp_path: Path) -> None:
    marker = tmp_path / "marker"
    code = f"[__import__('os').system('touch {marker}')]"
    config = {"0": {"name": "0", "desc": "default_pg", "ranks": code}}
    dumps = {f"rank{rank}.pickle": {**hung(backend="nccl").dump(rank), "pg_config": config} for rank in range(4)}
    verdict = verdict_of(write(tmp_path / "dumps", {path: pickle.dumps(dump, 2) for path, dump in dumps.items()}))
    assert not marker.exists()
    assert named(verdict) <= {CULPRIT}


def test_two_different_dumps_of_one_rank_accuse_nobody_else(tmp_path: Path) -> None:
    """Somebody copied dumps of two attempts into one folder."""
    folder = loose(hung(), tmp_path)
    old = hung(steps=4)
    old_dumps = {f"nccl_trace_rank_{rank}": as_pickle(old.dump(rank, skew_ns=-900 * SECOND)) for rank in (0, 3)}
    write(folder / "attempt1", old_dumps)
    verdict = verdict_of(folder)
    assert named(verdict) <= {CULPRIT}
    assert any(path.startswith("attempt1/") for path in warned(verdict))


def test_one_dump_under_two_ranks_is_told(tmp_path: Path) -> None:
    folder = loose(hung(), tmp_path, ranks=(0, 1, 3))
    content = (folder / "nccl_trace_rank_0").read_bytes()
    (folder / "nccl_trace_rank_2").write_bytes(content)
    assert any("same bytes" in message for message in warned(verdict_of(folder))["nccl_trace_rank_2"])


@pytest.mark.parametrize("backend", ["gloo", "nccl"])
@pytest.mark.parametrize("kept", [(1, 3), (0, 3), (3,)])
def test_with_half_of_the_ranks_missing_no_victim_is_named(tmp_path: Path, kept: tuple[int, ...], backend: str) -> None:
    """The culprit is among those that left nothing; who it is cannot be told."""
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
