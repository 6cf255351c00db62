"""Real jobs with pipelines over gloo, which records no messages: who stopped, in which pass of which microbatch, or nobody."""

from __future__ import annotations

import shutil
import tarfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.live import inputs
from tests.live.commands import collect, diagnose
from tests.live.harness import DumpRequest, Job, launch
from tests.live.pipeline_inputs import BACKWARD, FORWARD, Pass, activation_store, kernel_lock, routing_tables

pytestmark = pytest.mark.live

STEPS, MICROBATCHES, WORLD = 2000, 6, 8
deep = pytest.mark.deep


@contextmanager
def offloaded(folder: Path, odd: Pass | None, dumps: DumpRequest = DumpRequest.PIPE) -> Iterator[Job]:
    """Four ranks; the store of activations never answers the pass `odd`."""
    with (
        activation_store(folder / "store", odd, None),
        launch("train_offloaded.py", [str(folder / "store")], dumps=dumps) as job,
    ):
        yield job


@contextmanager
def routed(folder: Path, odd: Pass, split: int) -> Iterator[Job]:
    """Eight ranks in four stages; somebody else holds the lock that the pass `odd` wants."""
    routing_tables(folder, WORLD, STEPS, MICROBATCHES, odd)
    arguments = ["--folder", str(folder), "--tensor-parallel", str(split)]
    with (
        inputs.held_lock(kernel_lock(folder, odd)),
        launch("train_routed.py", arguments, world=WORLD, dumps=DumpRequest.PIPE) as job,
    ):
        yield job


def without(bundle: Path, folder: Path, *kinds: str) -> Path:
    """The bundle unpacked, without some of what was collected of each rank."""
    with tarfile.open(bundle) as tar:
        tar.extractall(folder, filter="data")
    for kind in kinds:
        for path in folder.glob(f"ranks/*/{kind}"):
            shutil.rmtree(path)
    (folder / "SHA256SUMS").unlink()
    return folder


def is_named(verdict: dict[str, Any], odd: Pass, microbatch: int | None) -> None:
    """Whether the verdict has the pass and nobody else."""
    assert [suspect["ranks"] for suspect in verdict["suspects"]] == [[odd.rank]], verdict["summary"]
    stage = verdict["suspects"][0]["stage"]
    assert (verdict["outcome"], stage["name"], stage["microbatch"]) == ("hang", odd.direction, microbatch)


@pytest.mark.parametrize(
    "odd",
    [
        Pass(0, 12, FORWARD, 1),
        Pass(3, 11, BACKWARD, 1),
        pytest.param(Pass(1, 13, FORWARD, 3), marks=deep),
        pytest.param(Pass(0, 14, BACKWARD, 2), marks=deep),
        pytest.param(Pass(3, 12, FORWARD, 0), marks=deep),
        pytest.param(Pass(2, 12, BACKWARD, 3), marks=deep),
    ],
    ids=lambda odd: f"{odd.rank}-{odd.direction}-{odd.microbatch}",
)
def test_two_stages(tmp_path: Path, odd: Pass) -> None:
    """All that was collected shows the microbatch as well; without dumps stacks and the kernel tell the rank and the pass."""
    with offloaded(tmp_path, odd) as job:
        job.wait_hang()
        collect(job, tmp_path / "bundle.tar")
    is_named(diagnose(tmp_path / "bundle.tar"), odd, odd.microbatch)
    is_named(diagnose(without(tmp_path / "bundle.tar", tmp_path / "no-dumps", "fr", "logs")), odd, None)


@deep
def test_dumps_without_call_paths_tell_no_microbatch(tmp_path: Path) -> None:
    """The worker server leaves the frames out, so that forward and backward collectives look the same."""
    odd = Pass(2, 12, FORWARD, 2)
    with offloaded(tmp_path, odd, DumpRequest.SERVER) as job:
        job.wait_hang()
        collect(job, tmp_path / "bundle.tar")
    is_named(diagnose(tmp_path / "bundle.tar"), odd, None)


@pytest.mark.parametrize(
    ("odd", "split", "microbatch"),
    [
        (Pass(5, 12, BACKWARD, 3), 2, 3),
        pytest.param(Pass(3, 12, FORWARD, 5), 2, 5, marks=deep),
        pytest.param(Pass(5, 12, BACKWARD, 2), 1, None, marks=deep),
    ],
    ids=["tensor-parallel", "tensor-parallel-forward", "replicas"],
)
def test_four_stages(tmp_path: Path, odd: Pass, split: int, microbatch: int | None) -> None:
    """Where passes have no collectives nothing shows the microbatch."""
    with routed(tmp_path, odd, split) as job:
        job.wait_hang()
        collect(job, tmp_path / "bundle.tar")
    is_named(diagnose(tmp_path / "bundle.tar"), odd, microbatch)


@pytest.mark.alone
def test_a_sound_pipeline(tmp_path: Path) -> None:
    with offloaded(tmp_path, None, DumpRequest.SERVER) as job:
        job.wait_steps(20)
        collect(job, tmp_path / "bundle.tar")
        job.wait_steps(job.lines(0) + 2)
    verdict = diagnose(tmp_path / "bundle.tar")
    assert verdict["suspects"] == [], verdict["summary"]
    assert verdict["outcome"] in ("healthy", "inconclusive"), verdict["summary"]


@pytest.mark.alone
def test_a_slowed_pipeline(tmp_path: Path) -> None:
    """The store answers one pass of a rank late, in every step from one on."""
    with (
        activation_store(tmp_path / "store", Pass(3, 15, FORWARD, 1), 0.6, lasts=True),
        launch("train_offloaded.py", [str(tmp_path / "store")]) as job,
    ):
        job.wait_steps(32)
        collect(job, tmp_path / "bundle.tar")
    verdict = diagnose(tmp_path / "bundle.tar")
    assert verdict["outcome"] == "slowdown", verdict["summary"]
    assert [suspect["ranks"] for suspect in verdict["suspects"]] == [[3]], verdict["summary"]
