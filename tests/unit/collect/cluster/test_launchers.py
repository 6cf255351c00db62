"""Whole collections through commands that behave like those of a cluster: each way in which a host may fail is a fact."""

from __future__ import annotations

import json
import os
import signal
import threading
from pathlib import Path

import pytest

from forensics.bundle.layout import Status
from forensics.bundle.reader import open_bundle
from forensics.bundle.verification import Weight, verify
from forensics.case.build import open_case
from forensics.collect.cluster.exchange import NUMBER, Delivery
from forensics.collect.cluster.gathering import Pace
from forensics.collect.cluster.launchers import Places, targets
from forensics.collect.cluster.session import WholeJob, collect_job
from forensics.errors import ExitCode, ForensicsError
from tests.unit.collect.cluster.stand_ins import host_bundle, install

COMMAND = ["forensics", "collect", "--send", NUMBER, "--job=77"]
PACE = Pace(width=16, node_s=8.0, all_s=60.0)
# How a host behaves, and what is said of it.
EVERYWHERE = {
    "good1": (Status.OK, ""),
    "good2": (Status.OK, ""),
    "banner1": (Status.OK, ""),
    "newer1": (Status.OK, "forensics 99.1"),
    "dead1": (Status.NODE_UNREACHABLE, "exit"),
    "mute1": (Status.NODE_UNREACHABLE, "no answer within 8 s"),
    "slow1": (Status.TIMEOUT, "began to collect"),
    "rubbish1": (Status.NODE_UNREACHABLE, "that are no bundle"),
    "missing1": (Status.NOT_FOUND, "--remote-command"),
    "old1": (Status.UNSUPPORTED, "No such option: --send"),
    "crash1": (Status.KILLED, "exit 137: Killed"),
    "refuses1": (Status.KILLED, "ended with 5: the disk is full"),
    "cut1": (Status.PARTIAL, "bytes of its bundle came"),
    "stalls1": (Status.PARTIAL, "came within 8 s"),
    "liar1": (Status.PARTIAL, "another digest"),
    "noise1": (Status.PARTIAL, "no bundle"),
}
SENDERS = ("good1", "good2", "banner1", "newer1", "cut1", "stalls1", "liar1", "noise1")


@pytest.fixture
def cluster(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Hosts with two ranks each; the rest of the ranks is nowhere."""
    bundles = tmp_path / "bundles"
    bundles.mkdir()
    for index, name in enumerate(SENDERS):
        host_bundle(bundles / f"{name}.tar", name, {2 * index: "alive", 2 * index + 1: "alive"}, world=32)
    install(tmp_path / "bin", bundles)
    monkeypatch.setenv("PATH", f"{tmp_path / 'bin'}:{os.environ['PATH']}")
    monkeypatch.setenv("SLURM_GPUS", "8")
    monkeypatch.setenv("STAND_IN_NODES", ",".join(EVERYWHERE))
    pods = [{"metadata": {"name": name}, "status": {"phase": "Running"}} for name in EVERYWHERE]
    pods.append({"metadata": {"name": "waiting"}, "status": {"phase": "Pending"}})
    monkeypatch.setenv("STAND_IN_PODS", json.dumps({"items": pods}))
    return tmp_path


def collected(places: Places, output: Path, pace: Pace = PACE) -> WholeJob:
    return collect_job(targets(places, COMMAND), output, pace)


@pytest.mark.parametrize(
    "places",
    [
        Places(hosts=",".join(f"root@{name}" for name in EVERYWHERE)),
        Places(slurm="77"),
        Places(k8s="app=train", namespace="ml", container="trainer"),
    ],
    ids=["ssh", "srun", "kubectl"],
)
@pytest.mark.slow
def test_whatever_hosts_do_is_a_fact(places: Places, cluster: Path) -> None:
    written = collected(places, cluster / "job.tar")
    found = {one.name: (one.status, one.reason or "") for one in written.deliveries}
    waiting = found.pop("waiting", None)
    assert {name: status for name, (status, _) in found.items()} == {name: status for name, (status, _) in EVERYWHERE.items()}
    for name, (_, words) in EVERYWHERE.items():
        assert words in found[name][1], found[name]
    assert waiting is None or waiting == (Status.NODE_UNREACHABLE, "the pod is Pending, not running")
    assert {rank for rank, state in written.ranks.items() if state == "alive"} >= set(range(8))
    assert written.offsets.keys() >= {"good1", "good2", "banner1", "newer1"}
    assert all(abs(offset) <= bound for _, offset, bound in written.offsets.values())
    assert all(bound < 1_000_000_000 for _, _, bound in written.offsets.values())
    assert not list(cluster.glob("*.partial*"))
    assert written.exit_code(strict=False) == 0
    assert written.exit_code(strict=True) == ExitCode.PARTIAL


def test_a_host_without_bundle_is_in_the_coverage_and_no_error_of_the_bundle(cluster: Path) -> None:
    collected(Places(hosts="good1,dead1"), cluster / "job.tar")
    connection = open_case([cluster / "job.tar"])
    rows = connection.execute("SELECT host, status, reason FROM coverage WHERE kind = 'host.bundle' AND reason IS NOT NULL")
    assert rows.fetchall() == [
        ("dead1", "node_unreachable", "exit 255: ssh: connect to host dead1 port 22: Connection timed out")
    ]
    ((host, reference, bound),) = connection.execute(
        "SELECT host, reference, bound_ns FROM clocks WHERE reference IS NOT NULL"
    ).fetchall()
    assert (host, reference) == ("good1", os.uname().nodename)
    assert 0 < bound < 1_000_000_000
    found = verify(open_bundle([cluster / "job.tar"]))
    assert [one for one in found if one.weight is Weight.ERROR] == []
    assert any("host.bundle of host: node_unreachable" in one.message for one in found)


@pytest.mark.slow
def test_what_is_not_reached_in_the_time_of_all_is_said(cluster: Path) -> None:
    written = collected(Places(hosts="mute1,mute2,good1"), cluster / "job.tar", Pace(width=1, node_s=60.0, all_s=3.0))
    found = {one.name: one for one in written.deliveries}
    assert found["good1"].status is Status.OK
    assert found["mute1"].status is Status.NODE_UNREACHABLE
    assert found["mute2"].status is Status.TIMEOUT
    assert "before its turn" in (found["mute2"].reason or "")


def test_an_interrupt_ends_it_with_what_came(cluster: Path) -> None:
    def heard(delivery: Delivery, done: int, total: int) -> None:
        if done == 1:
            threading.Timer(0.1, os.kill, (os.getpid(), signal.SIGINT)).start()

    aims = targets(Places(hosts="good1,mute1"), COMMAND)
    written = collect_job(aims, cluster / "job.tar", Pace(width=16, node_s=60.0, all_s=60.0), heard=heard)
    assert written.exit_code(strict=False) == ExitCode.INTERRUPTED
    assert {one.name: one.status for one in written.deliveries} == {"good1": Status.OK, "mute1": Status.KILLED}
    with (cluster / "job.tar").open("rb") as stream:
        assert b'"interrupted": true' in stream.read()


@pytest.mark.parametrize(
    ("places", "words"),
    [
        (Places(hosts="a["), "brackets"),
        (Places(slurm="77; reboot"), "not the number of a job"),
        (Places(slurm="78"), "squeue"),
    ],
)
def test_what_cannot_be_asked_is_one_line(places: Places, words: str, cluster: Path) -> None:
    with pytest.raises(ForensicsError, match=words):
        targets(places, COMMAND)


def test_a_cluster_without_the_command_says_which(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(ForensicsError, match="squeue: No such file"):
        targets(Places(slurm="77"), COMMAND)
    (delivery,) = collect_job(targets(Places(hosts="a"), COMMAND), tmp_path / "job.tar", PACE).deliveries
    assert (delivery.status, delivery.reason) == (Status.NODE_UNREACHABLE, "ssh: No such file or directory")
