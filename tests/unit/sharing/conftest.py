"""A bundle to redact."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.recordings.collection import whole
from tests.recordings.places import LOADER_QUEUE
from tests.unit.cli.conftest import stuck


@pytest.fixture(scope="session")
def bundle(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A complete collection of a job whose rank 2 waits for data."""
    return whole(stuck(), {2: LOADER_QUEUE}).tar(tmp_path_factory.mktemp("collected") / "bundle.tar")
