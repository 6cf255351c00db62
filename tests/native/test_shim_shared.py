"""Hosts that several users share: who can read a log, which folders are trusted, and how jobs are distinguished."""

from __future__ import annotations

import os
import stat
import subprocess
import sys
from pathlib import Path

import pytest

from forensics.ingest.shim_log import layout
from forensics.ingest.shim_log.file import ShimFile, read_file
from tests.native.shim_guests import clean_environment, mounted, need_mounts, notes, running
from tests.native.shim_jobs import HERE, compile_c, double, files, linked, only_log, ring_objects, run

FOREIGN, NOBODY = 11, 65534


@pytest.fixture(scope="module")
def program(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("lives")
    return compile_c(folder / "lives", [HERE / "lives.c"], *linked(double(folder)))


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


def log_of(path: Path) -> ShimFile:
    with path.open("rb") as stream:
        (log,) = [item for item in read_file(stream) if isinstance(item, ShimFile)]
    return log


@pytest.mark.parametrize(("wanted", "file", "folder"), [("", 0o600, 0o700), ("0640", 0o640, 0o750), ("0666", 0o600, 0o700)])
def test_only_the_owner_can_read_a_log(program: Path, shim: Path, tmp_path: Path, wanted: str, file: int, folder: int) -> None:
    assert run([program, "threads"], tmp_path / "logs", shim, FORENSICS_SHIM_MODE=wanted).returncode == 0
    (path,) = files(tmp_path)
    assert (mode(path), mode(path.parent), mode(path.parent.parent)) == (file, folder, folder)
    assert int(log_of(path).head["mode"]) == file


def test_the_default_folder_is_of_one_user(program: Path, shim: Path, tmp_path: Path) -> None:
    need_mounts()
    script = f"LD_PRELOAD={shim} {program} threads && cp -a /dev/shm {tmp_path}/kept"
    done = subprocess.run(mounted(["sh", "-c", script], Path("/dev/shm"), "256m"), env=clean_environment(), check=False)
    assert done.returncode == 0
    (path,) = files(tmp_path / "kept")
    assert path.parts[-3] == f"forensics-{os.geteuid()}"


def in_shared(program: Path, shim: Path, tmp_path: Path, prepare: str) -> Path:
    """Run a job whose FORENSICS_SHIM_DIR is /dev/shm/shared, prepared by a shell script; returns a copy of /dev/shm."""
    need_mounts()
    if os.geteuid() != 0:
        pytest.skip("only root can make folders of other users")
    variables = {**clean_environment(), "FORENSICS_SHIM_DIR": "/dev/shm/shared", "FORENSICS_SHIM_JOB": "one"}
    script = f"""
mkdir -m 1777 /dev/shm/shared; cd /dev/shm/shared
{prepare}
LD_PRELOAD={shim} {program} threads || exit 7
cp -a /dev/shm {tmp_path}/kept"""
    done = subprocess.run(
        mounted(["sh", "-c", script], Path("/dev/shm"), "256m"), env=variables, capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stderr) == (0, "")
    return tmp_path / "kept"


@pytest.mark.parametrize(
    "prepare",
    [
        "mkdir one; chown 65534 one",
        "mkdir one; chmod 0777 one",
        "mkdir one; chmod 0770 one",
        "mkdir ../elsewhere; ln -s ../elsewhere one",
        "touch one",
    ],
)
def test_a_folder_of_others_is_refused_with_a_note(program: Path, shim: Path, tmp_path: Path, prepare: str) -> None:
    kept = in_shared(program, shim, tmp_path, prepare)
    notes_found = [path for path in files(kept) if path.suffix == ".off"]
    assert notes(kept) == [FOREIGN]
    assert notes_found[0].parts[-3:-1] == (f"forensics-{os.geteuid()}", "one")
    assert not [path for path in files(kept) if path.suffix == ".frx"]


def test_a_default_folder_that_somebody_else_made_is_refused(program: Path, shim: Path, tmp_path: Path) -> None:
    prepare = (
        f"unset FORENSICS_SHIM_DIR; mount -t tmpfs tmpfs /mnt; mkdir /dev/shm/forensics-0; chown {NOBODY} /dev/shm/forensics-0"
    )
    kept = in_shared(program, shim, tmp_path, prepare)
    assert files(kept) == []
    (note,) = files(Path("/tmp/forensics-0/one"))
    note.unlink()
    note.parent.rmdir()


def test_a_shared_folder_serves_both_its_users(program: Path, shim: Path, tmp_path: Path) -> None:
    kept = in_shared(program, shim, tmp_path, "mkdir other; chown 65534 other")
    (path,) = files(kept)
    assert path.suffix == ".frx" and mode(path.parent) == 0o700


def start_two(program: Path, shim: Path, logs: Path, way: str, **environment: str) -> None:
    """Two ranks of one job, started by a program."""
    variables = {
        **clean_environment(),
        "FORENSICS_SHIM_DIR": str(logs),
        "LD_PRELOAD": str(shim),
        "WORLD_SIZE": "2",
        **environment,
    }
    source = f"""
import os, subprocess
def start(rank):
    own = {{**os.environ, "RANK": str(rank), "LOCAL_RANK": str(rank)}}
    return subprocess.Popen({way!r}.split() + [{str(program)!r}, "threads"], env=own)
raise SystemExit(any([rank.wait() for rank in [start(0), start(1)]]))
"""
    assert subprocess.run([sys.executable, "-S", "-c", source], env=variables, check=False).returncode == 0


@pytest.mark.parametrize("is_wrapped", [False, True])
@pytest.mark.parametrize(
    "environ", [{"TORCHELASTIC_RUN_ID": "none"}, {"TORCHELASTIC_RUN_ID": "100"}, {"MASTER_PORT": "29500"}, {}], ids=str
)
def test_ranks_of_a_job_share_a_folder_and_jobs_do_not(
    program: Path, shim: Path, tmp_path: Path, environ: dict[str, str], is_wrapped: bool
) -> None:
    for number in (1, 2):
        if is_wrapped:
            wrapped(program, shim, tmp_path, **environ)
        else:
            start_two(program, shim, tmp_path, "", **environ)
        folders = [path for path in tmp_path.iterdir() if path.is_dir()]
        assert len(folders) == number
    assert [len(files(folder)) for folder in folders] == [2, 2]
    assert all(folder.name not in ("none", "job") for folder in folders)


def wrapped(program: Path, shim: Path, logs: Path, **environment: str) -> None:
    """Each rank below a shell of its own, as with torchrun --no-python."""
    script = logs / "wrapper.sh"
    script.write_text(f'#!/bin/sh\n{program} "$@"\nexit $?\n')
    script.chmod(0o755)
    try:
        start_two(script, shim, logs, "", **environment)
    finally:
        script.unlink()


def test_two_jobs_at_one_time_are_distinguished(program: Path, shim: Path, tmp_path: Path) -> None:
    guests = compile_c(tmp_path / "guests", [HERE / "guests.c"], *linked(program.parent / "libnccl.so.2"))
    for name in ("a", "b"):
        (tmp_path / name).mkdir()
    with (
        running(guests, shim, tmp_path / "a", SLURM_JOB_ID="7", SLURM_STEP_ID="0") as one,
        running(guests, shim, tmp_path / "b", SLURM_JOB_ID="7", SLURM_STEP_ID="1") as two,
    ):
        assert (one.log().parent.name, two.log().parent.name) == ("7-0", "7-1")
        one.end()
        two.end()


def pointers(log: ShimFile) -> list[int]:
    comms, pairs = log.tables[layout.COMMS], log.tables[layout.QUEUE_PAIRS]
    records = log.tables[layout.RECORDS]
    events = log.typed(records[records["kind"] == 65], layout.QP_EVENT)
    values = [*comms["handle"][comms["state"] > 0], *pairs["context"][pairs["state"] > 0], *events["context"]]
    return [int(value) for value in values]


@pytest.mark.slow
@pytest.mark.parametrize(("wanted", "is_masked"), [("0600", False), ("0640", True)])
def test_who_else_can_read_a_log_learns_no_address(tmp_path: Path, wanted: str, is_masked: bool) -> None:
    states = compile_c(tmp_path / "states", [HERE / "states.c", *ring_objects()])
    assert run([states, 200], tmp_path / "logs", FORENSICS_SHIM_MODE=wanted).returncode == 0
    (path,) = files(tmp_path / "logs")
    found = pointers(log_of(path))
    plain = {0xC0, *(0x1000 + 16 * each for each in range(4))}
    assert len(found) > 8 and all(found)
    assert len(set(found)) == len(plain)  # what was equal stays so
    assert (set(found) == plain) is not is_masked
    if is_masked:
        assert not set(found) & plain


@pytest.mark.parametrize(("wanted", "is_masked"), [("0600", False), ("0640", True)])
def test_streams_are_masked_as_well(shim: Path, tmp_path: Path, wanted: str, is_masked: bool) -> None:
    program = compile_c(tmp_path / "program", [HERE / "linking.c"], "-DPROGRAM", *linked(double(tmp_path)))
    assert run([program], tmp_path / "logs", shim, FORENSICS_SHIM_MODE=wanted).returncode == 0
    streams = [row["stream"] for row in only_log(tmp_path / "logs").rows("operations")]
    assert len(streams) == 11
    assert len(set(streams)) == 2  # the same stream is the same number
    assert (set(streams) == {0x10, 0x20}) is not is_masked
