"""The layout in the verdict and in the case, and a configuration that the user names."""

from __future__ import annotations

import json
from pathlib import Path

import duckdb
import pytest

from tests.recordings.commands import Command
from tests.recordings.job import Job, as_pickle


@pytest.fixture
def dumps(tmp_path: Path) -> Path:
    """Four ranks that reduce in the group of all; rank 2 does not come."""
    job = Job(4)
    job.steps(12)
    job.hang({2})
    folder = tmp_path / "dumps"
    folder.mkdir()
    for rank in range(4):
        (folder / f"nccl_trace_rank_{rank}").write_bytes(as_pickle(job.dump(rank)))
    return folder


def test_the_configuration_tells_stages_and_the_case_keeps_axes(forensics: Command, dumps: Path, tmp_path: Path) -> None:
    config, case = tmp_path / "run.sh", tmp_path / "case.duckdb"
    config.write_text("#!/bin/sh\nexec torchrun train.py \\\n  --pipeline-model-parallel-size 2 \\\n  --num-layers 8\n")
    answer = forensics("diagnose", dumps, "--config", config, "--case", case, "--format", "json")
    found = json.loads(answer.out)["layout"]
    assert found["stages"] == [[0, 1], [2, 3]] and found["stage_method"] == "configured"
    with duckdb.connect(str(case), read_only=True) as kept:
        axes = [(label, row["axis"]) for row in found["axes"] for label in row["communicators"]]
        assert axes and kept.execute("SELECT communicator, role FROM communicator_roles").fetchall() == axes
        given = kept.execute("SELECT key, value FROM job_config WHERE confidence = 'given' ORDER BY key").fetchall()
    assert given == [("model.layers", "8"), ("parallel.pipeline", "2")]


def test_the_named_file_counts_before_what_was_found(forensics: Command, dumps: Path, tmp_path: Path) -> None:
    (dumps / "train.yaml").write_text("tensor_model_parallel_size: 3\npipeline_model_parallel_size: 1\n")
    found = json.loads(forensics("diagnose", dumps, "--format", "json").out)
    said = [label["reason"] for label in found["labels"] if label["axis"] == "layout"]
    assert said == ["configured sizes (tp 3) do not make 4 ranks"]
    config = tmp_path / "other.yaml"
    config.write_text("tensor_model_parallel_size: 2\npipeline_model_parallel_size: 2\n")
    found = json.loads(forensics("diagnose", dumps, "--config", config, "--format", "json").out)
    assert found["layout"]["stages"] == [[0, 1], [2, 3]]
    assert not [label for label in found["labels"] if label["axis"] == "layout"]


@pytest.mark.parametrize(
    ("content", "said"), [(None, "No such file"), ("seed: 3\n", "no setting of a training"), ("", "no setting")]
)
def test_a_file_that_is_no_configuration_is_refused(
    forensics: Command, dumps: Path, tmp_path: Path, content: str | None, said: str
) -> None:
    config = tmp_path / "train.yaml"
    if content is not None:
        config.write_text(content)
    answer = forensics("diagnose", dumps, "--config", config)
    assert answer.code == 2 and said in answer.err and answer.out == ""
