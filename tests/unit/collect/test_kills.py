"""Whatever ends `forensics collect`, the job runs on, nothing of the collector stays, and nothing looks whole that is not."""

from __future__ import annotations

import json
import os
import pty
import random
import signal
import subprocess
import sys
import tarfile
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import suppress
from functools import partial
from pathlib import Path

import pytest

from forensics.errors import ExitCode
from tests.unit.collect.real_processes import SPIN, children, eventually, running, script, state

KILLS = 210
# The command with a py-spy of the test's choice; find_py_spy takes the one beside the interpreter otherwise.
COMMAND = """
import sys, typer
from forensics.cli.collect import collect
from forensics.collect import session
chosen = sys.argv.pop(1)
session.find_py_spy = (lambda: chosen) if chosen else session.find_py_spy
app = typer.Typer()
app.command()(collect)
app()
"""
SLOW = "import os, pathlib, sys, time\npathlib.Path({place!r}, sys.argv[5]).write_text(str(os.getpid()))\ntime.sleep(600)"


# On a busy host both may run out of time, one after the other, before they are seen at work together.
ATTEMPTS = 3


@pytest.fixture
def job() -> Iterator[list[subprocess.Popen[bytes]]]:
    """Two ranks that run."""
    with (
        running(SPIN, env={"RANK": "0", "WORLD_SIZE": "2"}) as first,
        running(SPIN, env={"RANK": "1", "WORLD_SIZE": "2"}) as second,
    ):
        yield [first, second]


def argv(output: Path, ranks: list[subprocess.Popen[bytes]], py_spy: str = "", interval: float = 0.0) -> list[str]:
    named = ",".join(str(rank.pid) for rank in ranks)
    options = ["-o", str(output), "--pid", named, "--interval", str(interval), "--no-nccl-ras"]
    return [sys.executable, "-c", COMMAND, py_spy, *options]


def stuck(tmp_path: Path, ranks: list[subprocess.Popen[bytes]]) -> tuple[subprocess.Popen[bytes], list[int]]:
    """A collection whose py-spies are at work on both ranks, and all the processes below it."""
    bundle = tmp_path / "bundle.tar"
    for attempt in range(ATTEMPTS):
        place = tmp_path / f"at-work-{attempt}"
        place.mkdir()
        program = script(tmp_path / f"slow-{attempt}", SLOW.format(place=str(place)))
        process = subprocess.Popen(argv(bundle, ranks, program), stderr=subprocess.DEVNULL)
        assert eventually(partial(at_work_or_over, place, process, len(ranks)))
        if process.poll() is None:
            return process, children(process.pid)
        bundle.unlink(missing_ok=True)
    raise AssertionError("no collection had both py-spies at work at one time")


def at_work_or_over(place: Path, process: subprocess.Popen[bytes], count: int) -> bool:
    """On a busy host a py-spy may have run out of time already, and its next one be at work."""
    begun = {int(text) for one in place.iterdir() if (text := one.read_text())}
    return process.poll() is not None or (len(begun) == count and begun <= set(children(process.pid)))


def is_over(pids: list[int]) -> bool:
    return all(state(pid) in ("", "Z", "X") for pid in pids)


def run_on(ranks: list[subprocess.Popen[bytes]]) -> bool:
    return all(state(rank.pid) == "R" for rank in ranks)


@pytest.mark.slow
def test_a_killed_collection_takes_everything_with_it(tmp_path: Path, job: list[subprocess.Popen[bytes]]) -> None:
    process, below = stuck(tmp_path, job)
    process.kill()
    process.wait()
    assert eventually(lambda: is_over(below))
    assert run_on(job)
    assert not (tmp_path / "bundle.tar").exists()
    left = json.loads((tmp_path / "bundle.tar.partial/bundle.json").read_bytes())
    assert left["interrupted"] is True


@pytest.mark.slow
def test_a_killed_collector_takes_its_program_with_it(tmp_path: Path, job: list[subprocess.Popen[bytes]]) -> None:
    process, below = stuck(tmp_path, job)
    collectors = [pid for pid in children(process.pid) if pid in below and children(pid)]
    programs = [pid for one in collectors for pid in children(one)]
    assert len(programs) >= len(job)
    for pid in collectors:
        os.kill(pid, signal.SIGKILL)
    assert eventually(lambda: is_over(programs))
    process.terminate()
    process.wait()
    assert run_on(job)


@pytest.mark.parametrize(
    "number", [signal.SIGTERM, *(pytest.param(each, marks=pytest.mark.slow) for each in (signal.SIGINT, signal.SIGHUP))]
)
def test_a_signal_ends_the_collection_with_a_bundle(
    tmp_path: Path, job: list[subprocess.Popen[bytes]], number: signal.Signals
) -> None:
    process, below = stuck(tmp_path, job)
    process.send_signal(number)
    assert process.wait() == ExitCode.INTERRUPTED
    assert eventually(lambda: is_over(below))
    assert run_on(job)
    with tarfile.open(tmp_path / "bundle.tar") as bundle:
        manifest = bundle.extractfile("bundle.json")
        assert manifest is not None
        assert json.loads(manifest.read())["interrupted"] is True


def shows(terminal: int) -> bool:
    """Take what a terminal shows, so that it can show more."""
    with suppress(BlockingIOError):
        os.read(terminal, 1 << 16)
    return True


@pytest.mark.slow
def test_a_terminal_that_hangs_up_ends_the_collection_with_a_bundle(tmp_path: Path, job: list[subprocess.Popen[bytes]]) -> None:
    pid, terminal = pty.fork()
    if pid == 0:
        os.execv(sys.executable, argv(tmp_path / "bundle.tar", job, interval=60.0))
    os.set_blocking(terminal, False)
    assert eventually(lambda: shows(terminal) and (tmp_path / "bundle.tar.partial/ranks/1/proc/0.json").exists())
    below = children(pid)
    os.close(terminal)
    _, status = os.waitpid(pid, 0)
    assert os.waitstatus_to_exitcode(status) == ExitCode.INTERRUPTED
    assert eventually(lambda: is_over(below))
    assert run_on(job)
    assert tarfile.is_tarfile(tmp_path / "bundle.tar")
    assert not (tmp_path / "bundle.tar.partial").exists()


@pytest.mark.slow
def test_collectors_give_way_when_memory_runs_out(tmp_path: Path, job: list[subprocess.Popen[bytes]]) -> None:
    process, below = stuck(tmp_path, job)
    scores = {
        Path(f"/proc/{pid}/oom_score_adj").read_text().strip() for pid in (process.pid, *below) if state(pid) not in ("", "Z")
    }
    process.kill()
    process.wait()
    assert scores == {"1000"}


@pytest.mark.deep
def test_hundreds_of_kills_at_random_moments_leave_every_target_running(
    tmp_path: Path, job: list[subprocess.Popen[bytes]]
) -> None:
    """The collector, one of its children, or py-spy is killed; the real py-spy looks at ranks that compute."""
    chance = random.Random(11)
    hits: Counter[str] = Counter()
    for number in range(KILLS):
        output = tmp_path / f"{number}.tar"
        command = [*argv(output, job, interval=0.02), "--samples", "40"]
        process = subprocess.Popen(command, stderr=subprocess.DEVNULL)
        kind = ("collect", "collector", "py-spy")[number % 3]
        assert eventually(partial(_victims, process.pid, kind), attempts=4000)
        time.sleep(chance.uniform(0.0, 0.02 if kind == "py-spy" else 0.6))
        victims = _victims(process.pid, kind) or [process.pid]
        below = children(process.pid)
        with suppress(ProcessLookupError):
            os.kill(chance.choice(victims), signal.SIGKILL)
            hits[kind] += 1
        assert not eventually(lambda: not run_on(job), attempts=10), f"kill {number} of {kind} left a rank stopped"
        process.kill()
        process.wait()
        assert eventually(partial(is_over, below)), f"kill {number} of {kind} left a collector behind"
        assert not eventually(lambda: not run_on(job), attempts=10), f"kill {number} of {kind} left a rank stopped"
        assert not output.exists() or tarfile.is_tarfile(output)
    print(dict(hits), "left stopped: 0")


def _victims(pid: int, kind: str) -> list[int]:
    """What of a collection can be killed: itself once it has children, one of these, or a py-spy at work."""
    below = children(pid)
    spies = [one for one in below if _name(one) == "py-spy"]
    if kind == "collect":
        return [pid] if below else []
    return spies if kind == "py-spy" else [one for one in below if one not in spies]


def _name(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/comm").read_text().strip()
    except OSError:
        return ""
