"""Stacks that nothing names, each in a folder with the log or the dump of one rank."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import pytest

from forensics.case.build import open_case


def stack(pid: int) -> str:
    frames = "    all_reduce (torch/distributed/distributed_c10d.py:2900)\n    <module> (train.py:97)\n"
    return f'Process {pid}: python\nPython v3.11.9 (/usr/bin/python3.11)\n\nThread {pid} (idle): "MainThread"\n{frames}'


def steps(rank: int) -> str:
    return "".join(f"step {number} rank {rank}\n" for number in range(0, 30, 10))


def ranks_of(folder: Path, files: Mapping[str, str]) -> dict[int, int | None]:
    """Rank by process."""
    for name, text in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text)
    with open_case([folder]) as case:
        return dict(case.execute("SELECT pid, any_value(rank) FROM stacks GROUP BY pid").fetchall())


def test_a_folder_for_each_host_tells_the_ranks(tmp_path: Path) -> None:
    hosts = {"atlas-54": 2, "borea-02": 0, "borea-65": 1}
    files = {f"{host}/train.log": steps(rank) for host, rank in hosts.items()}
    files |= {f"{host}/spy/now.txt": stack(70 + rank) for host, rank in hosts.items()}
    assert ranks_of(tmp_path, files) == {70: 0, 71: 1, 72: 2}


@pytest.mark.parametrize(
    ("ranks", "more"),
    [
        ((0, 2), {}),
        ((0, 8), {}),
        ((0, 1), {"a1/other.txt": stack(90), "b7/other.txt": stack(91)}),
        ((0, 1), {"a1/other.log": steps(3)}),
    ],
    ids=["two ranks a node", "eight ranks a node", "two processes", "logs of two ranks"],
)
def test_a_folder_may_hold_the_log_of_one_rank_and_the_stack_of_another(
    ranks: tuple[int, int], more: Mapping[str, str], tmp_path: Path
) -> None:
    files = {f"{host}/train.log": steps(rank) for host, rank in zip(("a1", "b7"), ranks, strict=True)}
    files |= {f"{host}/now.txt": stack(pid) for host, pid in (("a1", 70), ("b7", 71))}
    assert set(ranks_of(tmp_path, {**files, **more}).values()) == {None}


def looks(folder: str, pid: int) -> dict[str, str]:
    return {f"{folder}/spy/{number}.txt": stack(pid) for number in range(3)}


def test_numbers_that_count_looks_at_one_process_are_no_ranks(tmp_path: Path) -> None:
    files = looks("atlas-54", 70) | looks("borea-02", 71) | looks("borea-65", 72)
    assert ranks_of(tmp_path, files) == {70: 0, 71: 1, 72: 2}  # in the order of the processes


@pytest.mark.parametrize(
    ("folders", "ranks"),
    [
        ({"0": 72, "1": 70, "2": 71}, {72: 0, 70: 1, 71: 2}),
        ({"0": 72, "2": 71}, {71: 0, 72: 1}),
        ({"0": 70, "1": 70, "2": 70}, {70: None}),
    ],
    ids=["a folder for each rank", "one is missing: by process", "a folder for each round"],
)
def test_folders_that_are_called_by_all_numbers(
    folders: Mapping[str, int], ranks: Mapping[int, int | None], tmp_path: Path
) -> None:
    assert ranks_of(tmp_path, {f"{folder}/now.txt": stack(pid) for folder, pid in folders.items()}) == ranks


def test_numbers_of_ranks_in_two_rounds_stay(tmp_path: Path) -> None:
    files = {f"{at}/{rank}.txt": stack(70 + rank) for at in ("before", "after") for rank in range(3)}
    assert ranks_of(tmp_path, files) == {70: 0, 71: 1, 72: 2}
