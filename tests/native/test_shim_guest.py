"""The log takes little of a small /dev/shm, removes what dead processes left, and says why where there is no room."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from tests.native.shim_guests import MIB, clean_environment, mounted, need_mounts, notes
from tests.native.shim_jobs import HERE, compile_c, double, files, linked, run
from tests.unit.ingest.reading import read

SHARE, NO_SHARE = 9, 10


@pytest.fixture(scope="module")
def lives(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("lives")
    return compile_c(folder / "lives", [HERE / "lives.c"], *linked(double(folder)))


@pytest.fixture(scope="module")
def guests(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("guests")
    return compile_c(folder / "guests", [HERE / "guests.c"], *linked(double(folder)))


def in_memory(tmp_path: Path, size: str, script: str, shim: Path, *arguments: object, options: str = "") -> Path:
    """Run a shell script in a private /dev/shm of that size; returns a copy of what it left there."""
    need_mounts()
    kept = tmp_path / "kept"
    whole = f"{script}\ncode=$?; cp -a /dev/shm {kept}; exit $code"
    variables = {**clean_environment(), "SHIM": str(shim)}
    command = mounted(["sh", "-c", whole, "sh", *arguments], Path("/dev/shm"), size, options)
    done = subprocess.run(command, env=variables, capture_output=True, text=True, timeout=120, check=False)
    assert (done.returncode, done.stderr) == (0, ""), done.stderr
    return kept


@pytest.mark.slow
def test_eight_ranks_leave_a_container_room_for_its_data_loader(guests: Path, shim: Path, tmp_path: Path) -> None:
    """64 MiB are what docker gives. All eight start at one time, so that each sees all of it free."""
    script = """
work=$2; export FORENSICS_SHIM_JOB=one
for rank in 0 1 2 3 4 5 6 7; do
    mkdir $work/$rank; RANK=$rank LD_PRELOAD=$SHIM "$1" $work/$rank >$work/$rank/out &
done
for rank in 0 1 2 3 4 5 6 7; do while [ ! -e $work/$rank/ready ]; do sleep 0.05; done; done
df --output=avail -k /dev/shm | tail -1 >$work/free
head -c 33554432 /dev/zero >/dev/shm/batch || exit 5; rm /dev/shm/batch
for rank in 0 1 2 3 4 5 6 7; do touch $work/$rank/stop; done
wait
"""
    work = tmp_path / "work"
    work.mkdir()
    kept = in_memory(tmp_path, "64m", script, shim, guests, work)
    assert int((work / "free").read_text()) * 1024 >= 32 * MIB
    for rank in range(8):
        assert "child=0" in (work / str(rank) / "out").read_text()
    # the file of each rank; that of its forked child at the end is another one
    logs = [path for path in files(kept) if path.suffix == ".frx"]
    assert {path.name.split(".")[1] for path in logs} == set("01234567")
    for path in logs:
        assert path.stat().st_size <= 4 * MIB
        log = read(path.read_bytes(), path.name)
        assert log.rows("operations")
        assert "more than a sixteenth of the free space" in log.problems[-1].message


@pytest.mark.parametrize(("size", "reason"), [("2m", NO_SHARE), ("600k", NO_SHARE), ("12m", NO_SHARE)])
def test_a_tiny_file_system_gets_a_note_and_no_log(lives: Path, shim: Path, tmp_path: Path, size: str, reason: int) -> None:
    kept = in_memory(tmp_path, size, 'LD_PRELOAD=$SHIM "$1" threads', shim, lives)
    (note,) = files(kept)
    assert notes(kept) == [reason]
    assert "the smallest log is more than a sixteenth" in read(note.read_bytes(), note.name).problems[0].message


def test_a_file_system_without_a_single_page_leaves_the_note_elsewhere(lives: Path, shim: Path, tmp_path: Path) -> None:
    script = """
head -c 99999999 /dev/zero >/dev/shm/full 2>/dev/null
mount -t tmpfs tmpfs /tmp
LD_PRELOAD=$SHIM "$2"/lives threads || exit 6
rm /dev/shm/full; cp -a /tmp/forensics-* /dev/shm/
"""
    place = tmp_path / "program"
    need_mounts()
    # the program must be reachable when /tmp is hidden
    root = Path("/var/tmp") / f"shim-{os.getpid()}"
    root.mkdir()
    try:
        for name in ("lives", "libnccl.so.2"):
            (root / name).write_bytes((lives.parent / name).read_bytes())
            (root / name).chmod(0o755)
        (root / "shim.so").write_bytes(shim.read_bytes())
        script = script.replace("LD_PRELOAD=$SHIM", f"LD_LIBRARY_PATH={root} LD_PRELOAD={root}/shim.so")
        kept_in = root / "kept"
        variables = clean_environment()
        command = mounted(["sh", "-c", f"{script}\ncp -a /dev/shm {kept_in}", "sh", place, root], Path("/dev/shm"), "600k")
        done = subprocess.run(command, env=variables, capture_output=True, text=True, timeout=60, check=False)
        assert (done.returncode, done.stderr) == (0, "")
        assert notes(kept_in) == [NO_SHARE]
    finally:
        subprocess.run(["rm", "-rf", str(root)], check=True)


def test_a_read_only_folder_costs_the_log_only(lives: Path, shim: Path, tmp_path: Path) -> None:
    script = f"""
mkdir -p {tmp_path}/closed; mount -t tmpfs -o ro tmpfs {tmp_path}/closed
FORENSICS_SHIM_DIR={tmp_path}/closed LD_PRELOAD=$SHIM "$1" threads
"""
    kept = in_memory(tmp_path, "64m", script, shim, lives)
    assert notes(kept) == [3]  # in our own folder


def ended(lives: Path, shim: Path, logs: Path, life: str, **environment: str) -> None:
    run([lives, life], logs, shim, FORENSICS_SHIM_JOB="one", **environment)


def names(logs: Path, rank: int) -> set[str]:
    return {path.name for path in files(logs) if path.name.split(".")[-4] == str(rank)}


def test_old_logs_of_the_same_rank_are_removed(lives: Path, shim: Path, tmp_path: Path) -> None:
    for _ in range(9):
        ended(lives, shim, tmp_path, "threads", RANK="0")
    ended(lives, shim, tmp_path, "threads", RANK="1")
    assert (len(names(tmp_path, 0)), len(names(tmp_path, 1))) == (5, 1)  # four, and that of the last process
    ended(lives, shim, tmp_path, "threads", RANK="0", FORENSICS_SHIM_KEEP="1")
    assert len(names(tmp_path, 0)) == 2


def test_the_last_log_of_a_killed_rank_is_never_removed(lives: Path, shim: Path, tmp_path: Path) -> None:
    ended(lives, shim, tmp_path, "kill", RANK="0")
    older = names(tmp_path, 0)
    ended(lives, shim, tmp_path, "kill", RANK="0")
    newest = names(tmp_path, 0) - older
    for _ in range(7):
        ended(lives, shim, tmp_path, "threads", RANK="0", FORENSICS_SHIM_KEEP="2")
    left = names(tmp_path, 0)
    assert newest < left and not older & left
    assert len(left) == 4  # it, two, and that of the last process


@pytest.mark.slow
def test_logs_of_living_processes_and_other_jobs_stay(guests: Path, lives: Path, shim: Path, tmp_path: Path) -> None:
    from tests.native.shim_guests import running

    with running(guests, shim, tmp_path, FORENSICS_SHIM_JOB="one", RANK="0") as job:
        living = job.log()
        ended(lives, shim, job.logs, "threads", RANK="0", FORENSICS_SHIM_KEEP="0")
        run([lives, "threads"], job.logs, shim, FORENSICS_SHIM_JOB="two", RANK="0")
        for _ in range(3):
            ended(lives, shim, job.logs, "threads", RANK="0", FORENSICS_SHIM_KEEP="0")
        assert living.exists()
        assert len(files(job.logs)) == 3
        assert (job.logs / "two").is_dir()
        job.end()


def test_what_lives_in_another_process_namespace_stays(guests: Path, lives: Path, shim: Path, tmp_path: Path) -> None:
    """Containers with the host's name and a folder in common number their processes alike: it is the lock that tells."""
    from tests.native.shim_guests import running

    need_mounts()
    with running(guests, shim, tmp_path, FORENSICS_SHIM_JOB="one", RANK="0") as job:
        living = job.log()
        variables = {**clean_environment(), "FORENSICS_SHIM_DIR": str(job.logs), "FORENSICS_SHIM_JOB": "one", "RANK": "0"}
        variables |= {"FORENSICS_SHIM_KEEP": "0", "LD_PRELOAD": str(shim)}
        command = ["unshare", "-p", "-f", "--mount-proc", "env", *(f"{key}={value}" for key, value in variables.items())]
        plain = clean_environment()
        assert subprocess.run([*command, lives, "threads"], env=plain, check=False).returncode == 0
        assert living.exists()
        job.end()
