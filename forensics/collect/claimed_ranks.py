"""Which of several bundles speaks for a rank: the one that saw its process, of the job that most ranks are of."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

_STRENGTH = {"alive": 3, "zombie": 3, "absent": 2}
"""A bundle that saw the process knows more than one that misses it, and that more than one that only knows of the number."""

_SEEN = 2
_MOST_DIGITS = 7


@dataclass(frozen=True, slots=True)
class Job:
    """What tells jobs apart, None where a bundle does not say: the scheduler's number and the size.

    The address of a rendezvous does not: hosts call it by several names.
    """

    number: str | None
    world_size: int | None

    def differs(self, other: Job) -> bool:
        """Whether these are surely two jobs."""
        pairs = ((self.number, other.number), (self.world_size, other.world_size))
        return any(one is not None and two is not None and one != two for one, two in pairs)


@dataclass(slots=True)
class Claims:
    """What the bundles say of ranks, by label; the order in which they come changes nothing."""

    _ranks: dict[str, dict[int, tuple[int, Mapping[str, Any]]]] = field(default_factory=dict)
    _jobs: dict[str, Job] = field(default_factory=dict)
    _owners: dict[int, str] = field(default_factory=dict)
    _main: Job | None = None

    def add(self, label: str, document: Mapping[str, Any]) -> frozenset[int]:
        """Take the ranks of one bundle; the ranks that have another owner now."""
        self._ranks[label] = dict(_ranks(document.get("ranks")))
        self._jobs[label] = _job(document)
        before, main = dict(self._owners), self._main
        self._main = self._most_ranks()
        if main is not None and self._main != main:
            self._owners.clear()
        for each in [label] if self._owners or main is None else sorted(self._ranks):
            self._claim(each)
        return frozenset(rank for rank in before.keys() | self._owners.keys() if before.get(rank) != self._owners.get(rank))

    def owner(self, rank: object) -> str | None:
        """The label of the bundle that speaks for a rank."""
        return self._owners.get(rank) if isinstance(rank, int) else None

    def entries(self) -> dict[int, tuple[str, Mapping[str, Any]]]:
        """The owner of each rank, and what it says of the rank in its manifest."""
        return {rank: (label, self._ranks[label][rank][1]) for rank, label in sorted(self._owners.items())}

    @property
    def job(self) -> Job | None:
        """The job that most ranks are of."""
        return self._main

    def conflicts(self) -> Iterator[str]:
        """What a person should know: bundles of another job, and ranks that two bundles saw."""
        for label in sorted(self._ranks):
            if self._is_other(label):
                job = self._jobs[label]
                what = f"job {job.number or 'without number'} of {job.world_size} ranks"
                yield f"{label}: its ranks left out, they are of another job: {what}"
        seen = Counter(rank for label in self._ranks if not self._is_other(label) for rank in self._seen(label))
        for label in sorted(self._ranks):
            twice = [rank for rank in self._seen(label) if seen[rank] > 1 and self._owners.get(rank) != label]
            if twice and not self._is_other(label):
                first = self._owners[twice[0]]
                yield f"{label}: rank {twice[0]} and {len(twice) - 1} more left out: {first} saw a process of the same number"

    def _seen(self, label: str) -> list[int]:
        return [rank for rank, (strength, _) in sorted(self._ranks[label].items()) if strength > _SEEN]

    def _is_other(self, label: str) -> bool:
        return self._main is not None and bool(self._seen(label)) and self._jobs[label].differs(self._main)

    def _most_ranks(self) -> Job | None:
        """Among equals that of the bundle whose label comes first."""
        votes: Counter[Job] = Counter()
        for label in sorted(self._ranks):
            votes[self._jobs[label]] += len(self._seen(label))
        return max(votes, key=lambda job: votes[job], default=None)

    def _claim(self, label: str) -> None:
        if self._is_other(label):
            return
        for rank, (strength, _) in self._ranks[label].items():
            holder = self._owners.get(rank)
            if holder is None or (-strength, label) < (-self._ranks[holder][rank][0], holder):
                self._owners[rank] = label


def _ranks(value: Any) -> Iterator[tuple[int, tuple[int, Mapping[str, Any]]]]:
    for key, facts in value.items() if isinstance(value, dict) else ():
        if isinstance(facts, dict) and key.isascii() and key.isdecimal() and len(key) <= _MOST_DIGITS:
            yield int(key), (_STRENGTH.get(str(facts.get("state")), 1), facts)


def _job(document: Mapping[str, Any]) -> Job:
    name, size = document.get("job_id"), document.get("world_size")
    number = name if isinstance(name, str) and ":" not in name else None
    return Job(number, size if isinstance(size, int) and size > 0 else None)
