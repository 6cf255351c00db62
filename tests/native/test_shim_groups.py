"""Places for handles belong to the program: it may take them back before, or fill them after, the group ends that uses them."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.native.shim_jobs import HERE, compile_c, files, linked, only_log, run
from tests.unit.ingest.reading import read

CASES = (
    "unmapped",
    "reused",
    "reused_before_the_end",
    "open_group_of_a_thread",
    "threads",
    "nonblocking",
    "nonblocking_freed",
    "forked",
    "many",
)


def build(folder: Path, *options: str) -> Path:
    folder.mkdir(exist_ok=True)
    library = compile_c(
        folder / "libnccl.so.2", [HERE / "deferred_nccl.c"], "-shared", "-fPIC", "-Wl,-soname,libnccl.so.2", *options
    )
    return compile_c(folder / "job", [HERE / "group_places.c"], *linked(library))


@pytest.fixture(scope="module")
def programs(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    folder = tmp_path_factory.mktemp("programs")
    return {"pnccl": build(folder / "both"), "plain": build(folder / "plain", "-DPLAIN_NAMES")}


@pytest.mark.parametrize("names", ["pnccl", "plain"])
@pytest.mark.parametrize("case", CASES)
def test_the_program_ends_as_it_does_alone(
    case: str, names: str, programs: dict[str, Path], shim: Path, tmp_path: Path
) -> None:
    alone = run([programs[names], case], tmp_path / "alone")
    assert (alone.returncode, alone.stderr) == (0, "")
    watched = run([programs[names], case], tmp_path / "logs", shim)
    assert (watched.returncode, watched.stderr, watched.stdout) == (0, "", alone.stdout)
    assert files(tmp_path / "logs")


def states(path: Path) -> list[str]:
    return [row["state"] for row in read(path.read_bytes(), path.name).rows("communicator_states")]


def test_what_a_failed_group_was_to_make_is_stated_as_failed(programs: dict[str, Path], shim: Path, tmp_path: Path) -> None:
    run([programs["pnccl"], "unmapped"], tmp_path, shim)
    assert sorted(row["state"] for row in only_log(tmp_path).rows("communicator_states")) == ["failed", "ready"]


def test_what_a_group_made_is_known_by_its_parent(programs: dict[str, Path], shim: Path, tmp_path: Path) -> None:
    run([programs["pnccl"], "reused_before_the_end"], tmp_path, shim)
    rows = only_log(tmp_path).rows("communicator_states")
    child = next(row for row in rows if row["parent"])
    assert (child["state"], child["operations"], child["size"], child["group_rank"]) == ("ready", 1, 2, 0)


def test_a_nonblocking_child_is_asked_when_it_is_ready(programs: dict[str, Path], shim: Path, tmp_path: Path) -> None:
    run([programs["pnccl"], "nonblocking"], tmp_path, shim)
    child = next(row for row in only_log(tmp_path).rows("communicator_states") if row["parent"])
    assert (child["state"], child["size"], child["operations"]) == ("ready", 2, 1)


def test_more_communicators_than_slots_are_counted_once(programs: dict[str, Path], shim: Path, tmp_path: Path) -> None:
    run([programs["pnccl"], "many"], tmp_path, shim)
    log = only_log(tmp_path)
    assert len(log.rows("communicator_states")) == 256
    assert len(log.rows("operations")) == 1200
    assert log.row("coverage", kind="shim_log")["reason"] == "0 records found no ring, 690 states no slot"
