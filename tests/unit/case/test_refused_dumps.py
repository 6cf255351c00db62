"""What py-spy prints in place of stacks shows a process that is stopped, or gone."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import pytest

from forensics.case.build import open_case
from forensics.model import Cause
from forensics.rules.diagnosis import diagnose

TITLE = "Process {0}: python train.py\nPython v3.11.9 (/usr/bin/python3.11)\n\n"
WAITS = TITLE + (
    'Thread {0} (idle): "MainThread"\n    all_reduce (torch/distributed/distributed_c10d.py:2900)\n'
    "    step (train.py:51)\n    <module> (train.py:97)\n"
)
REFUSED = TITLE + (
    "Error: Failed to get stack traces\n\nCaused by:\n    0: Failed to suspend process\n    1: {1}\n\n"
    "Stack backtrace:\n   0: py_spy::python_spy::PythonSpy::get_stack_traces\n   1: main\n"
)
STOPPED = REFUSED.replace("{1}", "unexpected waitpid result PtraceEvent(Pid({0}), SIGSTOP, 128) to {0}")
FORBIDDEN = REFUSED.replace("{1}", "EPERM: Operation not permitted\n    2: EPERM: Operation not permitted")
GONE = (
    "Error: Failed to get process executable name. Check that the process is running.\n\nCaused by:\n"
    "    0: No such file or directory (os error 2)\n    1: No such file or directory (os error 2)\n"
)


def folder(path: Path, texts: Mapping[str, str]) -> Path:
    path.mkdir()
    for number, (name, text) in enumerate(texts.items()):
        (path / f"{name}.txt").write_text(text.format(4100 + number))
    return path


def suspects(path: Path) -> list[tuple[tuple[int, ...], Cause]]:
    return [(suspect.ranks, suspect.cause) for suspect in diagnose(open_case([path])).suspects]


@pytest.mark.parametrize(
    ("third", "cause"),
    [
        (STOPPED, Cause.PROCESS_STOPPED),
        (STOPPED.replace("SIGSTOP", "SIGTSTP"), Cause.PROCESS_STOPPED),
        (GONE, Cause.PROCESS_DEAD),
    ],
    ids=["stopped", "by job control", "gone"],
)
def test_the_rank_that_py_spy_could_not_read_is_named(tmp_path: Path, third: str, cause: Cause) -> None:
    texts = {"rank0": WAITS, "rank1": WAITS, "rank2": third, "rank3": WAITS}
    assert suspects(folder(tmp_path / "job", texts)) == [((2,), cause)]


@pytest.mark.parametrize(
    "texts",
    [
        {"rank0": WAITS, "rank1": FORBIDDEN, "rank2": WAITS},
        {"rank0": WAITS, "rank1": GONE, "rank2": GONE, "rank3": WAITS},
        {"rank0": GONE, "rank1": GONE},
        {"rank0": WAITS, "rank1": GONE},
    ],
    ids=["not allowed", "two gone", "all gone", "one is no majority"],
)
def test_who_may_not_be_read_or_is_not_found_with_others_is_not_called_dead(tmp_path: Path, texts: Mapping[str, str]) -> None:
    assert {cause for _, cause in suspects(folder(tmp_path / "job", texts))} <= {Cause.UNKNOWN}


def test_a_stopped_process_is_counted_among_those_that_nothing_names(tmp_path: Path) -> None:
    texts = [WAITS.format(71), STOPPED.format(72), WAITS.format(73)]
    for name, order in {"in order": texts, "turned over": texts[::-1]}.items():
        path = tmp_path / f"{name}.txt"
        path.write_text("\n".join(order))
        connection = open_case([path])
        assert connection.execute("SELECT rank, pid FROM ranks ORDER BY ALL").fetchall() == [(0, 71), (1, 72), (2, 73)]
        (only,) = diagnose(connection).suspects
        assert (only.ranks, only.cause) == ((1,), Cause.PROCESS_STOPPED)


def test_a_heading_gives_the_rank_of_a_process_that_is_gone(tmp_path: Path) -> None:
    parts = {0: WAITS.format(71), 1: GONE, 2: WAITS.format(73)}
    path = tmp_path / "all.txt"
    path.write_text("\n".join(f"=== Rank {rank} ===\n{text}" for rank, text in parts.items()))
    assert suspects(path) == [((1,), Cause.PROCESS_DEAD)]


def test_a_process_that_was_read_is_not_the_one_that_is_gone(tmp_path: Path) -> None:
    """Only the command tells the number of a process that py-spy does not find, and a heading of a host ends that of a rank."""
    asked = "$ py-spy dump --pid 77\n"
    path = tmp_path / "all.txt"
    path.write_text(f"=== Rank 0 ===\n{WAITS.format(71)}\n=== Rank 1 ===\n{GONE}\n=== Rank 2 ===\n{WAITS.format(73)}\n")
    found = open_case([path]).execute("SELECT rank, pid FROM ranks WHERE state IS NOT NULL ORDER BY ALL").fetchall()
    assert found == [(1, None)]
    path.write_text(path.read_text().replace(GONE, asked + GONE))
    found = open_case([path]).execute("SELECT rank, pid FROM ranks WHERE state IS NOT NULL ORDER BY ALL").fetchall()
    assert found == [(1, 77)]
    path.write_text(f"=== Rank 0 ===\n{WAITS.format(71)}\n--- pod/llm-worker-3 ---\n{GONE}")
    assert open_case([path]).execute("SELECT count(*) FROM ranks WHERE state IS NOT NULL").fetchall() == [(0,)]


ASKED = "$ kubectl exec -n fit {0} -- py-spy dump --pid 1\n"


@pytest.mark.parametrize(
    ("found", "gone", "expected"),
    [((0, 1, 3), (2,), "gpt-2"), ((0, 3), (2,), None), ((0, 1, 3), (2, 4), None), ((0, 1, 2, 3), (), None)],
    ids=["one of four", "too few others", "two", "none"],
)
def test_a_pod_of_unknown_rank_in_which_there_is_no_such_process(
    tmp_path: Path, found: tuple[int, ...], gone: tuple[int, ...], expected: str | None
) -> None:
    parts = [ASKED.format(f"gpt-{number}") + WAITS.format(1) for number in found]
    parts += [ASKED.format(f"gpt-{number}") + GONE for number in gone]
    path = tmp_path / "stacks.txt"
    path.write_text("\n".join(parts))
    verdict = diagnose(open_case([path]))
    leads = [lead for lead in verdict.leads if "py-spy did not find it" in lead]
    assert not verdict.suspects
    assert [f"process 1 of {expected}:" in lead for lead in leads] == ([True] if expected else [])


def test_times_in_front_of_all_lines_change_nothing(tmp_path: Path) -> None:
    parts = [ASKED.format(f"gpt-{number}") + (GONE if number == 2 else WAITS.format(1)) for number in range(4)]
    lines = "\n".join(parts).splitlines()
    path = tmp_path / "stacks.txt"
    path.write_text("".join(f"2026-02-11T04:00:{number % 60:02d}.000Z {line}\n" for number, line in enumerate(lines)))
    assert any("process 1 of gpt-2:" in lead for lead in diagnose(open_case([path])).leads)
