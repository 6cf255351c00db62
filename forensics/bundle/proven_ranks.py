"""Bare numbers in names of files are ranks only where all files together show it: a pid or a date looks the same."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from forensics.bundle.artefact import Artefact

_LEAST_SHARE = 2
"""One in so many ranks up to the number must have a file: a hung job may lack some; pids of a host are never so dense."""


def with_proven_ranks(artefacts: Sequence[Artefact]) -> list[Artefact]:
    """The artefacts, without a guessed rank that the numbers of the others do not bear out.

    Ranks that a word, a folder or a manifest names count with the guessed ones: beside `rank0` to `rank3`, `2.txt` is a rank.
    """
    proven = _proven({artefact.rank for artefact in artefacts if artefact.rank is not None})
    return [_checked(artefact, proven) for artefact in artefacts]


def _proven(numbers: set[int]) -> frozenset[int]:
    """The lowest numbers, as long as they are dense: 0 to n - 1, or at least half of that."""
    kept: set[int] = set()
    ordered = sorted(numbers)
    for count, number in enumerate(ordered, start=1):
        if number < _LEAST_SHARE * count and (count > 1 or number == 0):
            kept = set(ordered[:count])
    return frozenset(kept)


def _checked(artefact: Artefact, proven: frozenset[int]) -> Artefact:
    if artefact.rank is None or artefact.has_stated_rank or artefact.rank in proven:
        return artefact
    return replace(artefact, rank=None, rank_method=None)
