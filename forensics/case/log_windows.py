"""Reads only the end of large histories: as much of them as some of them show to matter (Mycroft, 4.3 and 5.1).

A fault anywhere reaches every rank within a step. So a few logs of the collector, or a few dumps, are read whole and tell when
the job went wrong, and of all of them that part is read which lies around that moment, counted from the end of each, for hosts
agree on no time.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from itertools import groupby

from forensics.bundle.artefact import Artefact
from forensics.case.database import Connection
from forensics.ingest.flight_recorder import sniff

Judge = Callable[[Connection], int | None]
"""From a case of some histories, how much of every one has to be read: ns before its end; None for all of it."""

LEAST_FILES, LEAST_BYTES = 64, 128 << 20
"""Fewer histories, or smaller ones, are read whole: it costs less than to ask some of them first."""
_SAMPLED = 16
_LOG = re.compile(r"\.\d{1,10}\.\d{1,20}\.frx(?:\.zst)?$")
# A dump of fewer bytes has too few calls to leave some out. Its first keys are in so many.
_LEAST_DUMP, _HEAD = 32 << 10, 4096


@dataclass(frozen=True, slots=True)
class Histories:
    """Large histories of one kind, by their paths, and those of some ranks."""

    paths: frozenset[str]
    sample: tuple[Artefact, ...]

    def ends(self, artefacts: Sequence[Artefact], newest_ns: int | None) -> list[Artefact]:
        """The artefacts, of these histories among them that much before the end."""
        return [replace(each, newest_ns=newest_ns) if each.path in self.paths else each for each in artefacts]


def large_histories(artefacts: Sequence[Artefact]) -> list[Histories]:
    """Logs of the collector, and dumps of recorders, where there is much of them to read."""
    known = [each for each in artefacts if each.shard is None and each.summary is None]
    logs = [each for each in known if _LOG.search(each.path)]
    others = [each for each in known if each.stored_bytes >= _LEAST_DUMP and not _LOG.search(each.path)]
    dumps = [each for each in others if sniff(each.begin(_HEAD), each.path)] if _is_large(others) else []
    return [_sampled(found) for found in (logs, dumps) if _is_large(found)]


def _is_large(found: Sequence[Artefact]) -> bool:
    return len(found) >= LEAST_FILES and sum(each.stored_bytes for each in found) >= LEAST_BYTES


def _sampled(found: Sequence[Artefact]) -> Histories:
    """Some at equal distances of their ranks, with all that there is of each of these ranks."""
    ordered = sorted(found, key=lambda each: (-1 if each.rank is None else each.rank, each.path))
    ranks = [list(group) for _, group in groupby(ordered, key=lambda each: each.path if each.rank is None else each.rank)]
    chosen = ranks[:: -(-len(ranks) // _SAMPLED)]
    return Histories(frozenset(each.path for each in found), tuple(each for rank in chosen for each in rank))
