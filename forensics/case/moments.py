"""When captures were taken, and which of them are proven to be of different moments (docs/decisions/0014-moments.md).

Files of one process are of several moments only where something proves different times: a time inside, the manifest's numbers
and times, or dates that cannot belong to one moment. Whatever is not proven to be apart corroborates one moment.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeVar

from forensics.bundle.artefact import Artefact

# Two forms of one capture are made one after the other; captures that are meant to be compared lie seconds apart.
APART_NS = 1_000_000_000
# Copies, and the forms of one capture, are written in one go; between two rounds over a job somebody waits longer.
BREAK_NS = 20_000_000_000

Key = TypeVar("Key")


@dataclass(frozen=True, slots=True)
class Taken:
    """What shows when a capture was taken: a time, a number that was given with a proof, the round that its date belongs to.

    `is_named` says that the number is the order of times in the names of files.
    """

    time_ns: int | None = None
    number: int | None = None
    round: int | None = None
    is_named: bool = False

    @property
    def is_proven(self) -> bool:
        """Whether more than a file's date tells."""
        return self.time_ns is not None or self.number is not None

    def is_apart(self, other: Taken) -> bool:
        """Whether the two were certainly taken at different times."""
        if self.number is not None and other.number is not None and self.number != other.number:
            return True
        if self.time_ns is not None and other.time_ns is not None:
            return abs(self.time_ns - other.time_ns) >= APART_NS
        return False

    def in_other_round(self, other: Taken) -> bool:
        """Whether the dates of their files have a break between them; it proves nothing of contents that agree."""
        if self.is_proven or other.is_proven or self.round is None or other.round is None:
            return False
        return self.round != other.round


def taken(artefact: Artefact, rounds: Mapping[int, int], time_ns: int | None = None) -> Taken:
    """What tells of an artefact; `time_ns` is a time in its content, `rounds` gives the round of each date."""
    number = artefact.sample if artefact.numbered else None
    known = artefact.captured_ns if time_ns is None else time_ns
    return Taken(known, number, None if artefact.modified_ns is None else rounds.get(artefact.modified_ns))


def rounds(dates: Iterable[int | None]) -> dict[int, int]:
    """The round of each date: a new one begins after a break. Files that were copied together are of one round."""
    found: dict[int, int] = {}
    last = None
    number = 0
    for date in sorted({date for date in dates if date is not None}):
        number += last is not None and date - last >= BREAK_NS
        found[date] = number
        last = date
    return found


def grouped(captures: Sequence[Key], is_apart: Callable[[Key, Key], bool]) -> list[list[Key]]:
    """Captures by moment, in the given order: each joins the first moment from which nothing keeps it apart."""
    moments: list[list[Key]] = []
    for capture in captures:
        home = next((moment for moment in moments if not any(is_apart(capture, member) for member in moment)), None)
        if home is None:
            moments.append([capture])
        else:
            home.append(capture)
    return moments
