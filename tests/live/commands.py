"""Runs the product the way an on-call engineer does: one command beside the stuck job, one on the bundle."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from tests.live.harness import Job

ROOT = Path(__file__).resolve().parents[2]
LIMIT_S = 150.0
INCONCLUSIVE = 4
TRAINERS = ("R", "S", "D")


def collect(job: Job, bundle: Path) -> None:
    """Collect from the running job into `bundle`; the job must not notice."""
    before = [kind(state) for state in job.states()]
    forensics(["collect", "-o", str(bundle), *only_this_job(job)])
    after = [kind(state) for state in job.states()]
    assert after == before, f"states were {before} and are {after}\n{job.tails()}"
    assert not any(is_traced(pid) for pid in job.pids)


def diagnose(bundle: Path) -> dict[str, Any]:
    """The verdict on a bundle, schema `forensics.verdict/1`."""
    verdict: dict[str, Any] = json.loads(forensics(["diagnose", str(bundle), "--format", "json"], INCONCLUSIVE))
    return verdict


def forensics(arguments: Sequence[str], *also: int) -> str:
    """Standard output of one command, which must end with 0 or one of the codes in `also`."""
    command = [sys.executable, "-m", "forensics", *arguments]
    run = subprocess.run(command, cwd=ROOT, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=LIMIT_S)
    assert run.returncode in (0, *also), f"{command} gave {run.returncode}\n{run.stdout[-2000:]}\n{run.stderr[-4000:]}"
    return run.stdout


def kind(state: str | None) -> str | None:
    """Running, sleeping and waiting for a disk are all the same life."""
    return "alive" if state in TRAINERS else state


def is_traced(pid: int) -> bool:
    try:
        status = Path(f"/proc/{pid}/status").read_text()
    except (FileNotFoundError, ProcessLookupError):
        return False
    return "\nTracerPid:\t0\n" not in status


def only_this_job(job: Job) -> list[str]:
    """No flags on a host of its own; beside another job, or other tests, the address that tells them apart."""
    if "PYTEST_XDIST_WORKER" in os.environ:
        return _by_address(job)
    port = f"MASTER_PORT={job.port}".encode()
    environments = [environment for entry in Path("/proc").glob("[0-9]*/environ") if (environment := read_environ(entry))]
    others = [e for e in environments if any(v.startswith(b"RANK=") for v in e) and port not in e]
    return _by_address(job) if others else []


def _by_address(job: Job) -> list[str]:
    return ["--job", f"127.0.0.1:{job.port}"]


def read_environ(entry: Path) -> list[bytes]:
    try:
        return entry.read_bytes().split(b"\0")
    except OSError:
        return []
