"""Local ranks in the log of one pod, or of one worker, of several: they are no ranks of the job."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.recordings.verdicts import named, verdict_of

ENDED = "E1003 11:02:41.1 1 torch/distributed/elastic/multiprocessing/api.py:874] failed (exitcode: -9) local_rank: 1 (pid: 83)"


@pytest.mark.first(6)
@pytest.mark.parametrize(
    ("name", "front", "is_named"),
    [
        ("job.log", "", True),
        ("job.log", "[pod/sft-0/main] ", True),
        ("job.log", "[pod/sft-3/main] ", False),
        ("job.log", "[pod/sft-worker-12/main] ", False),
        ("sft-worker-2.log", "", False),
        ("worker1.out", "", False),
    ],
)
def test_a_local_rank_of_a_pod_or_worker_that_is_not_the_first_is_no_rank(
    tmp_path: Path, name: str, front: str, is_named: bool
) -> None:
    """Whether the logs of the others are here or not."""
    (tmp_path / name).write_text(f"{front}step 10/500 loss 2.1\n{front}{ENDED}\n")
    assert named(verdict_of(tmp_path)) == ({1} if is_named else set())


@pytest.mark.parametrize(("pod", "is_named"), [("sft-0", True), ("sft-7d9f-x2b", True), ("sft-3", False)])
def test_the_pod_of_an_export_counts_where_it_is_the_only_one(tmp_path: Path, pod: str, is_named: bool) -> None:
    lines = ("step 10/500 loss 2.1", ENDED, "ChildFailedError: ")
    records = [{"timestamp": f"2025-10-03T11:02:4{at}Z", "pod": pod, "line": line} for at, line in enumerate(lines)]
    (tmp_path / "export.json").write_text(json.dumps(records))
    assert named(verdict_of(tmp_path)) == ({1} if is_named else set())


@pytest.mark.parametrize(("stream", "is_named"), [("ft/algo-1-17398", True), ("ft/algo-2-17398", False)])
def test_the_host_of_a_stream_of_sagemaker_counts_where_it_is_the_only_one(tmp_path: Path, stream: str, is_named: bool) -> None:
    lines = ("step 10/500 loss 2.1", ENDED, "ChildFailedError: ")
    records = [{"timestamp": 1759489361000 + at, "logStreamName": stream, "message": line} for at, line in enumerate(lines)]
    (tmp_path / "export.json").write_text(json.dumps({"events": records}))
    assert named(verdict_of(tmp_path)) == ({1} if is_named else set())
