"""A run in which nothing is wrong, with the times at which each host issues a call and each device comes out of it.

Programs are those of tests/recordings/parallel.py. A host issues calls in order, with work in between and at most `ahead` more
than its device has finished; a device works them off in order, and comes out of a call when the last of those who take part has
come into it, and the transfer is done. Any rank can be dumped at any moment.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from random import Random

from tests.recordings.job import MILLISECOND, START_NS, Group, Job
from tests.recordings.job import Call as Recorded
from tests.recordings.parallel import Run


@dataclass(frozen=True, slots=True)
class Tempo:
    """Nanoseconds: work of a host between two calls, its jitter, a pause of everyone each `every` calls, a transfer."""

    work_ns: int = 20 * MILLISECOND
    jitter_ns: int = 5 * MILLISECOND
    transfer_ns: int = 2 * MILLISECOND
    ahead: int = 0
    long_ns: Mapping[tuple[int, int], int] = field(default_factory=dict)
    """Work before single calls, by rank and number: a checkpoint of one rank, an evaluation, the first step's compilation."""


@dataclass(slots=True)
class Sound:
    """When each rank issued each call of its program, and when its device came out of it."""

    run: Run
    tempo: Tempo
    random: Random
    issued: list[list[int]] = field(default_factory=list)
    left: list[list[int]] = field(default_factory=list)

    def __post_init__(self) -> None:
        world = self.run.shape.world
        self.issued, self.left = [[] for _ in range(world)], [[] for _ in range(world)]
        while sum(self._advance(rank) for rank in range(world)):
            pass
        assert all(len(self.left[rank]) == len(self.run.programs[rank]) for rank in range(world)), "the programs deadlock"

    @property
    def span_ns(self) -> tuple[int, int]:
        """From the first call to the last return."""
        return min(times[0] for times in self.issued), max(times[-1] for times in self.left)

    def at(self, moments: Sequence[int]) -> Job:
        """The job as every rank's dump shows it that is made at the rank's own moment."""
        job = replace(self.run.job, calls={rank: list(self._calls(rank, now)) for rank, now in enumerate(moments)})
        return job

    def _advance(self, rank: int) -> bool:
        """Let the host issue what it may, and the device leave what it can; whether anything happened."""
        issued, left, program = self.issued[rank], self.left[rank], self.run.programs[rank]
        before = len(issued), len(left)
        while len(issued) < len(program) and len(issued) <= len(left) + self.tempo.ahead:
            issued.append(self._issue(rank, len(issued)))
        while len(left) < len(issued) and (leaves := self._leaves(rank, len(left))) is not None:
            left.append(leaves)
        return before != (len(issued), len(left))

    def _issue(self, rank: int, number: int) -> int:
        work = self.tempo.long_ns.get((rank, number), self.tempo.work_ns) + self.random.randrange(self.tempo.jitter_ns + 1)
        last = self.issued[rank][-1] if number else START_NS
        free = self.left[rank][number - 1 - self.tempo.ahead] if number > self.tempo.ahead else START_NS
        return max(last + work, free + (work if self.tempo.ahead == 0 else 0))

    def _leaves(self, rank: int, number: int) -> int | None:
        """When the device comes out of a call; None while somebody who takes part has not come in yet."""
        comes = [self._comes(peer, other) for peer, other in self.run.meets[self.run.keys[rank, number]]]
        known = [moment for moment in comes if moment is not None]
        return max(known) + self.tempo.transfer_ns if len(known) == len(comes) else None

    def _comes(self, rank: int, number: int) -> int | None:
        if len(self.issued[rank]) <= number or len(self.left[rank]) < number:
            return None
        return max(self.issued[rank][number], self.left[rank][number - 1] if number else 0)

    def _calls(self, rank: int, now: int) -> Iterator[Recorded]:
        counts: Counter[tuple[Group, bool]] = Counter()
        record = 0
        for number, (kind, group) in enumerate(self.run.programs[rank]):
            if self.issued[rank][number] > now:
                return
            is_p2p = kind.startswith(("send", "recv"))
            counts[group, is_p2p] += 1
            done = self.left[rank][number]
            call = Recorded(
                group=group,
                kind=kind,
                sequence=counts[group, is_p2p],
                operation=counts[group, True] + counts[group, False],
                record=record,
                time_ns=self.issued[rank][number],
                done_ns=done if done <= now else None,
            )
            record += call.is_recorded
            yield call
