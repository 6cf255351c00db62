"""Variants of a test that builds a case of files: one of them is in every run, all are with the slow ones; a command to run."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator

import pytest
from hypothesis import settings

from forensics.case import build
from tests.recordings import cases
from tests.recordings.commands import Command, command

# A busy machine is no failure.
settings.register_profile("forensics", deadline=None)
settings.load_profile("forensics")

_BUILDS = {"open_case", "verdict_of", "pasted"}
_BY_HAND = {"slow", "deep"}


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark variants as slow: all but the first, or as many as `first` says. A test of which some are marked by hand stays."""
    variants: dict[str, list[pytest.Function]] = defaultdict(list)
    for item in items:
        if isinstance(item, pytest.Function) and hasattr(item, "callspec"):
            variants[item.nodeid.partition("[")[0]].append(item)
    for same in variants.values():
        for item in same[_in_every_run(same) :]:
            item.add_marker(pytest.mark.slow)


def _in_every_run(same: list[pytest.Function]) -> int:
    """How many variants of a test are in every run."""
    first, (item, *_) = same[0].get_closest_marker("first"), same
    if first:
        return int(first.args[0])
    builds = "tmp_path" in item.fixturenames and _BUILDS & vars(item.module).keys()
    by_hand = any(mark.name in _BY_HAND for item in same for mark in item.iter_markers())
    return 1 if builds and not by_hand else len(same)


@pytest.fixture(autouse=True, scope="session")
def _shared_instance() -> Iterator[None]:
    """Small cases share one instance of DuckDB; `test_build.py` opens some that do not."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(build, "new_case", cases.new_case)
        yield


@pytest.fixture
def forensics(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Command:
    """`forensics("diagnose", path)`."""
    return command(monkeypatch, capsys)
