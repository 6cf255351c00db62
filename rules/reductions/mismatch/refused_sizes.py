"""Who brought another size, where nothing but a log tells: a member of gloo that receives more than it expects aborts.

It is the one whose own tensor was too short, or its sender is the one whose tensor was too long.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass, replace

from forensics.model import Confidence, Evidence, Finding, Members
from forensics.rules.reductions.calls.semantics import stem_of
from forensics.rules.reductions.interface import reduction
from forensics.rules.reductions.logs.events import LogEvent, LogEvents
from forensics.rules.reductions.ranks.roster import Roster
from forensics.rules.reductions.stacks.activity import Activity, activity
from forensics.rules.reductions.stacks.call_paths import frame

_FRAME = re.compile(r'File "(?P<file>[^"]+)", line (?P<line>\d{1,9}), in (?P<name>.+)')
_RING = "all_reduce"
"""In its ring each member receives from the next one (gloo/allreduce.cc)."""


@reduction
@dataclass(frozen=True, slots=True)
class RefusedSizes:
    """Findings on ranks that refused what came for its size."""

    logs: LogEvents
    roster: Roster

    def weighed(self, found: Finding) -> Finding:
        """The finding on a rank that aborted, with its sender where that is known; else a suspicion of the rank."""
        (rank,) = found.ranks
        doubt = Evidence("a rank whose tensor is too long makes its receiver abort in its place", None, supports=False)
        sender = self._sender(rank)
        if sender is None:
            return replace(found, confidence=Confidence.SUSPECT, evidence=(*found.evidence, doubt))
        ranks = tuple(sorted((rank, sender)))
        return replace(found, ranks=ranks, members=Members.ONE_OF, evidence=(*found.evidence, doubt))

    def _sender(self, rank: int) -> int | None:
        """Who sends to the rank in the call in which the others lost it, where all members are known."""
        size = self.roster.world_size or len(self.roster.ranks)
        known = {*self.roster.ranks} == {*range(size)}
        calls = {self._call(events) for other, events in self.logs.by_rank.items() if other != rank} - {""}
        return (rank + 1) % size if known and size > 1 and calls == {_RING} else None

    def _call(self, events: Iterable[LogEvent]) -> str:
        place = raised_at(events)
        return stem_of(place.call_frame.function) if place is not None and place.call_frame is not None else ""


def raised_at(events: Iterable[LogEvent]) -> Activity | None:
    """Place of the last exception in the events of a rank; None when no traceback came with it."""
    text = next((event.text for event in reversed(tuple(events)) if event.kind == "traceback"), "")
    frames = [match for line in text.splitlines() if (match := _FRAME.match(line))]
    path = tuple(frame(match["name"], match["file"], int(match["line"])) for match in reversed(frames))
    return activity(path) if path else None
