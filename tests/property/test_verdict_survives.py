"""A verdict does not depend on names, order, copies, clocks or completeness of files: it may become weaker, never another.

Each example is a job on paper whose culprit is known to the test alone.
"""

from __future__ import annotations

import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from forensics.errors import ForensicsError
from forensics.model import Confidence, Verdict
from tests.property.examples import EXAMPLES
from tests.recordings.collection import write
from tests.recordings.job import SECOND, Job, as_json, as_pickle
from tests.recordings.verdicts import named, verdict_of

FEW = settings(max_examples=EXAMPLES, deadline=None, derandomize=True, suppress_health_check=[HealthCheck.too_slow])
NAMES = (
    "nccl_trace_rank_{}",
    "rank{}.json",
    "dumps/dump_{}",
    "rank_{}/fr.pickle",
    "node-{}/comm_lib_trace_rank_{}",
    "job7-rank{}.0",
)
TEN_SECONDS = 10 * SECOND


@dataclass(frozen=True, slots=True)
class Hang:
    """A job in which one rank does not come: `world` ranks in one group, or in a grid of two rows."""

    world: int
    culprit: int
    backend: str
    in_grid: bool

    @property
    def victims(self) -> list[int]:
        return [rank for rank in range(self.world) if rank != self.culprit]

    def job(self) -> Job:
        return self._grid() if self.in_grid else self._one_group()

    def dumps(self, form: str) -> dict[int, bytes]:
        job, encode = self.job(), as_json if form == "json" else as_pickle
        return {rank: encode(job.dump(rank)) for rank in range(self.world)}

    def _one_group(self) -> Job:
        job = Job(self.world, self.backend)
        job.steps(8)
        job.hang({self.culprit})
        return job

    def _grid(self) -> Job:
        """Tensor parallel rows and data parallel columns; the hosts of the others enqueue one step ahead."""
        job, width = Job(self.world, self.backend), self.world // 2
        rows = [job.group(range(first, first + width), "TENSOR") for first in (0, width)]
        columns = [job.group((rank, rank + width), "DATA") for rank in range(width)]
        for _ in range(5):
            for group in (*rows, *columns):
                job.call(group)
        for group in (*rows, *columns):
            others = [rank for rank in group.members if rank != self.culprit]
            job.call(group, ranks=others, done=group in rows and self.culprit not in group.members)
        return job


@st.composite
def hangs(draw: st.DrawFn) -> Hang:
    in_grid = draw(st.booleans())
    world = 2 * draw(st.integers(2, 3)) if in_grid else draw(st.integers(3, 6))
    backend = "nccl" if in_grid else draw(st.sampled_from(("gloo", "nccl")))
    return Hang(world, draw(st.integers(0, world - 1)), backend, in_grid)


forms = st.sampled_from(("pickle", "json"))


def diagnosed(files: dict[str, bytes], order: Sequence[str] | None = None) -> Verdict | None:
    """The verdict on files in a new folder, given as the folder or one by one; None when nothing could be read."""
    with tempfile.TemporaryDirectory() as name:
        folder = write(Path(name), files)
        try:
            return verdict_of(*(folder / path for path in order) if order else (folder,))
        except ForensicsError:
            return None


@cache
def plainly(hang: Hang, form: str) -> Verdict:
    found = diagnosed({NAMES[0].format(rank): content for rank, content in hang.dumps(form).items()})
    assert found is not None
    assert named(found) == {hang.culprit}
    return found


def no_stronger(one: Confidence, than: Confidence) -> bool:
    order = tuple(Confidence)
    return order.index(one) >= order.index(than)


def answer(verdict: Verdict) -> list[tuple[object, ...]]:
    return [(s.ranks, s.cause, s.confidence, s.rules) for s in verdict.suspects]


@settings(FEW, max_examples=2 * EXAMPLES)
@given(hang=hangs(), form=forms, names=st.sampled_from(NAMES), data=st.data())
def test_names_order_clocks_copies_and_other_forms_do_not_matter(
    hang: Hang, form: str, names: str, data: st.DataObject
) -> None:
    """A rank that answered twice with the same state did not stand still between two captures."""
    encode, other = (as_json, as_pickle) if form == "json" else (as_pickle, as_json)
    some = st.sets(st.integers(0, hang.world - 1))
    copied, twice = data.draw(some), data.draw(some)
    skews = data.draw(st.lists(st.integers(-TEN_SECONDS, TEN_SECONDS), min_size=hang.world, max_size=hang.world))
    dumps = [hang.job().dump(rank, skew_ns=skew) for rank, skew in enumerate(skews)]
    files = {names.format(rank, rank): encode(dump) for rank, dump in enumerate(dumps)}
    files |= {f"copy/{NAMES[0].format(rank)}": encode(dumps[rank]) for rank in copied}
    files |= {f"again/rank{rank}.dump": other(dumps[rank]) for rank in twice}
    found = diagnosed(files, data.draw(st.permutations(sorted(files))))
    assert found is not None
    assert answer(found) == answer(plainly(hang, form))


@FEW
@given(hang=hangs(), form=forms, data=st.data())
def test_a_victims_dump_that_is_cut_anywhere_or_missing_names_nobody_else(hang: Hang, form: str, data: st.DataObject) -> None:
    dumps = hang.dumps(form)
    whole = dumps.pop(victim := data.draw(st.sampled_from(hang.victims)))
    kept = data.draw(st.none() | st.integers(0, len(whole) - 1))
    files = {NAMES[0].format(rank): content for rank, content in dumps.items()}
    if kept is not None:
        files[NAMES[0].format(victim)] = whole[:kept]
    weaker_or_same(diagnosed(files), plainly(hang, form))


@FEW
@given(hang=hangs(), form=forms, data=st.data())
def test_a_flipped_byte_in_a_victims_dump_names_nobody_else_for_sure(hang: Hang, form: str, data: st.DataObject) -> None:
    """A damaged number can make any story; none of them is stated as certain."""
    dumps = hang.dumps(form)
    victim = data.draw(st.sampled_from(hang.victims))
    content = bytearray(dumps[victim])
    content[data.draw(st.integers(0, len(content) - 1))] ^= 1 << data.draw(st.integers(0, 7))
    dumps[victim] = bytes(content)
    found = diagnosed({NAMES[0].format(rank): content for rank, content in dumps.items()})
    assert found is None or not [s for s in found.suspects if s.confidence is Confidence.CONFIRMED]


@FEW
@given(hang=hangs(), form=forms)
def test_the_culprits_missing_dump_names_nobody_else(hang: Hang, form: str) -> None:
    dumps = hang.dumps(form)
    del dumps[hang.culprit]
    found = diagnosed({NAMES[0].format(rank): content for rank, content in dumps.items()})
    assert found is not None
    assert all(hang.culprit in suspect.ranks or suspect.members == "one_of" for suspect in found.suspects)
    assert all(suspect.confidence is not Confidence.CONFIRMED for suspect in found.suspects)


def weaker_or_same(found: Verdict | None, whole: Verdict) -> None:
    """The same first suspect with no more confidence, or nobody."""
    if found is None or not found.suspects:
        return
    first, before = found.suspects[0], whole.suspects[0]
    assert first.ranks == before.ranks
    assert first.cause == before.cause
    assert no_stronger(first.confidence, before.confidence)
