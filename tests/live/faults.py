"""The faults: how each is brought about on a real job, and what an honest diagnosis may say of it.

`victim` is the rank it happens to and `step` roughly when; both can be moved from the command line of pytest.
"""

from __future__ import annotations

import signal
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from pathlib import Path

from tests.live import inputs
from tests.live.harness import DumpRequest, Job, launch

WORLD = 4
ALL = tuple(range(WORLD))


@dataclass(frozen=True, slots=True)
class Position:
    """Where and when."""

    victim: int
    step: int


Start = Callable[[Path, Position], AbstractContextManager[Job]]


@dataclass(frozen=True, slots=True)
class Answer:
    """What may be said: `ranks` gives the sets of ranks that are right, no stages means any; `rules` must be named."""

    causes: tuple[str, ...]
    stages: tuple[str, ...] = ()
    outcomes: tuple[str, ...] = ("hang",)
    ranks: Callable[[Position], tuple[tuple[int, ...], ...]] = lambda at: ((at.victim,),)
    rules: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Fault:
    """One fault, its usual position, the right answer, and the ranks that it can be moved to."""

    start: Start
    position: Position
    answer: Answer
    victims: tuple[int, ...] = ALL


@contextmanager
def shard_that_never_opens(folder: Path, at: Position) -> Iterator[Job]:
    inputs.token_shards(folder, WORLD, blocked=(at.victim, 2 * at.step))
    with launch("pretrain_gpt.py", ["--data", str(folder)]) as job:
        job.wait_hang()
        yield job


@contextmanager
def shard_that_never_opens_without_workers(folder: Path, at: Position) -> Iterator[Job]:
    inputs.token_shards(folder, WORLD, blocked=(at.victim, 2 * at.step))
    with launch("pretrain_gpt.py", ["--data", str(folder), "--workers", "0"], dumps=DumpRequest.PIPE) as job:
        job.wait_hang()
        yield job


@contextmanager
def cache_lock_held_elsewhere(folder: Path, at: Position) -> Iterator[Job]:
    inputs.feature_cache(folder, WORLD)
    with launch("finetune_classifier.py", [str(folder)], dumps=DumpRequest.NONE) as job:
        job.wait_steps(at.step)
        with inputs.held_lock(folder / f"features-{at.victim}.lock"):
            job.wait_hang()
            yield job


@contextmanager
def feature_service_falls_silent(folder: Path, at: Position) -> Iterator[Job]:
    address = folder / "features"
    with (
        inputs.feature_service(address, at.victim, after=8 * at.step),
        launch("train_recsys.py", [str(address)]) as job,
    ):
        job.wait_hang()
        yield job


@contextmanager
def snapshot_file_never_opens(folder: Path, at: Position) -> Iterator[Job]:
    inputs.blocked_file(folder / f"model-{at.step:06d}.pt")
    with launch("train_vit.py", ["--output", str(folder), "--save-every", str(at.step)]) as job:
        job.wait_hang()
        yield job


@contextmanager
def part_file_takes_no_more(folder: Path, at: Position) -> Iterator[Job]:
    part = folder / f"step{at.step:05d}-part{at.victim:02d}of{WORLD:02d}.pt"
    env = {"OUTPUT_DIR": str(folder), "SAVE_EVERY": str(at.step)}
    with inputs.full_pipe(part), launch("train_diffusion.py", env=env) as job:
        job.wait_hang()
        yield job


@contextmanager
def killed_and_not_reaped(folder: Path, at: Position) -> Iterator[Job]:
    with launch("pretrain_audio.py", ["--run-dir", str(folder), "--num-workers", "0"]) as job:
        job.wait_steps(at.step)
        job.processes[at.victim].kill()
        job.wait_hang()
        yield job


@contextmanager
def killed_and_reaped(folder: Path, at: Position) -> Iterator[Job]:
    with launch("pretrain_audio.py", ["--run-dir", str(folder)]) as job:
        job.wait_steps(at.step)
        job.processes[at.victim].kill()
        job.processes[at.victim].wait()
        job.wait_hang()
        yield job


@contextmanager
def stopped(folder: Path, at: Position) -> Iterator[Job]:
    with launch("train_segmentation.py", ["--output", str(folder)]) as job:
        job.wait_steps(at.step)
        job.processes[at.victim].send_signal(signal.SIGSTOP)
        job.wait_hang()
        yield job


@contextmanager
def metric_exchange_left_out(folder: Path, at: Position) -> Iterator[Job]:
    inputs.query_streams(folder, WORLD, barren=(at.victim, at.step))
    with launch("train_ranker.py", ["--queries", str(folder)]) as job:
        job.wait_hang()
        yield job


@contextmanager
def batch_dropped_in_an_epoch(folder: Path, at: Position) -> Iterator[Job]:
    inputs.sentences(folder, WORLD, empty=(at.victim, at.step))
    with launch("train_tagger.py", [str(folder)], dumps=DumpRequest.PIPE) as job:
        job.wait_hang()
        yield job


@contextmanager
def groups_of_all_in_another_order(folder: Path, at: Position) -> Iterator[Job]:
    inputs.activations(folder, WORLD, hot=(at.victim, at.step))
    with launch("train_moe.py", ["--activations", str(folder)]) as job:
        job.wait_hang()
        yield job


@contextmanager
def shared_groups_in_another_order(folder: Path, at: Position) -> Iterator[Job]:
    inputs.pairs(folder, WORLD, flipped=(at.victim, at.step))
    with launch("train_two_towers.py", [str(folder)]) as job:
        job.wait_hang()
        yield job


@contextmanager
def moving(folder: Path, at: Position) -> Iterator[Job]:
    with launch("train_segmentation.py", ["--output", str(folder)]) as job:
        job.wait_steps(at.step)
        yield job


@contextmanager
def moving_with_phases(folder: Path, at: Position) -> Iterator[Job]:
    with launch("train_segmentation.py", ["--output", str(folder), "--period", "8"]) as job:
        job.wait_steps(at.step)
        yield job


def odd_rank_or_everybody(at: Position) -> tuple[tuple[int, ...], ...]:
    """With two groups of the same ranks the cycle holds everybody; the order of earlier steps shows who left it."""
    return ((at.victim,), ALL)


def odd_rank_or_pair(at: Position) -> tuple[tuple[int, ...], ...]:
    """Only the two ranks that are in both groups can form the cycle."""
    return ((at.victim,), (1, 2))


DATA = Answer(("dataloader_stall",), stages=("data",))
SAVE = Answer(("checkpoint_stall",), stages=("checkpoint",))
DEAD = Answer(("process_dead",), outcomes=("hang", "failstop"))
STOPPED = Answer(("process_stopped",))
ODD = Answer(("extra_or_missing_collective", "collective_mismatch"))
CYCLE_OF_ALL = Answer(("deadlock",), ranks=odd_rank_or_everybody)
CYCLE_OF_TWO = Answer(("deadlock",), ranks=odd_rank_or_pair)

FAULTS = (
    Fault(shard_that_never_opens, Position(2, 20), DATA),
    Fault(shard_that_never_opens_without_workers, Position(1, 31), DATA),
    Fault(cache_lock_held_elsewhere, Position(3, 10), DATA),
    Fault(feature_service_falls_silent, Position(0, 26), DATA),
    Fault(snapshot_file_never_opens, Position(0, 18), SAVE, victims=(0,)),
    Fault(part_file_takes_no_more, Position(2, 15), SAVE),
    Fault(killed_and_not_reaped, Position(1, 14), DEAD),
    Fault(killed_and_reaped, Position(3, 22), DEAD),
    Fault(stopped, Position(1, 9), STOPPED),
    Fault(metric_exchange_left_out, Position(3, 40), ODD),
    Fault(batch_dropped_in_an_epoch, Position(1, 11), ODD),
    Fault(groups_of_all_in_another_order, Position(2, 25), CYCLE_OF_ALL),
    Fault(shared_groups_in_another_order, Position(2, 30), CYCLE_OF_TWO, victims=(1, 2)),
)
