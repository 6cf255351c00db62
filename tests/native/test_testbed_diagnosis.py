"""Faults of the test bed, diagnosed from the logs of the real collector alone: the rank, and whether it was the network."""

from __future__ import annotations

import signal
from collections.abc import Mapping
from pathlib import Path

import pytest

from forensics.bundle.layout import Status
from forensics.bundle.reader import open_bundle
from forensics.case.build import open_case
from forensics.collect.session import Options, collect
from forensics.collect.target import Settings
from forensics.model import Cause, Confidence, Mechanism, Members, Outcome, Verdict
from forensics.rules.diagnosis import diagnose
from forensics.shim.status import log_files, statuses
from tests.native.shim_scenarios import SQUARE, STAGES, Recording, hung_logs, loaded
from tests.native.testbed import Job, Shape, built, start

pytestmark = pytest.mark.slow

RING = Shape(dp=4, per_host=1)
MIXED = Shape(tp=2, dp=2, pp=2, per_host=4)


def verdict_of(folder: Path, logs: Mapping[int, bytes]) -> Verdict:
    """The verdict on loose logs, as somebody copied them."""
    place = folder / "copied"
    place.mkdir()
    for rank, content in logs.items():
        (place / f"host.{rank}.{100 + rank}.1.frx").write_bytes(content)
    return diagnose(open_case([place]))


def hung(shim: Path, folder: Path, recording: Recording) -> Verdict:
    return verdict_of(folder, hung_logs(shim, folder, recording))


@pytest.mark.parametrize(
    ("recording", "rank"),
    [
        (Recording("never_calls:rank=1,step=1"), 1),
        (Recording("never_calls:rank=5,step=1", MIXED), 5),
        (Recording("compute_stall:rank=2,step=1"), 2),
        (Recording("compute_stall:rank=2,step=1", RING), 2),
        (Recording("skip:rank=1,step=5", Shape(dp=4, per_host=1, steps=8)), 1),
        (Recording("wrong_size:rank=1,step=1"), 1),
    ],
    ids=lambda value: value.fault if isinstance(value, Recording) else "",
)
def test_the_rank_that_does_not_do_what_the_others_do(recording: Recording, rank: int, shim: Path, tmp_path: Path) -> None:
    verdict = hung(shim, tmp_path, recording)
    assert verdict.outcome is Outcome.HANG
    assert verdict.suspects[0].ranks == (rank,)
    assert not {Cause.NETWORK_DOWN, Cause.PROXY_DELAY} & {suspect.cause for suspect in verdict.suspects}
    assert {suspect.fault for suspect in verdict.suspects} == {1}


def test_a_stalled_gpu_inside_an_operation_that_its_host_has_entered(shim: Path, tmp_path: Path) -> None:
    first = hung(shim, tmp_path, Recording("compute_stall:rank=2,step=1", STAGES)).suspects[0]
    assert (first.ranks, first.cause, first.mechanism) == ((2,), Cause.COMPUTE_HANG, Mechanism("gpu_not_ready", "local"))


def test_reordered_collectives_name_the_two_orders(shim: Path, tmp_path: Path) -> None:
    first = hung(shim, tmp_path, Recording("reorder:rank=1,step=1")).suspects[0]
    assert (first.ranks, first.cause) == ((0, 1), Cause.DEADLOCK)


def test_credit_that_is_withheld(shim: Path, tmp_path: Path) -> None:
    first = hung(shim, tmp_path, Recording("credit_withheld:rank=2,step=1")).suspects[0]
    assert (first.ranks, first.cause, first.mechanism) == ((2,), Cause.PROXY_DELAY, Mechanism("not_transmitted", "remote"))


@pytest.mark.parametrize(
    ("recording", "ends"),
    [
        (Recording("link_down:rank=0,peer=2,step=1,oneway=1"), (0, 2)),
        (Recording("link_down:rank=0,peer=2,step=1,oneway=1,ms=200"), (0, 2)),
    ],
    ids=("silent", "reported"),
)
def test_a_link_that_is_down(recording: Recording, ends: tuple[int, ...], shim: Path, tmp_path: Path) -> None:
    first = hung(shim, tmp_path, recording).suspects[0]
    assert (first.ranks, first.members, first.cause) == (ends, Members.ONE_OF, Cause.NETWORK_DOWN)
    assert first.confidence is Confidence.CONFIRMED
    assert first.resource is not None and first.resource.queue_pair


def test_a_link_of_a_ring_is_found_among_four(shim: Path, tmp_path: Path) -> None:
    first = hung(shim, tmp_path, Recording("link_down:rank=2,peer=3,step=1,oneway=1", RING)).suspects[0]
    assert set(first.ranks) <= {2, 3} and first.cause is Cause.NETWORK_DOWN


def test_a_request_that_its_nic_refuses(shim: Path, tmp_path: Path) -> None:
    first = hung(shim, tmp_path, Recording("cqe_error:rank=0,peer=2,step=1,status=10,after=3")).suspects[0]
    assert (first.ranks, first.rules[0]) == ((0,), "FX145")
    assert "status 10" in first.evidence[0].statement


@pytest.mark.parametrize("fault", ["kill", "stop"])
def test_a_process_that_shows_no_life(fault: str, shim: Path, tmp_path: Path) -> None:
    recording = Recording(f"{fault}:rank=2,step=1", env={"TESTBED_RETRY_MS": "200"}, quiet=7.0)
    first = hung(shim, tmp_path, recording).suspects[0]
    assert (first.ranks, first.rules[0]) == ((2,), "FX146")


@pytest.mark.alone
@pytest.mark.parametrize("fault", ["", "late:rank=1,step=1,us=20000", "jitter:us=3000"])
def test_what_only_slows_a_few_steps_accuses_nobody(fault: str, shim: Path, tmp_path: Path) -> None:
    with start(built(), tmp_path / "job", SQUARE, fault, env=loaded(shim, tmp_path / "logs")) as job:
        assert job.finish() == [0] * 4
    verdict = diagnose(open_case([tmp_path / "logs"]))
    assert verdict.outcome in (Outcome.HEALTHY, Outcome.INCONCLUSIVE) and not verdict.suspects


@pytest.mark.alone
def test_a_job_in_the_middle_of_its_work_accuses_nobody(shim: Path, tmp_path: Path) -> None:
    shape = Shape(pp=2, dp=2, per_host=1, steps=2000)
    with start(built(), tmp_path / "job", shape, "jitter:us=2000", env=loaded(shim, tmp_path / "logs")) as job:
        for step in (3, 9, 17):
            job.until(lambda step=step: job.places()[0].step >= step)  # type: ignore[misc]
            verdict = diagnose(open_case([tmp_path / "logs"]))
            assert verdict.suspects == (), verdict.summary


def test_preloading_alone_still_tells_who_is_behind(shim: Path, tmp_path: Path) -> None:
    recording = Recording("never_calls:rank=1,step=1", env={"NCCL_PROFILER_PLUGIN": "none"})
    verdict = hung(shim, tmp_path, recording)
    assert verdict.suspects[0].ranks == (1,)
    missing = {outcome.rule for outcome in verdict.ruled_out if outcome.status == "not_applicable"}
    assert {"FX142", "FX143", "FX144"} <= missing, "without the profiler hook nothing is known of chunks"


def test_the_log_of_one_rank_accuses_nobody(shim: Path, tmp_path: Path) -> None:
    logs = hung_logs(shim, tmp_path, Recording("never_calls:rank=1,step=1"))
    assert verdict_of(tmp_path, {0: logs[0]}).suspects == ()


def test_the_logs_are_collected_with_the_ranks_dead_or_alive(shim: Path, tmp_path: Path) -> None:
    bundle = tmp_path / "bundle.tar"

    def collected(job: Job) -> None:
        job.processes[3].send_signal(signal.SIGKILL)
        job.processes[3].wait()
        pids = tuple(process.pid for process in job.processes[:3])
        settings = Settings(samples=1, recorder_gap_s=0.1, stack_s=1.0, answer_s=0.5, use_pipe=False)
        collect(Options(bundle, pids=pids, settings=settings, deadline_s=60))

    hung_logs(shim, tmp_path, Recording("never_calls:rank=1,step=1"), collected)
    opened = open_bundle([bundle])
    logs = [artefact for artefact in opened.artefacts if "/shim/" in artefact.path]
    assert {artefact.rank for artefact in logs} >= {0, 1, 2}
    assert all(artefact.captured_ns for artefact in logs)
    connection = open_case([bundle])
    said = connection.execute("SELECT DISTINCT status FROM coverage WHERE kind = 'shim.log' AND rank < 3").fetchall()
    assert said == [(Status.OK.value,)]
    assert diagnose(connection).suspects[0].ranks == (1,)


def test_the_status_of_a_living_job(shim: Path, tmp_path: Path) -> None:
    def looked(job: Job) -> None:
        found = list(statuses(log_files(tmp_path / "logs")))
        assert [one.rank for one in found] == [0, 1, 2, 3]
        assert all(one.alive and one.problem is None and one.state == "recording" for one in found)
        assert all({"nccl", "profiler"} <= set(one.called) for one in found)
        counts = {one.rank: {c.communicator: c.operations for c in one.communicators if c.size == 4} for one in found}
        assert set(counts[1].values()) == {1} and set(counts[0].values()) == {2}
        assert {one.pid for one in found} == {process.pid for process in job.processes}

    hung_logs(shim, tmp_path, Recording("never_calls:rank=1,step=1"), looked)
    assert not any(one.alive is True for one in statuses(log_files(tmp_path / "logs")))
