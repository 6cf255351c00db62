"""Folders that torchrun leaves: a number in them is a rank where something proves it, and accuses nobody where nothing does."""

from __future__ import annotations

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


def test_who_lost_the_others_is_not_named(tmp_path: Path) -> None:
    start(tmp_path, "world_size=4\n")
    (tmp_path / "none_k2/attempt_0/1/error.json").write_text(LOST)
    assert named(verdict_of(tmp_path)) == {2}


def test_an_error_of_an_earlier_start_tells_nothing_of_the_last(tmp_path: Path) -> None:
    start(tmp_path, "world_size=4\n")
    assert named(verdict_of(start(tmp_path, "world_size=4\n", failed=None, attempt=1))) == set()
