"""Whoever stops first in a tensor, pipeline and data parallel run is named, and nobody who only waits.

The runs are worked out by tests/recordings/parallel.py, which lets hosts enqueue ahead of their devices; the culprit is known
to the test alone. The dumps are those of accelerators, where sends and receives are recorded.
"""

from __future__ import annotations

import tempfile
from dataclasses import dataclass
from pathlib import Path

from hypothesis import assume, example, given, settings
from hypothesis import strategies as st

from tests.property.examples import EXAMPLES
from tests.recordings.collection import loose, whole
from tests.recordings.job import Job
from tests.recordings.parallel import Run, Shape
from tests.recordings.places import HOST_CODE, RECV, SEND, Place, collective
from tests.recordings.verdicts import named, verdict_of, victims

FEW = settings(max_examples=EXAMPLES, deadline=None, derandomize=True)


@dataclass(frozen=True, slots=True)
class Stop:
    """Where one rank of a run stops issuing, and how far hosts run ahead of devices."""

    shape: Shape
    culprit: int
    before: int
    ahead: int

    def run(self, backend: str = "nccl") -> Run:
        run = Run(self.shape, Job(self.shape.world, backend))
        run.stop(self.culprit, self.before, self.ahead if backend == "nccl" else 0)
        assume(any(run.waits_in(rank) for rank in range(self.shape.world)))
        return run

    def job(self) -> Job:
        return self.run().job


@st.composite
def stops(draw: st.DrawFn) -> Stop:
    tensor, pipeline, data = (draw(st.integers(1, largest)) for largest in (2, 3, 3))
    shape = Shape(tensor, pipeline, data, microbatches=draw(st.integers(1, 2)))
    assume(shape.world > 2)
    culprit = draw(st.integers(0, shape.world - 1))
    length = len(Run(shape, Job(shape.world, "nccl")).programs[culprit])
    return Stop(shape, culprit, draw(st.integers(length // 2, length - 1)), draw(st.sampled_from((0, 3, 10, 1000))))


@FEW
@example(stop=Stop(Shape(1, 2, 2, 1), culprit=0, before=13, ahead=0), only_active=False)
@given(stop=stops(), only_active=st.booleans())
def test_the_rank_that_stopped_is_named_and_the_others_are_not(stop: Stop, only_active: bool) -> None:
    """In dumps of all entries, and in those that the worker server gives of active ones."""
    form, name = ("json", "rank{rank}.json") if only_active else ("pickle", "nccl_trace_rank_{rank}")
    with tempfile.TemporaryDirectory() as folder:
        verdict = verdict_of(loose(stop.job(), Path(folder), form=form, name=name, only_active=only_active))
    assert named(verdict) == {stop.culprit}
    assert only_active or stop.culprit not in victims(verdict)


@FEW
@given(stop=stops(), ring=st.integers(4, 40))
def test_a_short_memory_names_nobody_else(stop: Stop, ring: int) -> None:
    """A ring that wrapped may forget who is behind, it must not put somebody else in its place."""
    with tempfile.TemporaryDirectory() as folder:
        verdict = verdict_of(loose(stop.job(), Path(folder), ring=ring))
    assert named(verdict) <= {stop.culprit}


@FEW
@given(stop=stops(), data=st.data())
def test_without_the_dump_of_a_rank_that_waits_the_first_suspect_is_the_same(stop: Stop, data: st.DataObject) -> None:
    lost = data.draw(st.sampled_from([rank for rank in range(stop.shape.world) if rank != stop.culprit]))
    with tempfile.TemporaryDirectory() as folder:
        kept = [rank for rank in range(stop.shape.world) if rank != lost]
        verdict = verdict_of(loose(stop.job(), Path(folder), ranks=kept))
    assert not verdict.suspects or verdict.suspects[0].ranks == (stop.culprit,)


def place(run: Run, rank: int) -> Place:
    """Where py-spy finds a rank of a run whose calls block."""
    kind = run.waits_in(rank)
    if kind is None:
        return HOST_CODE
    return RECV if kind.startswith("recv") else SEND if kind.startswith("send") else collective(kind)


@FEW
@given(stop=stops())
def test_stacks_show_the_receives_that_gloo_does_not_record(stop: Stop) -> None:
    run = stop.run("gloo")
    places = {rank: place(run, rank) for rank in range(stop.shape.world)}
    with tempfile.TemporaryDirectory() as folder:
        verdict = verdict_of(whole(run.job, places).write(Path(folder)))
    assert named(verdict) == {stop.culprit}
