"""Read, compare, collect: the loop of `forensics watch`, with its clock, readings and collections given from outside."""

from __future__ import annotations

from collections.abc import Generator, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol

from forensics.rank_ranges import format_ranks
from forensics.watch.rhythm import Limits, Reading, Rhythm, begun, seen
from forensics.watch.trigger import Alarm, after, alarm, gone, sample

Event = dict[str, Any]
"""One line of what was seen: `event` says what kind, the other keys depend on it (docs/watch.md)."""


@dataclass(frozen=True, slots=True)
class Job:
    """The ranks of a job on this host: the process of each (its id and start), and the job's name where it has one."""

    processes: Mapping[int, tuple[int, int]]
    name: str | None = None


class Surroundings(Protocol):
    """What the loop needs of the world."""

    def sleep(self, seconds: float) -> str | None:
        """Wait; why to end, where something asks for it."""

    def now_s(self) -> float:
        """Monotonic time."""

    def find(self) -> Job | None:
        """The job on this host; None when there is no rank."""

    def why_none(self) -> str:
        """What was searched in vain, where the last reading found no job."""

    def living(self, job: Job) -> frozenset[int]:
        """Ranks of the job whose process is still there and no zombie."""

    def read(self, ranks: tuple[int, ...]) -> list[Reading]:
        """One reading of each of these ranks of the job found last."""

    def collect(self, job: Job, found: Alarm) -> tuple[Event, bool]:
        """Make a bundle: what to say of it, and whether the user asked to end meanwhile."""


@dataclass(frozen=True, slots=True)
class Settings:
    """Seconds between readings, bundles at most, whether to go on after the job, how long to wait for one (None: for ever)."""

    interval_s: float = 10.0
    most: int = 3
    stays: bool = False
    wait_s: float | None = None
    limits: Limits = field(default_factory=Limits)


@dataclass(slots=True)
class _State:
    """What the loop remembers of one job, and how many bundles it has made."""

    job: Job
    rhythms: dict[int, Rhythm] = field(default_factory=dict)
    lost: tuple[int, ...] = ()
    reported_lost: frozenset[int] = frozenset()


def watch(world: Surroundings, settings: Settings) -> Iterator[Event]:
    """Events, until the job has ended, the user asks to end, or no job came."""
    made = 0
    while True:
        job = yield from _wait_for_job(world, settings)
        if job is None:
            return
        end, made = yield from _watch_job(world, settings, job, made)
        yield {"event": "end", "reason": end}
        if end != "job ended" or not settings.stays:
            return


def _wait_for_job(world: Surroundings, settings: Settings) -> Generator[Event, None, Job | None]:
    """The job, once two readings in a row see the same processes: ranks do not start all at once."""
    began, before = world.now_s(), world.find()
    yield {"event": "waiting", "reason": world.why_none() if before is None else "its ranks may still start"}
    while True:
        if settings.wait_s is not None and before is None and world.now_s() - began >= settings.wait_s:
            yield {"event": "end", "reason": "no job"}
            return None
        if (over := world.sleep(settings.interval_s)) is not None:
            yield {"event": "end", "reason": over}
            return None
        job = world.find()
        if job is not None and job == before:
            yield {"event": "job", "job": job.name, "ranks": format_ranks(job.processes)}
            return job
        before = job


def _watch_job(world: Surroundings, settings: Settings, job: Job, made: int) -> Generator[Event, None, tuple[str, int]]:
    """Why it is over, and how many bundles there are now."""
    state = _State(job)
    while True:
        living = world.living(job)
        if not living:
            return "job ended", made
        readings = world.read(sample(living))
        yield _reading_event(readings, len(living))
        found = _take_in(state, readings, living, settings.limits)
        if found is not None:
            yield {"event": "alarm", "kind": found.kind, "ranks": format_ranks(found.ranks), "reason": found.reason}
            is_over, made = yield from _collect(world, settings, job, found, made)
            if is_over:
                return "interrupted", made
        if (over := world.sleep(settings.interval_s)) is not None:
            return over, made


def _reading_event(readings: list[Reading], living: int) -> Event:
    rows = [{"rank": one.rank, "source": one.source, "completed": one.completed} for one in readings]
    return {"event": "reading", "living": living, "sampled": rows}


def _take_in(state: _State, readings: list[Reading], living: frozenset[int], limits: Limits) -> Alarm | None:
    """Bring the rhythms up to date; the alarm that comes of it."""
    before = state.rhythms
    state.rhythms = {one.rank: seen(before[one.rank], one, limits) if one.rank in before else begun(one) for one in readings}
    lost = tuple(sorted(set(state.job.processes) - living - state.reported_lost))
    found = gone(state.lost, lost)
    state.lost = lost
    if found is not None:
        state.reported_lost |= set(found.ranks)
        return found
    found = alarm(state.rhythms, limits)
    if found is not None:
        state.rhythms = after(state.rhythms, found)
    return found


def _collect(
    world: Surroundings, settings: Settings, job: Job, found: Alarm, made: int
) -> Generator[Event, None, tuple[bool, int]]:
    """Make the bundle unless there are enough; whether the user asked to end meanwhile, and how many there are."""
    if made >= settings.most:
        yield {"event": "no_bundle", "reason": f"{made} bundles were made, --most {settings.most}"}
        return False, made
    stated, is_over = world.collect(job, found)
    yield stated
    return is_over, made + 1
