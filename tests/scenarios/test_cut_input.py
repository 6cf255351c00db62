"""Bundles cut anywhere and files that are no evidence: told by name, and nobody named for what is missing."""

from __future__ import annotations

import gzip
from pathlib import Path

import pytest
import zstandard

from forensics.errors import ForensicsError
from forensics.model import Verdict
from tests.recordings.collection import tar_of
from tests.recordings.hang import CULPRIT, VICTIMS_DUMP, collected, with_member
from tests.recordings.verdicts import verdict_of, warned
from tests.scenarios.test_bad_input import UNRECOGNISED


def innocent(verdict: Verdict) -> list[tuple[int, ...]]:
    """Suspects that are neither the culprit nor an open choice that includes it."""
    return [s.ranks for s in verdict.suspects if s.ranks != (CULPRIT,) and not (s.members == "one_of" and CULPRIT in s.ranks)]


@pytest.mark.parametrize("kind", UNRECOGNISED)
def test_a_file_of_a_rank_that_cannot_be_used_is_told(tmp_path: Path, kind: str) -> None:
    assert VICTIMS_DUMP in warned(verdict_of(with_member(tmp_path, UNRECOGNISED[kind])))


@pytest.mark.parametrize("suffix", ["", ".gz", ".zst"])
def test_a_bundle_cut_anywhere_is_told_and_names_nobody_for_what_is_gone(tmp_path: Path, suffix: str) -> None:
    plain = tar_of(collected().finished())
    archive = {"": plain, ".gz": gzip.compress(plain, 1, mtime=0), ".zst": zstandard.compress(plain)}[suffix]
    path = tmp_path / f"bundle.tar{suffix}"
    end = len(archive) - (1024 if not suffix else 0)
    for position in range(40, end, end // 12):
        path.write_bytes(archive[:position])
        try:
            verdict = verdict_of(path)
        except ForensicsError as error:
            assert path.name in error.message
            continue
        assert innocent(verdict) == [], position
        assert path.name in warned(verdict), position
