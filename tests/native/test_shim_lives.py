"""What a process may do besides training: fork, exec, end, fill the disk."""

from __future__ import annotations

import os
import resource
import shutil
import subprocess
from pathlib import Path

import pytest

from tests.native.shim_jobs import HERE, compile_c, double, files, linked, only_log, run
from tests.unit.ingest.reading import read

MIB = 1 << 20


@pytest.fixture(scope="module")
def lives(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("lives")
    return compile_c(folder / "lives", [HERE / "lives.c"], *linked(double(folder)))


def counts(path: Path) -> list[int]:
    return [row["count"] for row in read(path.read_bytes(), path.name).rows("operations")]


def test_a_process_that_never_calls_nccl_leaves_nothing(lives: Path, shim: Path, tmp_path: Path) -> None:
    assert run([lives, "idle"], tmp_path, shim).returncode == 0
    assert files(tmp_path) == []


def test_a_forked_child_writes_a_log_of_its_own(lives: Path, shim: Path, tmp_path: Path) -> None:
    assert run([lives, "fork"], tmp_path, shim).returncode == 0
    assert sorted(map(counts, files(tmp_path))) == [[1, 2], [77, 78]]


def test_exec_begins_a_log_of_its_own(lives: Path, shim: Path, tmp_path: Path) -> None:
    assert run([lives, "exec"], tmp_path, shim).returncode == 0
    logs = files(tmp_path)
    assert [path.name.endswith("-2.frx") for path in logs].count(True) == 1
    assert [counts(path) for path in logs] == [[1], [1]]


def test_threads_hand_their_rings_on(lives: Path, shim: Path, tmp_path: Path) -> None:
    assert run([lives, "threads"], tmp_path, shim).returncode == 0
    rows = only_log(tmp_path).rows("operations")
    assert sorted(row["count"] for row in rows) == sorted([1, *range(100), 1000])
    assert len({row["thread"] for row in rows}) == 101


def test_a_killed_process_leaves_all_it_did(lives: Path, shim: Path, tmp_path: Path) -> None:
    assert run([lives, "kill"], tmp_path, shim).returncode == -9
    log = only_log(tmp_path)
    assert [row["count"] for row in log.rows("operations")] == [1]
    assert log.config()["shim.state"] == "recording"


@pytest.mark.slow
def test_communicators_are_known_after_their_records_are_gone(shim: Path, tmp_path: Path) -> None:
    """A call writes its record only; the heartbeat keeps what older records said before newer ones overwrite them."""
    program = compile_c(tmp_path / "journal", [HERE / "journal.c"], *linked(double(tmp_path)))
    assert run([program, 3], tmp_path / "logs", shim, FORENSICS_SHIM_BYTES=str(MIB)).returncode == -9
    log = only_log(tmp_path / "logs")
    rows = {row["size"]: row for row in log.rows("communicator_states")}
    assert {size: row["operations"] for size, row in rows.items()} == {4: 5, 2: 4500, 8: 1}
    assert {size: row["inside_kind"] for size, row in rows.items()} == {4: None, 2: None, 8: "all_reduce"}
    calls = log.rows("operations")
    assert not [row for row in calls if row["count"] == 1]  # overwritten
    assert [row["count"] for row in calls if row["inside"]] == [77]


@pytest.mark.slow
@pytest.mark.parametrize("order", [(), ("late",)], ids=["main-last", "main-first"])
@pytest.mark.parametrize("who", ["main", "other", "both"])
def test_the_heartbeat_is_never_the_last_thread(who: str, order: tuple[str, ...], shim: Path, tmp_path: Path) -> None:
    program = compile_c(tmp_path / "last", [HERE / "last_thread.c"], *linked(double(tmp_path)))
    done = run([program, who, *order], tmp_path / "logs", shim)
    assert (done.returncode, done.stderr, done.stdout) == (0, "", "ends in a thread of the program: 1\n")


def test_the_head_names_the_process(lives: Path, shim: Path, tmp_path: Path) -> None:
    run([lives, "kill"], tmp_path, shim, SLURM_PROCID="7", SLURM_NTASKS="16", SLURM_LOCALID="3", FORENSICS_SHIM_JOB="a/b")
    (path,) = files(tmp_path)
    log = read(path.read_bytes(), path.name)
    config = log.config()
    assert path.parent.name == "a_b"
    assert (log.identities[0].rank, config["world_size"], config["shim.local_rank"]) == (7, "16", "3")
    assert config["shim.executable"] == str(lives)
    assert config["shim.rank_variable"] == "SLURM_PROCID"


def test_it_can_be_switched_off(lives: Path, shim: Path, tmp_path: Path) -> None:
    assert run([lives, "kill"], tmp_path, shim, FORENSICS_SHIM="0").returncode == -9
    assert files(tmp_path) == []


def limited(lives: Path, logs: Path, shim: Path, most: int) -> subprocess.CompletedProcess[bytes]:
    """A job that may not write files larger than `most` bytes: a disk that is full."""
    variables = {"FORENSICS_SHIM_DIR": str(logs), "LD_PRELOAD": str(shim)}

    def limit() -> None:
        resource.setrlimit(resource.RLIMIT_FSIZE, (most, most))

    return subprocess.run([lives, "threads"], env=variables, preexec_fn=limit, capture_output=True)


def test_a_disk_with_little_room_gets_a_smaller_log(lives: Path, shim: Path, tmp_path: Path) -> None:
    done = limited(lives, tmp_path, shim, 3 * MIB)
    assert (done.returncode, done.stderr) == (0, b"")
    (path,) = files(tmp_path)
    assert path.stat().st_size <= 3 * MIB
    log = read(path.read_bytes(), path.name)
    assert len(log.rows("operations")) == 102
    assert [row["status"] for row in log.rows("coverage") if row["kind"] == "shim_log"] == ["partial"]
    assert "no room for the wanted size" in log.problems[0].message


def test_a_full_disk_turns_recording_off_and_says_so(lives: Path, shim: Path, tmp_path: Path) -> None:
    done = limited(lives, tmp_path, shim, 65536)
    assert (done.returncode, done.stderr) == (0, b"")
    (path,) = files(tmp_path)
    assert path.suffix == ".off"
    log = read(path.read_bytes(), path.name)
    assert "no space (errno 27)" in log.problems[0].message


def test_folders_above_the_logs_are_made(lives: Path, shim: Path, tmp_path: Path) -> None:
    assert run([lives, "threads"], tmp_path / "not/yet/there", shim).returncode == 0
    (log,) = files(tmp_path)
    assert log.parts[-5:-2] == ("not", "yet", "there")


def test_a_folder_that_cannot_be_made_costs_the_log_only(lives: Path, shim: Path, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("in the way")
    job = f"test-{os.getpid()}"
    done = run([lives, "threads"], tmp_path / "file", shim, FORENSICS_SHIM_JOB=job)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
    (note,) = Path(f"/dev/shm/forensics-{os.geteuid()}/{job}").iterdir()
    assert "reason=3" in note.read_text()
    shutil.rmtree(note.parent)
