"""Shuffled files, neutral names, a victim's lost dump and wrong clocks never change who is named, of any kind of fault."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import cache
from random import Random
from typing import Any

import pytest

from forensics.model import Verdict
from tests.property.test_verdict_survives import NAMES, TEN_SECONDS, answer, diagnosed, weaker_or_same
from tests.recordings.hang import hung
from tests.recordings.job import Job, as_json, as_pickle
from tests.recordings.paper_scenarios import device_stalled
from tests.recordings.parallel import Run, Shape

ODD = 2


def in_one_group(backend: str, kind: str = "all_reduce", shapes: tuple[tuple[int, ...], ...] = ((4096,),)) -> Job:
    """The odd rank makes another call than its three peers, under the same number."""
    job = Job(4, backend)
    job.steps(12)
    job.hang({ODD})
    job.call(job.everyone, kind, [ODD], done=False, shapes=shapes)
    return job


def two_orders() -> Job:
    """Two groups of the same ranks; after twelve steps in one order the odd rank begins with the other group."""
    job = Job(4, "nccl")
    other = job.group(range(4), "EXPERT")
    for _ in range(12):
        job.call(job.everyone)
        job.call(other)
    job.call(job.everyone, ranks=[rank for rank in range(4) if rank != ODD], done=False)
    job.call(other, ranks=[ODD], done=False)
    return job


def in_a_grid(culprit: int, before: int) -> Job:
    run = Run(Shape(2, 2, 2, microbatches=2), Job(8, "nccl"))
    run.stop(culprit, before, 3)
    return run.job


KINDS: Mapping[str, tuple[Callable[[], Job], set[int]]] = {
    "absent": (hung, {ODD}),
    "absent, devices": (lambda: hung(backend="nccl"), {ODD}),
    "another call": (lambda: in_one_group("gloo", "all_gather"), {ODD}),
    "another call, devices": (lambda: in_one_group("nccl", "reduce_scatter_tensor"), {ODD}),
    "another size": (lambda: in_one_group("nccl", shapes=((4000,),)), {ODD}),
    "another order": (two_orders, {ODD}),
    "device stalled": (device_stalled, {5}),
    "stopped in a grid": (lambda: in_a_grid(5, 12), {5}),
    "stopped in a pipeline": (lambda: in_a_grid(2, 17), {2}),
}


USUAL = ("another call, devices", "another order", "stopped in a pipeline")
VARIED = [kind if kind in USUAL else pytest.param(kind, marks=pytest.mark.slow) for kind in KINDS]


@cache
def job_of(kind: str) -> Job:
    return KINDS[kind][0]()


@cache
def usual(kind: str) -> Verdict:
    found = diagnosed(files(dumps(kind)))
    assert found is not None
    return found


def dumps(kind: str, skews: Mapping[int, int] | None = None) -> dict[int, dict[str, Any]]:
    job = job_of(kind)
    return {rank: job.dump(rank, skew_ns=(skews or {}).get(rank, 0)) for rank in range(job.world)}


def files(found: Mapping[int, dict[str, Any]], name: str = NAMES[0]) -> dict[str, bytes]:
    encode = as_json if name.endswith("json") else as_pickle
    return {name.format(rank, rank): encode(dump) for rank, dump in found.items()}


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.first(3)
def test_the_root_is_named(kind: str) -> None:
    first, *others = usual(kind).suspects
    assert set(first.ranks) == KINDS[kind][1]
    assert all(other.fault == first.fault for other in others)


@pytest.mark.slow
@pytest.mark.parametrize("kind", VARIED)
def test_order_and_names_do_not_matter(kind: str) -> None:
    random = Random(kind)
    neutral = files(dumps(kind), random.choice(NAMES))
    found = diagnosed(neutral, random.sample(sorted(neutral), len(neutral)))
    assert found is not None
    assert answer(found) == answer(usual(kind))


@pytest.mark.parametrize("kind", VARIED)
def test_clocks_do_not_matter(kind: str) -> None:
    random = Random(kind)
    skews = {rank: random.randint(-TEN_SECONDS, TEN_SECONDS) for rank in range(job_of(kind).world)}
    found = diagnosed(files(dumps(kind, skews)))
    assert found is not None
    assert answer(found) == answer(usual(kind))


@pytest.mark.parametrize("kind", VARIED)
def test_a_victims_dump_does_not_matter(kind: str) -> None:
    """The others may no longer suffice to name anybody; they never name somebody else."""
    kept = dumps(kind)
    del kept[Random(kind).choice(sorted(set(kept) - KINDS[kind][1]))]
    found = diagnosed(files(kept))
    weaker_or_same(found, usual(kind))
