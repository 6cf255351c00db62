"""Jobs in which nothing is wrong accuse nobody: they are healthy, or nothing is said of them.

Each number stands for one job, made anew from it: grids of tensor, pipeline and data parallelism, recorders of devices and of
gloo, jitter, hosts that run ahead, rings that wrapped, ranks that left nothing. FORENSICS_HEALTHY_JOBS says how many are tried.
One undated look at a single moment, or at a single rank, is left out: a job that is stuck leaves the very same bytes.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from random import Random

import pytest

from forensics.model import Outcome
from tests.recordings.collection import Collection, write
from tests.recordings.job import MILLISECOND, SECOND, Job, as_json, as_pickle
from tests.recordings.parallel import Run, Shape
from tests.recordings.places import HOST_CODE, collective
from tests.recordings.sound import Sound, Tempo
from tests.recordings.verdicts import verdict_of

COUNT = int(os.environ.get("FORENSICS_HEALTHY_JOBS", "40"))


def sound(random: Random, steps: tuple[int, int], pauses: Callable[[Run], dict[tuple[int, int], int]] | None = None) -> Sound:
    """A run of a random shape and tempo, of so many steps."""
    backend = random.choice(("nccl", "nccl", "gloo"))
    shape = Shape(
        random.randint(1, 2), random.randint(1, 3), random.randint(1, 3), random.randint(1, 2), random.randint(*steps)
    )
    if shape.world < 2:
        shape = Shape(2, 1, 2, shape.microbatches, shape.steps)
    run = Run(shape, Job(shape.world, backend))
    work = random.choice((1, 10, 50)) * MILLISECOND
    tempo = Tempo(
        work_ns=work,
        jitter_ns=random.choice((work // 10, work, 3 * work)),
        transfer_ns=random.choice((1, 5)) * MILLISECOND,
        ahead=0 if backend == "gloo" else random.choice((0, 2, 10)),
        long_ns=pauses(run) if pauses else {},
    )
    return Sound(run, tempo, random)


def step_ns(job: Sound) -> int:
    first, last = job.span_ns
    return (last - first) // job.run.shape.steps


def kept(random: Random, world: int) -> list[int]:
    """All ranks, or all but a few; two at least."""
    lost = set(random.sample(range(world), min(random.choice((0, 0, 0, 1, world // 3)), world - 2)))
    return [rank for rank in range(world) if rank not in lost]


def loose_files(random: Random, folder: Path, job: Job, ranks: list[int], *, active: bool = False) -> Path:
    """Dumps as a loop over hosts leaves them, in the form and with the memory that this job has."""
    ring = random.choice((2000, 2000, 40, 15))
    encode = random.choice((as_pickle, as_json))
    skews = {rank: random.randint(-2, 2) * MILLISECOND for rank in ranks}
    dumps = {rank: job.dump(rank, ring=ring, only_active=active, skew_ns=skews[rank]) for rank in ranks}
    return write(folder, {f"nccl_trace_rank_{rank}": encode(dump) for rank, dump in dumps.items()})


def dumped_one_after_another(random: Random, folder: Path) -> Path:
    """Nothing dates the files, and the job moves on by steps from each to the next."""
    job = sound(random, (50, 70))
    world, gap = job.run.shape.world, int(step_ns(job) * random.uniform(4, 5))
    order = random.sample(range(world), world)
    begin = job.span_ns[0] + 3 * step_ns(job)
    moments = [min(begin + gap * order.index(rank), job.span_ns[1]) for rank in range(world)]
    return loose_files(random, folder, job.at(moments), kept(random, world))


def finished(random: Random, folder: Path) -> Path:
    job = sound(random, (2, 6))
    world = job.run.shape.world
    after = job.at([job.span_ns[1] + SECOND] * world)
    return loose_files(random, folder, after, kept(random, world), active=random.random() < 0.5)


def captures(random: Random, job: Sound, at_ns: int, count: int, *, stacks: bool = False, active: bool = False) -> Collection:
    """A bundle of `count` looks at every rank, made within a tenth of a second; gloo cannot tell which entries are active."""
    found = Collection(job.run.shape.world, at_ns)
    apart, active = 2 * SECOND, active and job.run.job.backend != "gloo"
    for rank in kept(random, job.run.shape.world):
        found.rank(rank)
        places = []
        for number in range(count):
            moment = at_ns + number * apart + random.randrange(SECOND // 10)
            snapshot = job.at([moment] * job.run.shape.world)
            found.dump(snapshot, rank, number, moment)
            found.members[f"ranks/{rank}/fr/{number}.json"] = as_json(snapshot.dump(rank, only_active=active))
            calls = snapshot.calls[rank]
            inside = bool(calls) and calls[-1].done_ns is None
            places.append(collective(calls[-1].kind.split(" ")[0]) if inside else HOST_CODE)
        if stacks:
            found.stacks(rank, *places)
    return found


def one_dated_look(random: Random, folder: Path) -> Path:
    job = sound(random, (8, 20))
    first, last = job.span_ns
    return captures(random, job, random.randrange(first + 4 * step_ns(job), last), 1, active=random.random() < 0.3).write(
        folder
    )


def two_looks(random: Random, folder: Path) -> Path:
    job = sound(random, (60, 80))
    return captures(random, job, job.span_ns[0] + 4 * step_ns(job), 2, stacks=True, active=random.random() < 0.3).write(folder)


def first_steps(random: Random, folder: Path) -> Path:
    """Whoever compiles first lets the others wait."""
    job = sound(random, (4, 5), lambda run: {(rank, 0): rank * 300 * MILLISECOND for rank in range(run.shape.world)})
    first = job.span_ns[0]
    return captures(random, job, random.randrange(first, first + step_ns(job)), 1).write(folder)


def pauses_of(rank: int | None, every: int, ns: int) -> Callable[[Run], dict[tuple[int, int], int]]:
    """Work before the first call of each `every`th step, of one rank or of all."""

    def found(run: Run) -> dict[tuple[int, int], int]:
        ranks = range(run.shape.world) if rank is None else [rank]
        return {
            (one, step * len(run.programs[one]) // run.shape.steps): ns
            for one in ranks
            for step in range(every, run.shape.steps, every)
        }

    return found


def paused(random: Random, folder: Path, rank: int | None) -> Path:
    """In a pause that recurs: the third or a later one."""
    every, pause = 3, 4 * SECOND
    job = sound(random, (14, 16), pauses_of(rank, every, pause))
    who = rank or 0
    calls = len(job.run.programs[who]) // job.run.shape.steps
    begin = job.left[who][random.choice((3, 4)) * every * calls - 1]
    return captures(random, job, begin + random.randrange(SECOND // 2, pause - SECOND), 1).write(folder)


def one_rank_saves(random: Random, folder: Path) -> Path:
    return paused(random, folder, 0)


def everybody_evaluates(random: Random, folder: Path) -> Path:
    return paused(random, folder, None)


SCENES = (
    dumped_one_after_another,
    finished,
    one_dated_look,
    two_looks,
    dumped_one_after_another,
    first_steps,
    one_rank_saves,
    everybody_evaluates,
)


NUMBERS = [
    pytest.param(
        number,
        marks=() if number < len(SCENES) else pytest.mark.slow,
        id=f"{number}-{SCENES[number % len(SCENES)].__name__}",
    )
    for number in range(COUNT)
]


@pytest.mark.parametrize("number", NUMBERS)
def test_nobody_is_accused(number: int, tmp_path: Path) -> None:
    verdict = verdict_of(SCENES[number % len(SCENES)](Random(number), tmp_path))
    assert verdict.suspects == ()
    assert verdict.outcome in (Outcome.HEALTHY, Outcome.INCONCLUSIVE)
