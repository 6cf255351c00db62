"""The collector that copies the logs of the ranks."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

import pytest
import zstandard

from forensics.bundle.layout import Status
from forensics.collect.collectors.shim_logs import (
    MOST_LOGS,
    LogFile,
    choose,
    collect_left,
    collect_logs,
    default_folders,
    find_job,
    folder_of,
    job_name,
    own_log,
)
from forensics.collect.target import Context, Target
from tests.unit.collect.fake_proc import FakeProc

LOADED = {"LD_PRELOAD": "/opt/lib/libforensics_shim.so"}


def target(proc: FakeProc, folder: Path, environ: Mapping[str, str] = LOADED, *, rank: int = 3) -> Target:
    """A living rank with pid 100 whose logs lie in `folder`."""
    variables = {"FORENSICS_SHIM_DIR": str(folder), **environ}
    if 100 not in proc.pids:
        proc.add(100, environ=variables, start=500)
    return Target(rank, "alive", 100, 100, rank, os.getuid(), variables, 0, start_ticks=500)


def add_log(folder: Path, name: str, content: bytes = b"FRXSHIM\n", *, at: int = 1_000) -> Path:
    place = folder / "job" / name
    place.parent.mkdir(exist_ok=True, parents=True)
    place.write_bytes(content)
    os.utime(place, ns=(at, at))
    return place


@pytest.mark.parametrize(
    ("environ", "name"),
    [
        ({}, "job"),
        ({"SLURM_JOB_ID": "77"}, "77"),
        ({"SLURM_JOB_ID": "77", "TORCHELASTIC_RUN_ID": "run"}, "run"),
        ({"TORCHELASTIC_RUN_ID": "none"}, "torchrun"),
        ({"FORENSICS_SHIM_JOB": "a/b c", "SLURM_JOB_ID": "77"}, "a_b_c"),
        ({"FORENSICS_SHIM_JOB": "../up"}, "_._up"),
        ({"FORENSICS_SHIM_JOB": "x" * 80}, "x" * 63),
    ],
)
def test_the_folder_of_a_job_is_named_as_the_writer_names_it(environ: dict[str, str], name: str) -> None:
    assert job_name(environ) == name
    assert folder_of(environ, 1000) == f"/dev/shm/forensics-1000/{name}"


def test_the_log_of_a_living_rank_is_copied_compressed(context: Context, proc: FakeProc, tmp_path: Path) -> None:
    content = b"FRXSHIM\n" + bytes(1 << 20)
    add_log(tmp_path / "logs", "host.3.100.500.frx", content)
    (run,) = collect_logs(context, target(proc, tmp_path / "logs"), 0)
    assert (run.status, run.rank, run.pid, run.path) == (Status.OK, 3, 100, "ranks/3/shim/host.3.100.500.frx.zst")
    packed = (context.staging.root / (run.path or "")).read_bytes()
    assert zstandard.ZstdDecompressor().decompressobj().decompress(packed) == content
    assert len(packed) < 1024 and run.captured_ns is not None


def test_the_log_of_a_dead_rank_is_found_through_a_living_one(context: Context, proc: FakeProc, tmp_path: Path) -> None:
    add_log(tmp_path / "logs", "host.4.200.700.frx")
    living = target(proc, tmp_path / "logs")
    dead = Target(4, "absent", None, 100, 3, os.getuid(), living.environ)
    (run,) = collect_logs(context, dead, 0)
    assert (run.status, run.rank, run.pid) == (Status.OK, 4, 200)


def test_what_is_not_there_says_why(context: Context, proc: FakeProc, tmp_path: Path) -> None:
    (asleep,) = collect_logs(context, target(proc, tmp_path / "logs"), 0)
    assert asleep.status is Status.NOT_FOUND and "no NCCL call was made yet" in (asleep.reason or "")
    (never,) = collect_logs(context, target(proc, tmp_path / "logs", {"LD_PRELOAD": "/opt/other.so"}), 0)
    assert never.status is Status.NOT_CONFIGURED


def test_a_process_that_could_not_record_left_its_reason(context: Context, proc: FakeProc, tmp_path: Path) -> None:
    add_log(tmp_path / "logs", "host.3.100.500.off", b"FRXSHIM-OFF 1 reason=2 errno=28\n")
    (run,) = collect_logs(context, target(proc, tmp_path / "logs"), 0)
    assert run.status is Status.PARTIAL and "recorded nothing" in (run.reason or "") and run.path


def found(pid: int, start: int, modified: int, *, uid: int | None = None) -> LogFile:
    name = f"/dev/shm/forensics/job/h.3.{pid}.{start}.frx"
    return LogFile(name, Path(name), 3, pid, start, "frx", modified, os.getuid() if uid is None else uid)


def test_the_own_process_comes_first_and_few_others_follow() -> None:
    """A launcher that crashes in a loop leaves thousands."""
    logs = [found(pid, 500, 10_000 - pid) for pid in range(1, 2000)]
    chosen = choose(Target(3, "alive", 1500, uid=os.getuid(), start_ticks=500), logs, {1500})
    assert (len(chosen), chosen[0].pid) == (MOST_LOGS, 1500)


def test_logs_of_earlier_runs_and_of_other_users_stay() -> None:
    one = Target(3, "alive", 100, uid=1000, since_ns=50)
    assert choose(one, [found(100, 500, 40, uid=1000)], {100}) == []
    assert choose(one, [found(100, 500, 60, uid=1001)], {100}) == []
    assert len(choose(one, [found(100, 500, 60, uid=1000)], {100})) == 1


def test_a_link_in_the_place_of_a_log_is_not_followed(context: Context, proc: FakeProc, tmp_path: Path) -> None:
    secret = tmp_path / "secret"
    secret.write_text("key")
    (tmp_path / "logs/job").mkdir(parents=True)
    (tmp_path / "logs/job/host.3.100.500.frx").symlink_to(secret)
    (run,) = collect_logs(context, target(proc, tmp_path / "logs"), 0)
    assert run.path is None and run.status is Status.NOT_FOUND


def test_a_host_without_ranks_gives_the_newest_job(context: Context, tmp_path: Path) -> None:
    for at, job, rank, pid in ((1, "old", 0, 1), (5, "new", 0, 2), (6, "new", 0, 3), (7, "new", 1, 4)):
        place = tmp_path / job / f"h.{rank}.{pid}.1.frx"
        place.parent.mkdir(exist_ok=True)
        place.write_bytes(b"FRXSHIM\n")
        os.utime(place, ns=(at, at))
    runs = list(collect_left(context, tmp_path))
    assert [run.path for run in runs] == ["nodes/host-1/shim/h.0.3.1.frx.zst", "nodes/host-1/shim/h.1.4.1.frx.zst"]
    (none,) = collect_left(context, tmp_path / "nowhere")
    assert none.status is Status.NOT_FOUND


def test_only_the_folder_that_has_the_log_of_the_process_is_of_its_job(proc: FakeProc, tmp_path: Path) -> None:
    """Two jobs of one name on a host: what shows their folders apart is behind the name."""
    for job, name in (
        ("job-29500-11", "h.3.100.500.frx"),
        ("job-29500-11", "h.4.101.501.frx"),
        ("job-29500-99", "h.4.300.900.frx"),
    ):
        (tmp_path / job).mkdir(exist_ok=True)
        (tmp_path / job / name).write_bytes(b"FRXSHIM\n")
    (tmp_path / "jobber").mkdir()
    one = target(proc, tmp_path)
    found = find_job(proc.procfs, one.pid, one.environ, one.uid)
    assert {log.path.name for log in found} == {"h.3.100.500.frx", "h.4.101.501.frx"}
    anywhere = find_job(proc.procfs, None, one.environ, one.uid)  # notes of other jobs of that name may lie on this host
    assert len([log for log in anywhere if log.path.is_relative_to(tmp_path)]) == 3


def test_a_collector_of_root_finds_the_folders_of_all_users(tmp_path: Path) -> None:
    for name in ("forensics", "forensics-0", "forensics-1000", "forensics-x", "other"):
        (tmp_path / name).mkdir()
    (tmp_path / "forensics-7").symlink_to(tmp_path / "other")
    names = ["forensics", "forensics-0", "forensics-1000"]
    assert [path.name for path in default_folders(tmp_path)] == names
    assert [path.name for path in default_folders(tmp_path, os.getuid())] == names
    assert default_folders(tmp_path, os.getuid() + 1) == []


def test_the_log_of_a_process_is_shown_by_its_start(proc: FakeProc) -> None:
    proc.add(100, start=500)
    logs = [found(100, 400, 2), found(100, 500, 1)]
    assert own_log(proc.procfs, 100, logs) == logs[1]
