"""Further faults on real jobs in which the ranks disagree: on the next call, its size, its root, its partner or its group."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path

from tests.live import deep_inputs
from tests.live.deep_waiting import wait_silent
from tests.live.faults import ALL, ODD, WORLD, Answer, Fault, Position
from tests.live.harness import Job, launch


@contextmanager
def weights_taken_back_alone(folder: Path, at: Position) -> Iterator[Job]:
    deep_inputs.outlier_batches(folder, WORLD, outlier=(at.victim, at.step))
    with launch("train_summarizer.py", ["--batches", str(folder)]) as job:
        job.wait_hang()
        yield job


@contextmanager
def rows_sent_instead_of_the_gradient(folder: Path, at: Position) -> Iterator[Job]:
    deep_inputs.word_batches(folder, WORLD, dull=(at.victim, at.step))
    with launch("train_sparse.py", [str(folder)]) as job:
        job.wait_hang()
        yield job


@contextmanager
def odd_batch(folder: Path, at: Position, scores: str, count: int) -> Iterator[Job]:
    deep_inputs.example_counts(folder, WORLD, odd=(at.victim, at.step), count=count)
    with launch("train_captioner.py", ["--captions", str(folder), "--scores", scores]) as job:
        wait_silent(job)
        yield job


@contextmanager
def one_member_takes_itself_for_the_best(folder: Path, at: Position) -> Iterator[Job]:
    deep_inputs.score_tables(folder, WORLD, vain=(at.victim, at.step))
    with launch("train_population.py", [str(folder / "scores.{rank}")]) as job:
        job.wait_hang()
        yield job


@contextmanager
def two_members_take_the_role_of_the_best(folder: Path, at: Position) -> Iterator[Job]:
    deep_inputs.score_tables(folder, WORLD, vain=(at.victim, at.step))
    with launch("train_population.py", [str(folder / "scores.{rank}"), "--by-role"]) as job:
        job.wait_hang()
        yield job


@contextmanager
def microbatch_left_out(folder: Path, at: Position) -> Iterator[Job]:
    deep_inputs.microbatch_lengths(folder, WORLD, empty=(at.victim, at.step))
    with launch("train_pipeline.py", [str(folder / "lengths.{rank}")]) as job:
        job.wait_hang()
        yield job


@contextmanager
def both_receive_first(folder: Path, at: Position) -> Iterator[Job]:
    deep_inputs.buffer_ages(folder, WORLD, wrong=(at.victim, at.step))
    with launch("train_swap.py", [str(folder)]) as job:
        job.wait_hang()
        yield job


@contextmanager
def group_never_created(folder: Path, at: Position) -> Iterator[Job]:
    deep_inputs.tiers(folder, WORLD, lacking=at.victim)
    with launch("train_experts.py", [str(folder / "tiers.{rank}")]) as job:
        job.wait_hang()
        yield job


@contextmanager
def pair_disagrees(folder: Path, at: Position) -> Iterator[Job]:
    deep_inputs.sharded_batches(folder, WORLD, odd=(at.victim, at.step), make=deep_inputs.bright_batch)
    with launch("train_sharded.py", ["--batches", str(folder)]) as job:
        job.wait_hang()
        yield job


@contextmanager
def batches_run_out_before_the_summary(folder: Path, at: Position) -> Iterator[Job]:
    deep_inputs.frames(folder, WORLD, short=(at.victim, at.step))
    with launch("train_speaker.py", [str(folder), "--summary"]) as job:
        job.wait_hang()
        yield job


@contextmanager
def batches_run_out_and_the_rank_ends(folder: Path, at: Position) -> Iterator[Job]:
    deep_inputs.frames(folder, WORLD, short=(at.victim, at.step))
    with launch("train_speaker.py", [str(folder)]) as job:
        wait_silent(job)
        yield job


def short_batch_is_summed(folder: Path, at: Position) -> AbstractContextManager[Job]:
    return odd_batch(folder, at, "sum", 5)


def long_batch_is_summed(folder: Path, at: Position) -> AbstractContextManager[Job]:
    return odd_batch(folder, at, "sum", 11)


def short_batch_is_gathered(folder: Path, at: Position) -> AbstractContextManager[Job]:
    return odd_batch(folder, at, "gather", 5)


def long_batch_is_gathered(folder: Path, at: Position) -> AbstractContextManager[Job]:
    return odd_batch(folder, at, "gather", 11)


def short_batch_receives_a_broadcast(folder: Path, at: Position) -> AbstractContextManager[Job]:
    return odd_batch(folder, at, "first", 5)


def neighbours(at: Position) -> tuple[tuple[int, ...], ...]:
    """The pair in which each waits for the other."""
    return (pair_of(at),)


def odd_rank_or_tensor_pair(at: Position) -> tuple[tuple[int, ...], ...]:
    """Only an earlier step or the other pair can tell which of two did something else."""
    return ((at.victim,), pair_of(at))


def odd_rank_or_roots_or_everybody(at: Position) -> tuple[tuple[int, ...], ...]:
    """No recorder keeps the root of a broadcast: the two that take themselves for it look alike."""
    other = (at.victim + 2) % WORLD
    return ((at.victim,), (min(at.victim, other), max(at.victim, other)), ALL)


def pair_of(at: Position) -> tuple[int, int]:
    even = at.victim - at.victim % 2
    return even, even + 1


EXTRA = Answer(("extra_or_missing_collective",), rules=("FX120",))
SHAPE = Answer(("shape_mismatch",))
SHAPE_OR_DEAD = Answer(("shape_mismatch", "process_dead"), outcomes=("hang", "failstop"))
ENDED = Answer(("process_dead", "extra_or_missing_collective"), outcomes=("hang", "failstop"))
ROOT = Answer(("collective_mismatch", "unknown"), ranks=odd_rank_or_roots_or_everybody)
MISSING = Answer(("p2p_unmatched", "extra_or_missing_collective"))
FACING = Answer(("deadlock",), ranks=neighbours)
PAIR = Answer(("collective_mismatch", "extra_or_missing_collective"), stages=("forward",), ranks=odd_rank_or_tensor_pair)

DISAGREEMENTS = (
    Fault(batches_run_out_before_the_summary, Position(1, 13), ODD),
    Fault(batches_run_out_and_the_rank_ends, Position(2, 13), ENDED),
    Fault(weights_taken_back_alone, Position(2, 16), EXTRA),
    Fault(rows_sent_instead_of_the_gradient, Position(1, 19), ODD),
    Fault(short_batch_is_summed, Position(2, 12), SHAPE),
    Fault(long_batch_is_summed, Position(1, 12), SHAPE),
    Fault(short_batch_is_gathered, Position(2, 12), SHAPE_OR_DEAD),
    Fault(long_batch_is_gathered, Position(3, 12), SHAPE),
    Fault(short_batch_receives_a_broadcast, Position(2, 12), SHAPE_OR_DEAD, victims=(1, 2, 3)),
    Fault(one_member_takes_itself_for_the_best, Position(2, 3), ROOT),
    Fault(two_members_take_the_role_of_the_best, Position(1, 3), ROOT),
    Fault(microbatch_left_out, Position(2, 10), MISSING),
    Fault(both_receive_first, Position(1, 10), FACING),
    Fault(group_never_created, Position(2, 0), Answer(("init_stall",), stages=("init",))),
    Fault(pair_disagrees, Position(2, 12), PAIR),
)
