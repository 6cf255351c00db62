"""A training run with tensor, pipeline and data parallelism on paper: one rank stops issuing, physics decides the rest.

Each rank has a host that issues calls in program order, at most `ahead` more than its device has finished, and a device that
works them off in order. A call finishes when the devices of all who take part have reached it. Nothing here knows who is to
blame.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, field

from tests.recordings.job import Group, Job

Call = tuple[str, Group]
Key = tuple[str, str, int]
"""Group, who takes part, and how many such calls came before."""


@dataclass(frozen=True, slots=True)
class Shape:
    """Ranks in each dimension, microbatches of a step, and steps."""

    tensor: int
    pipeline: int
    data: int
    microbatches: int = 1
    steps: int = 3

    @property
    def world(self) -> int:
        return self.tensor * self.pipeline * self.data

    def place(self, rank: int) -> tuple[int, int, int]:
        """Data, pipeline and tensor coordinate of a rank."""
        return rank // (self.tensor * self.pipeline), rank // self.tensor % self.pipeline, rank % self.tensor


@dataclass(slots=True)
class Run:
    """Programs of all ranks, and how far hosts and devices have come."""

    shape: Shape
    job: Job
    programs: list[list[Call]] = field(default_factory=list)
    issued: list[int] = field(default_factory=list)
    finished: list[int] = field(default_factory=list)
    meets: dict[Key, list[tuple[int, int]]] = field(default_factory=lambda: defaultdict(list))
    keys: dict[tuple[int, int], Key] = field(default_factory=dict)

    def __post_init__(self) -> None:
        groups = [_groups(self.job, self.shape, axis) for axis in range(3)]
        self.programs = [list(self._program(rank, groups)) for rank in range(self.shape.world)]
        self.issued = [0] * self.shape.world
        self.finished = [0] * self.shape.world
        for rank, program in enumerate(self.programs):
            seen: Counter[tuple[str, str]] = Counter()
            for number, (kind, group) in enumerate(program):
                pair = _pair(kind)
                seen[group.name, pair] += 1
                key = (group.name, pair, seen[group.name, pair])
                self.keys[rank, number] = key
                self.meets[key].append((rank, number))

    def _program(self, rank: int, groups: list[list[Group]]) -> Iterator[Call]:
        data, pipe, tensor = (next(group for group in axis if rank in group.members) for axis in groups)
        stage, last = self.shape.place(rank)[1], self.shape.pipeline - 1
        for _ in range(self.shape.steps):
            for _ in range(self.shape.microbatches):
                if stage > 0:
                    yield f"recv {stage}<-{stage - 1}", pipe
                yield "all_reduce", tensor
                yield "all_gather", tensor
                if stage < last:
                    yield f"send {stage}->{stage + 1}", pipe
            for _ in range(self.shape.microbatches):
                if stage < last:
                    yield f"recv {stage}<-{stage + 1}", pipe
                yield "all_reduce", tensor
                if stage > 0:
                    yield f"send {stage}->{stage - 1}", pipe
            yield "all_reduce", data
            yield "all_reduce", self.job.everyone

    def stop(self, rank: int, before: int, ahead: int) -> None:
        """Let everything run until nothing moves any more; the host of `rank` issues no call from number `before` on."""
        while self._advance(rank, before, ahead):
            pass
        for other, program in enumerate(self.programs):
            for number in range(self.issued[other]):
                kind, group = program[number]
                self.job.call(group, kind, [other], done=number < self.finished[other])

    def waits_in(self, rank: int) -> str | None:
        """The call that the rank is inside of, None when it is inside of none."""
        number = self.finished[rank]
        return self.programs[rank][number][0] if number < self.issued[rank] else None

    def _advance(self, stopped: int, before: int, ahead: int) -> bool:
        position = (*self.issued, *self.finished)
        for rank, program in enumerate(self.programs):
            limit = before if rank == stopped else len(program)
            self.issued[rank] = max(self.issued[rank], min(limit, self.finished[rank] + 1 + ahead))
        for rank in range(self.shape.world):
            while self.finished[rank] < self.issued[rank] and self._met(rank):
                self.finished[rank] += 1
        return position != (*self.issued, *self.finished)

    def _met(self, rank: int) -> bool:
        meeting = self.meets[self.keys[rank, self.finished[rank]]]
        return all(self.issued[peer] > number and self.finished[peer] >= number for peer, number in meeting)


def _groups(job: Job, shape: Shape, axis: int) -> list[Group]:
    """One group for each line of ranks along an axis: 0 data, 1 pipeline, 2 tensor."""
    lines: dict[tuple[int, ...], list[int]] = defaultdict(list)
    for rank in range(shape.world):
        place = shape.place(rank)
        lines[place[:axis] + place[axis + 1 :]].append(rank)
    return [job.group(ranks, ("DATA", "PIPE", "TENSOR")[axis]) for ranks in lines.values()]


def _pair(kind: str) -> str:
    """`0->1` for a send from 0 to 1 and for its receive, empty for a collective."""
    _, _, ends = kind.partition(" ")
    if "<-" in ends:
        receiver, sender = ends.split("<-")
        return f"{sender}->{receiver}"
    return ends
