"""What one reading of a process gives, by what can be had of it; and the command around the loop."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from forensics.collect.interrupts import Interrupts
from forensics.collect.processes import ProcFs
from forensics.collect.scan import look_at
from forensics.collect.session import Options
from forensics.watch.host import Host
from forensics.watch.loop import Job
from forensics.watch.readings import CPU, SHIM, STACK, Means, completed_calls, read_ranks, shim_counts
from forensics.watch.rhythm import NOTHING
from forensics.watch.trigger import Alarm

SAMPLE = Path(__file__).parents[3] / "fixtures/samples/shim_log/one_of_everything.frx"


def test_a_shim_log_counts_operations_and_bytes(tmp_path: Path) -> None:
    counts = shim_counts(SAMPLE)
    assert counts is not None and counts["completed"] > 0 and counts["moved_bytes"] >= 0
    (tmp_path / "cut.frx").write_bytes(SAMPLE.read_bytes()[:3000])
    assert shim_counts(tmp_path / "cut.frx") is None


def test_the_log_of_a_process_comes_before_all_other_sources(tmp_path: Path) -> None:
    me = look_at(ProcFs(), os.getpid())
    assert me is not None
    folder = tmp_path / "job"
    folder.mkdir()
    (folder / f"host.0.{me.pid}.{me.stat.start_ticks}.frx").write_bytes(SAMPLE.read_bytes())
    environ = {"LD_PRELOAD": "/lib/libforensics_shim.so", "FORENSICS_SHIM_DIR": str(tmp_path)}
    (found,) = read_ranks({3: replace(me, environ=environ)}, Means())
    assert (found.rank, found.source) == (3, SHIM) and found.completed
    (folder / f"host.0.{me.pid}.{me.stat.start_ticks}.frx").unlink()
    assert read_ranks({3: replace(me, environ=environ)}, Means(py_spy=None))[0].source == CPU


@pytest.mark.parametrize(
    ("dump", "count"),
    [
        ({"pg_status": {"0": {"last_completed_collective": "11"}, "1": {"last_completed_collective": 4}}}, 15),
        ({"pg_status": {"0": {"last_completed_collective": -1}}, "entries": [{"record_id": 6}]}, 7),
        ({}, 0),
    ],
)
def test_a_dump_counts_completed_calls(dump: dict[str, object], count: int) -> None:
    assert completed_calls(dump) == count


def test_a_process_without_counters_is_known_by_its_stack_or_its_cpu_time() -> None:
    (me,) = [look_at(ProcFs(), os.getpid())]
    assert me is not None
    with_stack, nothing = read_ranks({0: me}, Means()), read_ranks({9: me}, Means(py_spy=None))
    assert with_stack[0].source in (STACK, CPU) and nothing[0].source == CPU
    others = read_ranks(dict.fromkeys(range(5), me), Means(py_spy=None))
    assert [one.source for one in others] == [CPU] * 3 + [NOTHING] * 2


def test_a_process_is_distinguished_from_a_later_one_of_its_number(tmp_path: Path) -> None:
    start = ProcFs().stat(os.getpid()).start_ticks
    with Interrupts() as interrupts:
        host = Host(tmp_path, Options(tmp_path), interrupts)
        job = Job({0: (os.getpid(), start), 1: (os.getpid(), start + 1), 2: (2**22 + 1, 5)})
        assert host.living(job) == {0}


def test_a_watch_ends_with_the_process_beside_it(tmp_path: Path) -> None:
    with Interrupts() as interrupts:
        assert Host(tmp_path, Options(tmp_path), interrupts, beside=os.getpid()).sleep(0) is None
        assert Host(tmp_path, Options(tmp_path), interrupts, beside=2**22 + 1).sleep(0) == f"process {2**22 + 1} ended"
        interrupts.requested = True
        assert Host(tmp_path, Options(tmp_path), interrupts, beside=os.getpid()).sleep(0) == "interrupted"


def test_a_bundle_that_cannot_be_written_does_not_end_the_watch(tmp_path: Path) -> None:
    with Interrupts() as interrupts:
        host = Host(tmp_path / "missing", Options(tmp_path), interrupts)
        stated, is_over = host.collect(Job({}), Alarm("gone", (0,), ""))
    assert stated["event"] == "no_bundle" and not is_over


@pytest.mark.slow
def test_the_command_ends_cleanly_on_sigterm_and_without_a_job(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "forensics", "watch", "--into", str(tmp_path / "b"), "--job", "no such job"]
    done = subprocess.run([*command, "--interval", "0.1", "--wait", "0.1"], capture_output=True, text=True, check=False)
    lines = [json.loads(line) for line in done.stdout.splitlines()]
    assert (done.returncode, lines[-1]["event"], lines[-1]["reason"]) == (0, "end", "no job"), done.stderr
    assert "no job on this host is" in lines[0]["reason"] or "no ranks found on this host" in lines[0]["reason"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None and json.loads(process.stdout.readline())["event"] == "waiting"
        process.send_signal(signal.SIGTERM)
        assert json.loads(process.stdout.readline())["reason"] == "interrupted"
        assert process.wait(20) == 0
