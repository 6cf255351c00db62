"""Stacks that a timer of faulthandler wrote into logs of ranks: whose they are, and when they tell a standstill."""

from __future__ import annotations

from pathlib import Path

import pytest

from forensics.model import Outcome
from tests.recordings.verdicts import named, verdict_of
from tests.unit.ingest.reading import read

STEPS = "".join(f"epoch 2 iter {number}/900 loss 1.4 lr 3e-4\n" for number in range(300, 312))
OTHER = 'Thread 0x00007f11a3fff640 (most recent call first):\n  File "/usr/lib/python3.11/threading.py", line 324 in wait\n\n'
WAITS = ("/opt/py/torch/distributed/distributed_c10d.py", "all_reduce", 2219), ("/ws/seg/engine.py", "reduce_loss", 133)
READS = ("/opt/py/PIL/Image.py", "open", 3421), ("/ws/seg/tiles.py", "__getitem__", 58)
OUTER = ("/ws/seg/main.py", "main", 211), ("/ws/seg/main.py", "<module>", 240)


def dump(
    inner: tuple[tuple[str, str, int], ...] = WAITS, timer: str = "0:10:00", outer: tuple[tuple[str, str, int], ...] = OUTER
) -> str:
    frames = "".join(f'  File "{file}", line {line} in {name}\n' for file, name, line in (*inner, *outer))
    return f"Timeout ({timer})!\n{OTHER}Thread 0x00007f12b41c7740 (most recent call first):\n{frames}\n"


def write(folder: Path, logs: dict[int, str]) -> Path:
    for rank, text in logs.items():
        (folder / f"train_rank{rank}.log").write_text(text)
    return folder


def stuck(between: str = "", after: str = "") -> dict[int, str]:
    return {rank: STEPS + between.join([dump(READS if rank == 1 else WAITS)] * 2) + after for rank in range(4)}


def test_two_dumps_of_a_timer_are_two_moments(tmp_path: Path) -> None:
    verdict = verdict_of(write(tmp_path, stuck()))
    assert (named(verdict), verdict.outcome) == ({1}, Outcome.HANG)


def aborted(inner: tuple[tuple[str, str, int], ...], before: str = "") -> str:
    text = dump(inner).removeprefix("Timeout (0:10:00)!\n").removeprefix(OTHER).replace("Thread", "Current thread")
    return f"{STEPS}{before}Fatal Python error: Aborted\n\n{text}Extension modules: torch._C (total: 1)\n"


def test_aborts_from_outside_are_one_moment(tmp_path: Path) -> None:
    """Somebody sent SIGABRT to all ranks of a stuck job to see where they are."""
    verdict = verdict_of(write(tmp_path, {rank: aborted(READS if rank == 1 else WAITS) for rank in range(4)}))
    assert (named(verdict), verdict.outcome) == ({1}, Outcome.INCONCLUSIVE)


def test_an_abort_of_a_rank_that_failed_shows_no_wait(tmp_path: Path) -> None:
    error = "terminate called after throwing an instance of 'c10::Error'\n"
    logs = {rank: aborted(READS if rank == 1 else WAITS, error if rank == 1 else "") for rank in range(4)}
    assert read(logs[1].encode(), "train_rank1.log").rows("stacks") == []
    assert not named(verdict_of(write(tmp_path, dict.fromkeys(range(4), logs[1]))))


@pytest.mark.parametrize("form", ["[rank{}]: {}\n", "{}: {}\n"])
def test_in_a_log_of_all_the_rank_stands_in_front_of_aborts(tmp_path: Path, form: str) -> None:
    texts = {rank: aborted(READS if rank == 1 else WAITS).removeprefix(STEPS) for rank in range(4)}
    steps = "".join(form.format(rank, line) for line in STEPS.splitlines() for rank in range(4))
    ends = "".join(form.format(rank, line) for rank, text in texts.items() for line in text.splitlines())
    (tmp_path / "job.log").write_text(steps + ends)
    assert named(verdict_of(tmp_path)) == {1}


def test_in_one_log_the_rank_stands_in_front(tmp_path: Path) -> None:
    said = [(rank, dump(READS if rank == 1 else WAITS)) for rank in (0, 3, 1, 2)] * 2
    lines = [f"[rank{rank}]: {line}\n" for rank, text in said for line in text.splitlines()]
    (tmp_path / "job.log").write_text(STEPS + "".join(lines))
    assert named(verdict_of(tmp_path)) == {1}


@pytest.mark.parametrize("between", ["", STEPS])
def test_one_dump_is_one_moment(tmp_path: Path, between: str) -> None:
    logs = stuck(between) if between else {rank: STEPS + dump(READS if rank == 1 else WAITS) for rank in range(4)}
    assert verdict_of(write(tmp_path, logs)).outcome is Outcome.INCONCLUSIVE


@pytest.mark.parametrize(
    "logs",
    [
        stuck(after="".join(f"epoch 2 iter {number}/900 loss 1.3 lr 3e-4\n" for number in range(312, 330))),
        {rank: STEPS + dump(READS, outer=()) * 2 for rank in range(4)},
        {rank: STEPS + 2 * dump(READS) for rank in range(4)},
    ],
    ids=["steps below", "cut", "all alike"],
)
def test_dumps_that_show_no_standstill_accuse_nobody(tmp_path: Path, logs: dict[int, str]) -> None:
    assert named(verdict_of(write(tmp_path, logs))) == set()


def test_stacks_in_a_log_of_several_ranks_without_labels_are_of_no_rank() -> None:
    assert {row.get("rank") for row in read((STEPS * 9 + dump() * 2).encode(), "job.log").rows("stacks")} == {None}


def test_a_log_of_dated_lines_with_the_word_of_python_that_it_ends_is_a_log() -> None:
    frames = "Thread 0x00007f12b41c7740 (most recent call first):\n"
    frames += "".join(f'  File "/ws/a.py", line {line} in read\n' for line in (8, 9))
    dated = "".join(f"2026-03-21T08:1{number}:00 step {number}00 loss 2.{number}\n" for number in range(9))
    assert read((dated + "Fatal Python error: Bus error\n\n" + frames).encode(), "w-6.log").ingester == "training_log"
    assert read((dated + frames).encode(), "w-6.log").ingester == "training_log"
    assert read(("2026-03-21T08:10:00\n" + frames).encode(), "w-6.txt").ingester == "python_stacks_text"


def env(rank: int, form: str = 'declare -x {}="{}"') -> str:
    known = (("HOSTNAME", f"w-{rank}"), ("RANK", rank), ("LOCAL_RANK", 0), ("WORLD_SIZE", 3))
    return "".join(f"{form.format(name, value)}\n" for name, value in known)


@pytest.mark.parametrize("form", ['declare -x {}="{}"', "export {}={}", "{}={}"])
def test_a_printed_environment_tells_whose_a_log_is(tmp_path: Path, form: str) -> None:
    for rank in range(3):
        end = "Fatal Python error: Bus error\n" if rank == 2 else f"[rank{rank}]: ncclRemoteError: remote process exited\n"
        (tmp_path / f"w-{'abc'[rank]}.log").write_text(env(rank, form) + STEPS + end)
    assert named(verdict_of(tmp_path)) == {2}


def test_the_number_of_a_pod_is_no_rank_without_a_local_one(tmp_path: Path) -> None:
    """Each pod may have several ranks; that the second one wrote as rank 1 would show that it has one."""
    for rank in range(3):
        end = "Fatal Python error: Bus error\n" if rank == 2 else f"[rank{8 * rank}]: ncclRemoteError: remote process exited\n"
        text = env(rank).replace('declare -x LOCAL_RANK="0"\n', "")
        (tmp_path / f"w-{'abc'[rank]}.log").write_text(text + STEPS + end)
    assert named(verdict_of(tmp_path)) == set()
