"""The folder of the ranks alone, taken out of a bundle and called anything, says what the bundle says."""

from __future__ import annotations

import io
import tarfile
from pathlib import Path

import pytest
import zstandard

from forensics.bundle.origin import origin
from forensics.bundle.reader import open_bundle
from tests.recordings.verdicts import named, verdict_of

SCENARIOS = Path(__file__).parents[2] / "fixtures/scenarios"


def _unpacked(name: str, folder: Path) -> Path:
    stored = (SCENARIOS / name / "bundle.tar.zst").read_bytes()
    content = zstandard.ZstdDecompressor().decompressobj().decompress(stored)
    with tarfile.open(fileobj=io.BytesIO(content)) as bundle:
        bundle.extractall(folder, filter="data")
    return folder / "ranks"


@pytest.mark.parametrize(("name", "rank"), [("processor-time", 2), ("collective-skipped", 3), ("host-lock", 0)])
@pytest.mark.parametrize("called", ["ranks", "job 7"])
def test_ranks_without_the_rest_of_their_bundle(name: str, rank: int, called: str, tmp_path: Path) -> None:
    ranks = _unpacked(name, tmp_path / "bundle").rename(tmp_path / called)
    assert named(verdict_of(ranks)) == {rank}


def test_one_folder_of_each_rank(tmp_path: Path) -> None:
    ranks = _unpacked("collective-skipped", tmp_path)
    assert named(verdict_of(*sorted(ranks.glob("*/fr")))) == {3}


@pytest.mark.parametrize(
    ("path", "rank", "sample"),
    [
        ("3/stacks/5.json", 3, 5),
        ("job/3/fr/1.json", 3, 1),
        ("0/proc/2.json", 0, 2),
        ("ranks/3/stacks/5.json", 3, 5),
        ("3/stacks/child-411.5.json", 3, 5),
    ],
)
def test_the_number_of_the_folder_is_the_rank_and_that_of_the_file_the_look(path: str, rank: int, sample: int) -> None:
    found = origin(path)
    assert (found.rank, found.sample) == (rank, sample)


@pytest.mark.parametrize("path", ["2026/logs/3.log", "40510/3.json", "3/spy/1.txt"])
def test_other_folders_with_numbers_are_not_of_a_bundle(path: str) -> None:
    assert origin(path).sample is None


def test_folders_that_are_called_by_processes_are_no_ranks(tmp_path: Path) -> None:
    ranks = _unpacked("collective-skipped", tmp_path)
    for folder in sorted(ranks.iterdir()):
        folder.rename(tmp_path / f"{4100 + int(folder.name)}")
    ranks.rmdir()
    found = [each.rank for each in open_bundle([tmp_path]).artefacts if each.path.startswith("41") and "/fr/" in each.path]
    assert found and set(found) == {None}
