"""Further faults of one rank on real jobs: a helper of the rank blocks, the rank loops, fails quietly or is only late."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.live import deep_inputs, inputs
from tests.live.deep_disagreements import DISAGREEMENTS
from tests.live.deep_waiting import wait_silent
from tests.live.deep_work import WORK
from tests.live.faults import ALL, DATA, DEAD, SAVE, WORLD, Answer, Fault, Position
from tests.live.harness import Job, launch


@contextmanager
def shard_writer_blocks(folder: Path, at: Position) -> Iterator[Job]:
    inputs.blocked_file(folder / f"{at.step:06d}-{at.victim}.pt")
    with launch("train_translator.py", ["--shards", str(folder), "--every", str(at.step)]) as job:
        job.wait_hang()
        yield job


@contextmanager
def address_pattern_explodes(folder: Path, at: Position) -> Iterator[Job]:
    deep_inputs.mail(folder, WORLD, tangled=(at.victim, at.step))
    with launch("train_spam_filter.py", [str(folder)]) as job:
        wait_silent(job)
        yield job


@contextmanager
def table_thread_keeps_the_interpreter(folder: Path, at: Position) -> Iterator[Job]:
    deep_inputs.weight_tables(folder, WORLD)
    with launch("train_reranker.py", [str(folder)]) as job:
        job.wait_steps(at.step)
        with deep_inputs.held_for_writing(folder / f"weights-{at.victim}"):
            job.wait_hang()
            yield job


@contextmanager
def locks_in_another_order(folder: Path, at: Position) -> Iterator[Job]:
    deep_inputs.arrivals(folder, WORLD, since=(at.victim, at.step))
    with launch("train_retriever.py", ["--corpus", str(folder)]) as job:
        job.wait_hang()
        yield job


@contextmanager
def packing_never_ends(folder: Path, at: Position) -> Iterator[Job]:
    deep_inputs.corpora(folder, WORLD, blank=(at.victim, at.step))
    with launch("train_packed.py", [str(folder / "corpus-{rank}")]) as job:
        wait_silent(job)
        yield job


@contextmanager
def scale_never_fits(folder: Path, at: Position) -> Iterator[Job]:
    deep_inputs.rows_of_numbers(folder, WORLD, undefined=(at.victim, at.step))
    with launch("train_half.py", [str(folder)]) as job:
        wait_silent(job)
        yield job


@contextmanager
def compiler_waits_for_a_header(folder: Path, at: Position) -> Iterator[Job]:
    deep_inputs.kernel_headers(folder, WORLD, blocked=(at.victim, at.step))
    with launch("train_tiled.py", ["--headers", str(folder), "--tiles", str(folder / "tiles")]) as job:
        job.wait_hang()
        yield job


@contextmanager
def record_tried_for_ever(folder: Path, at: Position) -> Iterator[Job]:
    deep_inputs.records(folder, WORLD, torn=(at.victim, at.step))
    with launch("train_curated.py", ["--records", str(folder)]) as job:
        wait_silent(job, tuple(rank for rank in ALL if rank != at.victim))
        yield job


@contextmanager
def failed_rank_waits_at_the_exit(folder: Path, at: Position) -> Iterator[Job]:
    deep_inputs.graphs(folder, WORLD, broken=(at.victim, at.step))
    with launch("train_graphs.py", [str(folder)]) as job:
        job.wait_hang()
        yield job


@contextmanager
def process_ends_itself(folder: Path, at: Position) -> Iterator[Job]:
    deep_inputs.series(folder, WORLD, wild=(at.victim, at.step))
    with launch("train_guarded.py", ["--run", str(folder)]) as job:
        wait_silent(job)
        yield job


@contextmanager
def batch_of_a_pair_never_opens(folder: Path, at: Position) -> Iterator[Job]:
    deep_inputs.sharded_batches(folder, WORLD, odd=(at.victim, at.step), make=os.mkfifo)
    with launch("train_sharded.py", ["--batches", str(folder)]) as job:
        job.wait_hang()
        yield job


@contextmanager
def rows_come_late(folder: Path, at: Position) -> Iterator[Job]:
    address = folder / "features"
    with (
        deep_inputs.late_feature_service(address, at.victim, delay_s=0.5 / 8, width=24),
        launch("train_recsys.py", [str(address)]) as job,
    ):
        job.wait_steps(at.step)
        yield job


# A loop of the job's own code shows only the job's own words, and a thread that waits for the interpreter may be anywhere.
LOOP_IN_DATA = Answer(("host_stall", "dataloader_stall", "compute_hang"), stages=("data", "unknown"))
LOOP_IN_STEP = Answer(("host_stall", "compute_hang"), stages=("forward", "backward"))
COMPILER = Answer(("host_stall",), stages=("forward",), rules=("FX119",))
RETRY = Answer(("python_exception", "dataloader_stall"), stages=("data", "unknown"))

DEEP_FAULTS = (
    Fault(shard_writer_blocks, Position(2, 12), SAVE),
    Fault(address_pattern_explodes, Position(1, 15), Answer(("gil_held",))),
    Fault(table_thread_keeps_the_interpreter, Position(3, 20), Answer(("gil_held",))),
    Fault(locks_in_another_order, Position(0, 18), Answer(("host_stall",), rules=("FX117",))),
    Fault(packing_never_ends, Position(2, 14), LOOP_IN_DATA),
    Fault(scale_never_fits, Position(1, 17), LOOP_IN_STEP),
    Fault(compiler_waits_for_a_header, Position(3, 11), COMPILER),
    Fault(record_tried_for_ever, Position(1, 12), RETRY),
    Fault(failed_rank_waits_at_the_exit, Position(3, 14), Answer(("python_exception",))),
    Fault(process_ends_itself, Position(2, 15), DEAD),
    Fault(batch_of_a_pair_never_opens, Position(3, 12), DATA),
    *DISAGREEMENTS,
    *WORK,
)
