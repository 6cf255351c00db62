"""Folders that torchrun leaves: a number in them is a rank where something proves it, and accuses nobody where nothing does."""

from __future__ import annotations

import gzip
from pathlib import Path

import pytest

from tests.recordings.verdicts import named, verdict_of
from tests.unit.ingest.reading import SAMPLES

ERROR = (SAMPLES / "elastic_error/handmade_error.json").read_text()
LOST = ERROR.replace("ValueError: bad record 71", "ConnectionResetError: Connection reset by peer")


def start(folder: Path, first: str = "", failed: int | None = 2, attempt: int = 0, rank_of_others: int | None = None) -> Path:
    """Logs of four processes, of which one failed; `first` is what the first of them prints."""
    run = folder / "none_k2" / f"attempt_{attempt}"
    for local in range(4):
        (run / str(local)).mkdir(parents=True)
        steps = "".join(f"step {step}/900 loss 2.{local}\n" for step in range(attempt, attempt + 5))
        if rank_of_others is not None and local != failed:
            steps += f"[rank{rank_of_others + local}]:[W1124 10:10:01.123 ProcessGroupNCCL.cpp:1250] Warning: at exit\n"
        (run / str(local) / "stdout.log").write_text((first if local == 0 else "") + steps)
    if failed is not None:
        (run / str(failed) / "error.json").write_text(ERROR)
    return folder


@pytest.mark.parametrize(
    ("first", "others", "expected"),
    [("world_size=4\n", None, {2}), ("", 8, {10}), ("", None, set()), ("world_size=8\n", None, set())],
    ids=["all of the job", "others state theirs", "nothing tells", "a node of two"],
)
def test_who_failed_is_named_where_its_rank_is_proven(
    tmp_path: Path, first: str, others: int | None, expected: set[int]
) -> None:
    assert named(verdict_of(start(tmp_path, first, rank_of_others=others))) == expected


@pytest.mark.parametrize(("first", "expected"), [("world_size=4\n", {2}), ("", set())], ids=["proven", "nothing tells"])
def test_compressed_files_are_those_of_their_folder(tmp_path: Path, first: str, expected: set[int]) -> None:
    for path in [path for path in start(tmp_path, first).rglob("*") if path.is_file()]:
        path.with_name(f"{path.name}.gz").write_bytes(gzip.compress(path.read_bytes()))
        path.unlink()
    assert named(verdict_of(tmp_path)) == expected


def test_who_lost_the_others_is_not_named(tmp_path: Path) -> None:
    start(tmp_path, "world_size=4\n")
    (tmp_path / "none_k2/attempt_0/1/error.json").write_text(LOST)
    assert named(verdict_of(tmp_path)) == {2}


def test_an_error_of_an_earlier_start_tells_nothing_of_the_last(tmp_path: Path) -> None:
    start(tmp_path, "world_size=4\n")
    assert named(verdict_of(start(tmp_path, "world_size=4\n", failed=None, attempt=1))) == set()


WAITS = "torch/distributed/distributed_c10d.py", 2219, "all_reduce"
READS = "torch/utils/data/dataloader.py", 757, "_next_data"


def timed(local: int, place: tuple[str, int, str]) -> str:
    frames = "".join(f'  File "{file}", line {line} in {name}\n' for file, line, name in (place, ("train.py", 9, "<module>")))
    return "".join(
        f"Timeout (0:10:00)!\nThread 0x00007f12b41c{local}740 (most recent call first):\n{frames}\n" for _ in range(2)
    )


@pytest.mark.parametrize(
    ("first", "expected", "is_guess"),
    [("world_size=4\n", {2}, False), ("", {2}, True), ("world_size=8\n", set(), False)],
    ids=["all of the job", "nothing tells: those of one node", "a node of two"],
)
def test_stacks_in_logs_of_processes_of_a_node(tmp_path: Path, first: str, expected: set[int], is_guess: bool) -> None:
    run = start(tmp_path, first, failed=None) / "none_k2/attempt_0"
    for local in range(4):
        (run / str(local) / "stderr.log").write_text(f"start {local}\n" + timed(local, READS if local == 2 else WAITS))
    verdict = verdict_of(tmp_path)
    assert named(verdict) == expected
    assert is_guess == any("are in a job of one node" in label.reason for label in verdict.labels)
    assert not expected or not [warning for warning in verdict.warnings if "no rank is known" in str(warning)]


def test_processes_of_equal_stacks_are_several(tmp_path: Path) -> None:
    run = start(tmp_path, "", failed=None) / "none_k2/attempt_0"
    for local in range(4):
        (run / str(local) / "stderr.log").write_text(timed(0, READS if local == 2 else WAITS))
    assert named(verdict_of(tmp_path)) == {2}


@pytest.mark.parametrize("others", ["none_k3/attempt_0/1", "none_k2/attempt_0/5"], ids=["two nodes", "a gap"])
def test_numbers_on_a_node_are_no_ranks_beside_another_node_or_with_a_gap(tmp_path: Path, others: str) -> None:
    run = start(tmp_path, "", failed=None) / "none_k2/attempt_0"
    for local in range(4):
        (run / str(local) / "stderr.log").write_text(f"start {local}\n" + timed(local, READS if local == 2 else WAITS))
    (tmp_path / others).mkdir(parents=True)
    (tmp_path / others / "stderr.log").write_text("start\n" + timed(7, WAITS))
    assert named(verdict_of(tmp_path)) == set()
