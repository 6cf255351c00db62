"""Further faults of one rank: a writer thread blocks, a collection of garbage blocks, a branch that one rank takes alone."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path

from tests.live import deep_inputs, inputs
from tests.live.faults import SAVE, WORLD, Answer, Fault, Position
from tests.live.harness import DumpRequest, Job, launch


@contextmanager
def writer_thread_blocks(folder: Path, at: Position) -> Iterator[Job]:
    pipe = inputs.full_pipe(folder / f"student-{at.step:06d}-{at.victim}.pt")
    with pipe, launch("train_distiller.py", [str(folder), "--every", str(at.step)]) as job:
        job.wait_hang()
        yield job


@contextmanager
def writer_thread_blocks_the_interpreter(folder: Path, at: Position) -> Iterator[Job]:
    inputs.blocked_file(folder / f"student-{at.step:06d}-{at.victim}.pt")
    with launch("train_distiller.py", [str(folder), "--every", str(at.step), "--by-path"]) as job:
        job.wait_hang()
        yield job


@contextmanager
def finalizer_blocks_the_collection(folder: Path, at: Position) -> Iterator[Job]:
    inputs.blocked_file(folder / f"receipt-{at.victim}-{at.step:04d}")
    with launch("train_streams.py", [str(folder)]) as job:
        job.wait_hang()
        yield job


@contextmanager
def one_rank_restarts(folder: Path, at: Position, dumps: DumpRequest) -> Iterator[Job]:
    deep_inputs.plans(folder, WORLD, restart=(at.victim, at.step))
    with launch("train_tuner.py", [str(folder / "plan.{rank}")], dumps=dumps) as job:
        job.wait_hang()
        yield job


def restart_shown_by_the_recorder(folder: Path, at: Position) -> AbstractContextManager[Job]:
    return one_rank_restarts(folder, at, DumpRequest.PIPE)


def restart_shown_by_stacks(folder: Path, at: Position) -> AbstractContextManager[Job]:
    return one_rank_restarts(folder, at, DumpRequest.SERVER)


BRANCH = Answer(("collective_mismatch", "extra_or_missing_collective"), rules=("FX122",))

WORK = (
    Fault(writer_thread_blocks, Position(1, 12), SAVE),
    Fault(writer_thread_blocks_the_interpreter, Position(3, 12), SAVE),
    Fault(finalizer_blocks_the_collection, Position(2, 14), Answer(("host_stall",), rules=("FX119",))),
    Fault(restart_shown_by_the_recorder, Position(2, 13), BRANCH, victims=(2,)),
    Fault(restart_shown_by_stacks, Position(2, 13), BRANCH, victims=(2,)),
)
