"""Whole collections from real processes that carry a rank's environment; no torch is needed for that."""

from __future__ import annotations

import hashlib
import json
import os
import signal
import subprocess
import sys
import tarfile
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from forensics.bundle.layout import member_order
from forensics.collect.session import Options, collect
from forensics.collect.staging import create_staging
from forensics.collect.summary import NoRanksError, Summary
from forensics.collect.target import Settings
from forensics.errors import ExitCode, ForensicsError

CANARY = "hf_canarycanarycanarycanary"
SLEEP = "import time; print('token', '{}', flush=True); time.sleep(120)"
QUICK = Settings(interval_s=0.05, recorder_gap_s=0.1, answer_s=0.5)


class Job:
    """Ranks that sleep, with logs of their own, under a port that no other job of this host uses."""

    def __init__(self, folder: Path, world: int) -> None:
        self.folder = folder
        self.port = str(20000 + os.getpid() % 20000)
        self.name = f"127.0.0.1:{self.port}"
        self.processes = [self._start(rank, world) for rank in range(world)]

    def _start(self, rank: int, world: int) -> subprocess.Popen[bytes]:
        environ = {
            **os.environ,
            "RANK": str(rank),
            "WORLD_SIZE": str(world),
            "MASTER_ADDR": "127.0.0.1",
            "MASTER_PORT": self.port,
            "WANDB_API_KEY": CANARY,
            "NCCL_NOTE": CANARY,
        }
        with (self.folder / f"rank{rank}.log").open("wb") as log:
            argv = [sys.executable, "-c", SLEEP.format(CANARY), "--token", CANARY]
            return subprocess.Popen(argv, env=environ, stdout=log, stderr=log)

    def wait_for_logs(self) -> None:
        while not all((self.folder / f"rank{rank}.log").stat().st_size for rank in range(len(self.processes))):
            time.sleep(0.01)

    def stop(self) -> None:
        for process in self.processes:
            process.kill()
            process.wait()


@pytest.fixture
def job(tmp_path: Path) -> Iterator[Job]:
    folder = tmp_path / "logs"
    folder.mkdir()
    started = Job(folder, 3)
    try:
        started.wait_for_logs()
        yield started
    finally:
        started.stop()


def members(path: Path) -> dict[str, bytes]:
    with tarfile.open(path) as tar:
        return {info.name: stream.read() for info in tar if (stream := tar.extractfile(info))}


def gather(tmp_path: Path, job: Job, **changes: Any) -> tuple[Summary, dict[str, bytes]]:
    options = replace(Options(tmp_path / "bundle.tar", job=job.name, settings=QUICK), **changes)
    summary = collect(options)
    return summary, members(options.output)


@pytest.mark.slow
def test_one_bundle_of_a_job_whose_rank_died(tmp_path: Path, job: Job) -> None:
    job.processes[1].kill()
    while Path(f"/proc/{job.processes[1].pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z":
        time.sleep(0.005)
    summary, found = gather(tmp_path, job)

    manifest = json.loads(found["bundle.json"])
    assert manifest["schema"] == "forensics.bundle/1"
    assert (manifest["world_size"], manifest["job_id"], manifest["interrupted"]) == (3, job.name, False)
    assert {rank: one["state"] for rank, one in manifest["ranks"].items()} == {"0": "alive", "1": "zombie", "2": "alive"}
    assert manifest["status"]["0"]["proc.tasks"] in ("ok", "partial")
    assert manifest["status"]["0"]["fr.live"] == "not_configured"
    assert manifest["status"]["1"]["log.files"] == "ok"

    dead = json.loads(found["ranks/1/rank.json"])
    assert (dead["pid"], dead["exit_signal"], dead["exit_code"]) == (job.processes[1].pid, signal.SIGKILL, None)
    alive = json.loads(found["ranks/0/rank.json"])
    assert alive["cmdline"][-2:] == ["--token", "<redacted>"]
    assert (alive["env"]["RANK"], alive["env"]["NCCL_NOTE"]) == ("0", "<redacted>")
    assert "WANDB_API_KEY" in alive["env_withheld"]
    assert found["ranks/1/logs/rank1.log"] == b"token <redacted>\n"
    assert all(f"ranks/{rank}/proc/{sample}.json" in found for rank in (0, 2) for sample in range(3))

    assert summary.exit_code(strict=False) == ExitCode.ANALYSED
    assert summary.exit_code(strict=True) == ExitCode.PARTIAL
    assert all(process.poll() is None for process in (job.processes[0], job.processes[2]))


@pytest.mark.slow
def test_nothing_secret_is_in_the_bundle_and_everything_is_accounted_for(tmp_path: Path, job: Job) -> None:
    _, found = gather(tmp_path, job)
    assert not [name for name, content in found.items() if b"canary" in content]
    redactions = json.loads(found["redactions.json"])
    assert {"rule": "hugging_face", "path": "ranks/0/logs/rank0.log", "count": 1} in redactions

    names = list(found)
    assert names[0] == "bundle.json"
    assert names[-1] == "SHA256SUMS"
    assert names == sorted(names, key=member_order)
    sums = {line[66:]: line[:64] for line in found["SHA256SUMS"].decode().splitlines()}
    assert sums == {name: hashlib.sha256(content).hexdigest() for name, content in found.items() if name != "SHA256SUMS"}

    (jsonl,) = (content for name, content in found.items() if name.endswith("collectors.jsonl"))
    runs = [json.loads(line) for line in jsonl.splitlines()]
    assert {run["path"] for run in runs if run["path"]} <= set(names)
    hashed = [run for run in runs if run["sha256"]]
    assert all(run["sha256"] == sums[run["path"]] for run in hashed)
    assert all(run["begin_ns"] <= run["end_ns"] for run in runs)


@pytest.mark.slow
def test_only_the_ranks_asked_for(tmp_path: Path, job: Job) -> None:
    summary, found = gather(tmp_path, job, ranks=frozenset({2, 9}))
    assert {name.split("/")[1] for name in found if name.startswith("ranks/")} == {"2"}
    status = json.loads(found["bundle.json"])["status"]
    assert set(status["0"].values()) == {"skipped_by_policy"}
    assert "rank 9 was asked for" in summary.warnings[-1]


@pytest.mark.slow
def test_processes_that_are_named(tmp_path: Path, job: Job) -> None:
    pids = (job.processes[2].pid, job.processes[0].pid)
    _, found = gather(tmp_path, job, pids=pids)
    ranks = json.loads(found["bundle.json"])["ranks"]
    assert {rank: one["pid"] for rank, one in ranks.items()} == {"0": pids[1], "2": pids[0]}


@pytest.mark.slow
def test_a_named_process_that_is_gone_does_not_stop_the_others(tmp_path: Path, job: Job) -> None:
    summary, found = gather(tmp_path, job, pids=(2**22 + 1, job.processes[1].pid))
    assert set(json.loads(found["bundle.json"])["ranks"]) == {"1"}
    assert any("there is no process" in warning for warning in summary.warnings)


@pytest.mark.slow
def test_a_named_process_that_is_dead_and_not_reaped_leads_to_its_job(tmp_path: Path, job: Job) -> None:
    dead = job.processes[1]
    dead.kill()
    os.waitid(os.P_PID, dead.pid, os.WEXITED | os.WNOWAIT)
    summary, found = gather(tmp_path, job, pids=(dead.pid,))
    ranks = json.loads(found["bundle.json"])["ranks"]
    assert {rank: one["state"] for rank, one in ranks.items()} == {"0": "alive", "1": "zombie", "2": "alive"}
    assert any("waits to be reaped" in warning for warning in summary.warnings)


@pytest.mark.slow
def test_an_existing_bundle_is_kept_unless_replacing_it_is_asked_for(tmp_path: Path, job: Job) -> None:
    output = tmp_path / "bundle.tar"
    output.write_bytes(b"precious")
    options = Options(output, job=job.name, settings=QUICK)
    with pytest.raises(ForensicsError, match="--force") as caught:
        collect(options)
    assert caught.value.code is ExitCode.USAGE
    assert output.read_bytes() == b"precious"
    assert [path.name for path in tmp_path.glob("bundle*")] == ["bundle.tar"]
    collect(replace(options, force=True))
    assert "bundle.json" in members(output)


def test_no_ranks(tmp_path: Path, job: Job) -> None:
    with pytest.raises(NoRanksError, match="it runs .*" + job.port) as caught:
        collect(Options(tmp_path / "bundle.tar", job="no such job", settings=QUICK))
    assert caught.value.code is ExitCode.NO_RANKS
    with pytest.raises(NoRanksError, match="there is no process"):
        collect(Options(tmp_path / "bundle.tar", pids=(2**22 + 1,), settings=QUICK))
    assert [path.name for path in tmp_path.iterdir()] == ["logs"]


def test_the_host_alone(tmp_path: Path) -> None:
    options = Options(tmp_path / "bundle.tar", host_only=True, settings=QUICK)
    summary = collect(options)
    found = members(options.output)
    assert summary.living == ()
    assert json.loads(next(found[name] for name in found if name.endswith("node.json")))["clocks"]


@pytest.mark.slow
def test_the_deadline_ends_the_collection_with_a_bundle(tmp_path: Path, job: Job) -> None:
    slow = replace(QUICK, interval_s=60.0)
    summary, found = gather(tmp_path, job, deadline_s=4.0, settings=slow)
    assert summary.cut_short
    assert json.loads(found["bundle.json"])["interrupted"] is True
    assert "ranks/0/proc/0.json" in found
    assert "ranks/0/proc/1.json" not in found


def test_an_output_that_cannot_be_written(tmp_path: Path) -> None:
    with pytest.raises(ForensicsError) as caught:
        collect(Options(tmp_path / "no/such/folder/bundle.tar", settings=QUICK))
    assert caught.value.code is ExitCode.USAGE


def test_what_an_earlier_collection_left_is_not_touched(tmp_path: Path) -> None:
    output = tmp_path / "bundle.tar"
    assert create_staging(output).root.name == "bundle.tar.partial"
    assert create_staging(output).root.name == "bundle.tar.partial-2"


COMMAND = "import typer; from forensics.cli.collect import collect; app = typer.Typer(); app.command()(collect); app()"


def start_command(output: Path, job: Job) -> subprocess.Popen[str]:
    """The command in the middle of a collection that would take minutes."""
    argv = [sys.executable, "-c", COMMAND, "-o", str(output), "--job", job.name, "--interval", "60"]
    process = subprocess.Popen(argv, stderr=subprocess.PIPE, text=True)
    while not (output.with_name("bundle.tar.partial") / "ranks/2/proc/0.json").exists():
        assert process.poll() is None, process.communicate()
        time.sleep(0.01)
    return process


def test_ctrl_c_leaves_a_valid_bundle(tmp_path: Path, job: Job) -> None:
    output = tmp_path / "bundle.tar"
    process = start_command(output, job)
    process.send_signal(signal.SIGINT)
    _, said = process.communicate()
    assert process.returncode == ExitCode.INTERRUPTED
    found = members(output)
    manifest = json.loads(found["bundle.json"])
    assert manifest["interrupted"] is True
    # The first look may be interrupted right behind its file, before it said that it was done.
    assert manifest["status"]["2"]["proc.tasks"] in ("partial", "killed")
    assert "ranks/2/proc/0.json" in found
    assert f"next: forensics diagnose {output}" in said
    assert not output.with_name("bundle.tar.partial").exists()


def test_a_collection_that_is_killed_leaves_a_readable_directory(tmp_path: Path, job: Job) -> None:
    output = tmp_path / "bundle.tar"
    process = start_command(output, job)
    process.kill()
    process.communicate()
    left = output.with_name("bundle.tar.partial")
    assert json.loads((left / "bundle.json").read_bytes())["world_size"] == 3
    assert json.loads((left / "ranks/2/rank.json").read_bytes())["pid"] == job.processes[2].pid
    assert not output.exists()
