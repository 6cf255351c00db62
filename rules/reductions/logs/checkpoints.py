"""Checkpoints that torch could not write or read, as all ranks say: an exception that names those in which it was raised.

Upstream: `CheckpointException` of torch/distributed/checkpoint/api.py, raised by `_DistWrapper` of utils.py on every member of
the group, with the number of each that failed: the rank of the job where the group holds all ranks, as it does by default.
It is no `Exception`, so that few programs catch it.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from math import gcd

from forensics.rules.reductions.logs.raised import Failure, Standstill

_NAMED = re.compile(r"CheckpointException ranks:dict_keys\(\[(?P<ranks>\d{1,7}(?:, \d{1,7}){0,4000})\]\)")
# Rank 0 alone plans for all, reads what describes the checkpoint and completes it: what fails there may be a fault of all.
_COORDINATOR = frozenset({0})


@dataclass(slots=True)
class Checkpoints:
    """Collects them: who is named, who says so, and by which line first."""

    stalls: Standstill
    _named: set[frozenset[int]] = field(default_factory=set)
    _speakers: set[int] = field(default_factory=set)
    _quoting: set[tuple[int, int | None]] = field(default_factory=set)
    _first: tuple[str, str] | None = None
    _has_gone_on: bool = False

    def feed(self, rank: int | None, text: str, source_id: int, line: int, source: str) -> bool:
        """Take an exception; whether it is one of these, or one that is quoted below it."""
        said = _NAMED.search(text)
        if said is None:
            return (source_id, rank) in self._quoting
        self._named.add(frozenset(map(int, said["ranks"].split(", "))))
        self._quoting.add((source_id, rank))
        self._speakers |= {rank} if rank is not None else set()
        self._first = self._first or (text, source)
        went_on = rank is not None and self.stalls.goes_on(source_id, rank, line)
        trained = (self.stalls.steps.get(source_id) or line) > line
        self._has_gone_on = self._has_gone_on or went_on or trained or self.stalls.had_begun(source_id, line)
        return True

    @property
    def speakers(self) -> frozenset[int]:
        """Ranks that raised it, whoever failed."""
        return frozenset(self._speakers)

    def failed(self, world_size: int | None) -> dict[int, Failure]:
        """The ranks that failed, a minority of all; none where it is not known that their numbers are those of the job."""
        if len(self._named) != 1 or self._first is None or self._has_gone_on:
            return {}
        (ranks,) = self._named
        size = max(world_size or 0, 1 + max(ranks | self._speakers))
        if ranks == _COORDINATOR or 2 * len(ranks) >= size or not self._is_of_all(ranks):
            return {}
        text, source = self._first
        return {rank: Failure(rank, text, source) for rank in sorted(ranks)}

    def _is_of_all(self, ranks: frozenset[int]) -> bool:
        """Whether those who say so are no smaller group, whose members count anew: every eighth rank, or those of a node."""
        others = self._speakers - {0}
        return bool(self._speakers & ranks) or not others or (0 in self._speakers and gcd(*others) == 1)
