"""Bundles cut anywhere: shown by name, and nobody named for what is missing."""

from __future__ import annotations

import gzip
from collections.abc import Iterator
from pathlib import Path

import pytest
import zstandard

from forensics.errors import ForensicsError
from forensics.model import Verdict
from tests.recordings.collection import tar_of
from tests.recordings.hang import CULPRIT, collected
from tests.recordings.verdicts import verdict_of, warned

PLAIN = tar_of(collected().finished())
ARCHIVES = {"": PLAIN, ".gz": gzip.compress(PLAIN, 1, mtime=0), ".zst": zstandard.compress(PLAIN)}
BLOCK = 512


def innocent(verdict: Verdict) -> list[tuple[int, ...]]:
    """Suspects that are neither the culprit nor an open choice that includes it."""
    return [s.ranks for s in verdict.suspects if s.ranks != (CULPRIT,) and not (s.members == "one_of" and CULPRIT in s.ranks)]


def places() -> Iterator[object]:
    """In headers, in members, at borders, in the last block; a few of each form are in every run."""
    for suffix, archive in ARCHIVES.items():
        end = len(archive) - (0 if suffix else 2 * BLOCK)
        borders = {1, BLOCK - 1, BLOCK, BLOCK + 1, 2 * BLOCK, end, len(archive) - 1} if not suffix else set()
        for number, position in enumerate(sorted({*range(40, end, end // 12), *borders})):
            yield pytest.param(suffix, position, marks=() if number % 6 == 3 else pytest.mark.slow)


@pytest.mark.parametrize(("suffix", "position"), list(places()))
def test_a_bundle_cut_anywhere_is_stated_and_names_nobody_for_what_is_gone(tmp_path: Path, suffix: str, position: int) -> None:
    path = tmp_path / f"bundle.tar{suffix}"
    path.write_bytes(ARCHIVES[suffix][:position])
    try:
        verdict = verdict_of(path)
    except ForensicsError as error:
        assert path.name in error.message
        return
    assert innocent(verdict) == []
    # Of an archive that is not packed the last two blocks are empty: nothing is gone with them.
    assert path.name in warned(verdict) or (not suffix and position >= len(PLAIN) - 2 * BLOCK)
