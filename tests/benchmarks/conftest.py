from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.benchmarks.dumps import write_dumps

Dumps = Callable[[int], Path]


@pytest.fixture(scope="session")
def dumps(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Dumps]:
    """Makes the dumps of a job of so many ranks, once a session; kept in FORENSICS_BENCH_FOLDER when that is set."""
    kept = os.environ.get("FORENSICS_BENCH_FOLDER")
    root = Path(kept) if kept else tmp_path_factory.mktemp("dumps")

    def make(ranks: int) -> Path:
        folder = root / f"ranks_{ranks}"
        if not folder.exists():
            write_dumps(folder, ranks, os.cpu_count() or 1)
        return folder

    yield make
