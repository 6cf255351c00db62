"""Faults that make scenarios for rules which no everyday fault reaches: start-up, teardown, a callback, a ring of receives."""

from __future__ import annotations

import os
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.live.faults import WORLD, Answer, Fault, Position
from tests.live.harness import DumpRequest, Job, launch


@contextmanager
def vocabulary_never_opens(folder: Path, at: Position) -> Iterator[Job]:
    for rank in range(WORLD):
        path = folder / f"words-{rank}.txt"
        if rank == at.victim:
            os.mkfifo(path)
        else:
            path.write_text("".join(f"word{number}\n" for number in range(500)))
    with launch("train_ner.py", [str(folder / "words-{rank}.txt")]) as job:
        # The line of its worker server: before it a rank may still be loading its libraries from a slow disk.
        job.wait_steps(1)
        job.wait_hang()
        yield job


@contextmanager
def row_with_a_letter(folder: Path, at: Position) -> Iterator[Job]:
    for rank in range(WORLD):
        rows = [f"0.1 0.{number % 10} 0.5 0.{rank}" for number in range(at.step + 20)]
        if rank == at.victim:
            rows[at.step] = "0.1 0.2 O.5 0.4"
        (folder / f"boxes.{rank}").write_text("\n".join(rows))
    with launch("train_detector.py", [str(folder)]) as job:
        job.wait_hang()
        yield job


@contextmanager
def statistics_fall_silent(folder: Path, at: Position) -> Iterator[Job]:
    listeners = []
    for rank in range(WORLD):
        listener = socket.socket(socket.AF_UNIX)
        listener.bind(str(folder / f"stats-{rank}"))
        listener.listen()
        answers = at.step if rank == at.victim else None
        threading.Thread(target=_count, args=(listener, answers), daemon=True).start()
        listeners.append(listener)
    with launch("train_forecaster.py", [str(folder / "stats-{rank}")]) as job:
        job.wait_hang()
        yield job
    for listener in listeners:
        listener.close()


def _count(listener: socket.socket, answers: int | None) -> None:
    """Answer each line with its number; no more answers after `answers` lines."""
    stream, _ = listener.accept()
    count = 0
    while stream.recv(128):
        count += 1
        if answers is None or count <= answers:
            stream.sendall(f"{count:8}".encode())


@contextmanager
def everybody_receives_first(folder: Path, at: Position) -> Iterator[Job]:
    lines = [" ".join("even" if rank % 2 == 0 else "odd" for rank in range(WORLD))] * at.step
    (folder / "parities").write_text("\n".join([*lines, " ".join(["odd"] * WORLD)]))
    with launch("train_ring.py", [str(folder / "parities")]) as job:
        job.wait_hang()
        yield job


@contextmanager
def one_rank_works_more(folder: Path, at: Position) -> Iterator[Job]:
    arguments = ["--output", str(folder), "--slow-rank", str(at.victim), "--step", "0.03"]
    with launch("train_periodic.py", arguments, dumps=DumpRequest.NONE) as job:
        job.wait_steps(at.step)
        yield job


RARE_FAULTS = (
    Fault(vocabulary_never_opens, Position(2, 0), Answer(("init_stall",), stages=("init",))),
    Fault(row_with_a_letter, Position(1, 12), Answer(("python_exception",))),
    Fault(statistics_fall_silent, Position(3, 17), Answer(("host_stall",), stages=("callbacks",))),
    Fault(
        everybody_receives_first,
        Position(0, 8),
        Answer(("unknown", "p2p_unmatched", "deadlock"), ranks=lambda _: (tuple(range(WORLD)),)),
        victims=(0,),
    ),
    Fault(one_rank_works_more, Position(2, 20), Answer(("unknown",), outcomes=("slowdown",)), victims=(1, 2, 3)),
)
