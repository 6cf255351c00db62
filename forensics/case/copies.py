"""Artefacts of equal bytes: a second copy is no second witness, and one file cannot be of two ranks."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace

from forensics.bundle.artefact import Artefact
from forensics.case.launcher_folders import process_of
from forensics.case.named_times import clock
from forensics.case.reading import Reading
from forensics.ingest._shared.stack_headings import place_in
from forensics.ingest.interface import Problem

RANKED = frozenset({"flight_recorder", "python_stacks"})
"""Kinds of sources of one rank each."""
# How desktops call the copy of a file: it sorts in front of the file itself, whose folder tells its rank by its name.
_COPY = re.compile(r"(?i)[ _-]\(?copy(?: \d{1,3})?\)?(?:\.|$)| \(\d{1,3}\)(?:\.|$)|(?:^|/)copy of ")


class Copies:
    """Finds artefacts of equal bytes: a second copy is no second witness, and one file cannot be of two ranks."""

    def __init__(self, artefacts: Sequence[Artefact]) -> None:
        self._originals = {a.sha256: a.path for a in reversed(artefacts) if a.has_stated_rank}
        self._plain = {(a.sha256, _folder(a)): a.path for a in reversed(artefacts) if not _COPY.search(a.path)}
        self._paths: dict[tuple[object, ...], str] = {}
        self._ranks: dict[str, tuple[int, str]] = {}

    def checked(self, artefact: Artefact, reading: Reading) -> Reading:
        """The reading, without rows when it is a copy, with a warning when the same bytes came for another rank."""
        if artefact.sha256 is None or reading.parser is None or not reading.batches:
            return reading
        original = None if artefact.has_stated_rank else self._originals.get(artefact.sha256)
        if original is None and _COPY.search(artefact.path):
            original = self._plain.get((artefact.sha256, _folder(artefact)))
        number = artefact.sample if artefact.numbered else None
        host = None if reading.kind in RANKED else artefact.host
        named = _moment_or_place(artefact) if reading.kind == "python_stacks" else None
        place = (artefact.sha256, artefact.rank, host, number, artefact.captured_ns, named)
        first = original or self._paths.setdefault(place, artefact.path)
        if first != artefact.path:
            return Reading(None, None, reason=f"same bytes as {first}")
        if not _tells_of_its_rank(reading) or artefact.rank is None or reading.identity.rank is not None:
            return reading
        rank, path = self._ranks.setdefault(artefact.sha256, (artefact.rank, artefact.path))
        if rank == artefact.rank:
            return reading
        problem = Problem(f"same bytes as {path} of rank {rank}: one of them is under a wrong rank")
        return replace(reading, problems=[*reading.problems, problem])


def _folder(artefact: Artefact) -> str:
    return artefact.path.rpartition("/")[0]


def _moment_or_place(artefact: Artefact) -> int | str | None:
    """What sets equal stacks apart: a process that stands still gives the same bytes again, and so do pods that wait alike."""
    at = clock(artefact.path)
    return place_in(artefact.path) or process_of(artefact.path) if at is None and artefact.rank is None else at


def _tells_of_its_rank(reading: Reading) -> bool:
    """Whether the content is of one rank only: dumps of ranks that have not communicated yet are all alike."""
    return reading.kind in RANKED and any(batch.table in ("operations", "stacks") for batch in reading.batches)
