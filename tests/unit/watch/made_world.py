"""A world with a clock of its own, for the loop that watches it: what ranks have completed is a function of time."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from forensics.watch.loop import Event, Job, Settings, watch
from forensics.watch.rhythm import NOTHING, Limits, Reading
from forensics.watch.trigger import Alarm

Look = Callable[[float], Reading | int | None]
"""What a reading of a rank gives at a time: a reading, a number of completed operations, or nothing."""
LIMITS = Limits(stuck_s=60.0, window_s=60.0, first_s=900.0)


@dataclass
class MadeWorld:
    """Ranks that live and complete operations as stated; a collection takes 20 s, and the user asks to end at `until_s`."""

    ranks: Mapping[int, Look]
    until_s: float = 10_000.0
    ends: Mapping[int, float] = field(default_factory=dict)
    starts_s: float = 0.0
    clock_s: float = 0.0
    collected: list[tuple[float, Alarm]] = field(default_factory=list)

    def sleep(self, seconds: float) -> str | None:
        self.clock_s += seconds
        return "interrupted" if self.clock_s >= self.until_s else None

    def now_s(self) -> float:
        return self.clock_s

    def find(self) -> Job | None:
        if self.clock_s < self.starts_s:
            return None
        living = {rank: (100 + rank, 7) for rank in self.ranks if self._lives(rank)}
        return Job(living, "made") if living else None

    def why_none(self) -> str:
        return "searched in vain"

    def living(self, job: Job) -> frozenset[int]:
        return frozenset(rank for rank in job.processes if self._lives(rank))

    def read(self, ranks: tuple[int, ...]) -> list[Reading]:
        return [self._reading(rank, self.ranks[rank](self.clock_s)) for rank in ranks]

    def collect(self, job: Job, found: Alarm) -> tuple[Event, bool]:
        self.collected.append((self.clock_s, found))
        self.clock_s += 20.0
        return {"event": "bundle", "path": f"{len(self.collected)}.tar"}, self.clock_s >= self.until_s

    def run(self, settings: Settings | None = None) -> list[Event]:
        """All events of a watch in this world."""
        return list(watch(self, settings or Settings(limits=LIMITS)))

    def alarms(self, settings: Settings | None = None) -> list[tuple[str, float]]:
        """Kind and time of what was collected for."""
        self.run(settings)
        return [(found.kind, at_s) for at_s, found in self.collected]

    def _lives(self, rank: int) -> bool:
        return self.clock_s < self.ends.get(rank, self.until_s + 1)

    def _reading(self, rank: int, found: Reading | int | None) -> Reading:
        if isinstance(found, Reading):
            return found
        return Reading(rank, self.clock_s, NOTHING if found is None else "flight recorder", found)


def steady(per_s: float, until_s: float = float("inf")) -> Look:
    """Completes operations at a rate, up to a time."""
    return lambda at_s: int(per_s * min(at_s, until_s)) + 1


def changing(per_s: float, from_s: float, then_per_s: float) -> Look:
    """Completes operations at a rate, and from a time on at another."""
    return lambda at_s: int(per_s * min(at_s, from_s) + then_per_s * max(0.0, at_s - from_s))


def stack_of(rank: int, until_s: float) -> Look:
    """Another stack at each reading, up to a time."""
    return lambda at_s: Reading(rank, at_s, "stack", stack=f"main:{min(at_s, until_s):.0f}")
