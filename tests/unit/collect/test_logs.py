from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

from forensics.bundle.layout import Status
from forensics.collect.collectors.log_files import collect_logs
from forensics.collect.record import Run
from forensics.collect.target import Context, Target
from tests.unit.collect.fake_proc import FakeProc

CANARY = "hf_canarycanarycanarycanary"


def logs(context: Context, proc: FakeProc, stdout: str, stderr: str, shared: Mapping[str, str] | None = None) -> list[Run]:
    proc.add(100, fds={1: stdout, 2: stderr})
    target = Target(3, "alive", 100, 100, 3, os.getuid(), shared_logs=shared or {})
    return list(collect_logs(context, target, 0))


def content(context: Context, run: Run) -> str:
    assert run.path is not None
    return (context.staging.root / run.path).read_text()


def test_one_file_for_both_streams_is_taken_once_and_without_secrets(context: Context, proc: FakeProc, tmp_path: Path) -> None:
    log = tmp_path / "rank3.log"
    log.write_text(f"step 1\nlogin {CANARY}\nstep 2\n")
    (run,) = logs(context, proc, str(log), str(log))
    assert (run.status, run.path, run.truncated) == (Status.OK, "ranks/3/logs/rank3.log", False)
    assert content(context, run) == "step 1\nlogin <redacted>\nstep 2\n"
    assert run.redactions == {"hugging_face": 1}


def test_two_files_of_one_name_are_both_kept(context: Context, proc: FakeProc, tmp_path: Path) -> None:
    for folder in ("out", "err"):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / "3.log").write_text(folder)
    runs = logs(context, proc, str(tmp_path / "out/3.log"), str(tmp_path / "err/3.log"))
    assert [run.path for run in runs] == ["ranks/3/logs/3.log", "ranks/3/logs/stderr.3.log"]


def test_a_long_log_keeps_whole_lines_of_its_head_and_tail(context: Context, proc: FakeProc, tmp_path: Path) -> None:
    log = tmp_path / "rank3.log"
    lines = [f"line {number:04d} token={CANARY}\n" for number in range(1000)]
    log.write_text("".join(lines))
    (run,) = logs(context, proc, str(log), str(log))
    kept = content(context, run)
    assert run.truncated
    assert "hf_" not in kept
    assert "canary" not in kept
    first, gap, last = kept.partition("--- ")
    assert first.splitlines()[0] == "line 0000 token=<redacted>"
    assert last.splitlines()[0].endswith("bytes left out ---")
    assert last.splitlines()[-1] == "line 0999 token=<redacted>"
    assert all(
        line.startswith("line ") and line.endswith("token=<redacted>") for line in [*first.splitlines(), *last.splitlines()[1:]]
    )
    left_out = int(last.split(" ", 1)[0])
    whole = sum(len(lines[0]) for line in [*first.splitlines(), *last.splitlines()[1:]])
    assert left_out + whole == sum(map(len, lines))
    assert gap


def test_a_stream_that_is_no_file_is_named(context: Context, proc: FakeProc) -> None:
    (run,) = logs(context, proc, "pipe:[55]", "/dev/pts/3")
    assert run.status is Status.NOT_FOUND
    assert run.reason == "no log file: stdout is a pipe, stderr is a terminal or device (/dev/pts/3)"


def test_a_log_that_several_ranks_write_is_not_laid_to_one(context: Context, proc: FakeProc, tmp_path: Path) -> None:
    log = tmp_path / "job.log"
    log.write_text("of all ranks\n")
    shared = {str(log): "nodes/host-1/logs/job.log"}
    (run,) = logs(context, proc, str(log), str(log), shared)
    assert (run.status, run.path) == (Status.OK, None)
    assert "nodes/host-1/logs/job.log" in str(run.reason)


def dead(proc: FakeProc, *names: Path, since_ns: int = 0, uid: int | None = None) -> Target:
    proc.add(100)
    owner = os.getuid() if uid is None else uid
    return Target(2, "absent", None, 100, 3, owner, since_ns=since_ns, guessed_logs=tuple(str(name) for name in names))


def test_the_log_of_a_dead_rank_is_found_by_the_names_of_the_others(context: Context, proc: FakeProc, tmp_path: Path) -> None:
    (tmp_path / "rank2.log").write_text("boom\n")
    (run,) = collect_logs(context, dead(proc, tmp_path / "rank2.log"), 0)
    assert (run.status, run.path) == (Status.OK, "ranks/2/logs/rank2.log")
    assert run.reason == "named after the log of rank 3, with this rank's number"


def test_a_log_that_is_older_than_the_job_or_of_another_user_is_not_taken(
    context: Context, proc: FakeProc, tmp_path: Path
) -> None:
    log = tmp_path / "rank2.log"
    log.write_text("boom\n")
    os.utime(log, (1000, 1000))
    (run,) = collect_logs(context, dead(proc, log, since_ns=2000 * 10**9), 0)
    assert (run.status, run.path) == (Status.NOT_FOUND, None)
    proc.pids.clear()
    other = Target(2, "absent", None, 100, 3, os.getuid() + 4242, guessed_logs=(str(log),))
    (run,) = collect_logs(context, other, 0)
    assert (run.status, run.path) == (Status.NOT_FOUND, None)


def test_a_dead_rank_without_a_log(context: Context, proc: FakeProc, tmp_path: Path) -> None:
    (run,) = collect_logs(context, dead(proc, tmp_path / "rank2.log"), 0)
    assert run.reason == f"the rank has no process, and there is no {tmp_path}/rank2.log"


def test_a_child_of_a_dead_rank_still_has_its_log_open(context: Context, proc: FakeProc, tmp_path: Path) -> None:
    log = tmp_path / "any-name.log"
    log.write_text("last words\n")
    proc.add(500, fds={1: str(log), 2: str(log)})
    (run,) = collect_logs(context, Target(2, "absent", None, 1, 3, os.getuid(), extra=(500,)), 0)
    assert (run.status, run.path) == (Status.OK, "ranks/2/logs/any-name.log")


def test_the_log_that_nccl_writes_is_taken_while_it_is_open(context: Context, proc: FakeProc, tmp_path: Path) -> None:
    log, other = tmp_path / "nccl.gpu-002.4711.log", tmp_path / "weights.bin"
    log.write_text("gpu-002:4711:4711 [0] NCCL INFO NCCL version 2.28.3+cuda12.9\n")
    other.write_text("no log")
    proc.add(100, fds={1: "/dev/null", 2: "/dev/null", 7: str(log), 8: str(log), 9: str(other)})
    environ = {"NCCL_DEBUG_FILE": f"{tmp_path}/nccl.%h.%p.log"}
    target = Target(3, "alive", 100, 100, 3, os.getuid(), environ=environ)
    found = [run for run in collect_logs(context, target, 0) if run.path]
    assert [(run.status, run.path) for run in found] == [(Status.OK, "ranks/3/logs/nccl.nccl.gpu-002.4711.log")]
