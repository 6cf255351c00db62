"""Variants of a test that builds a case of files: one of them is in every run, all are with the slow ones; a command to run."""

from __future__ import annotations

from collections import defaultdict

import pytest
from hypothesis import settings

from tests.recordings.commands import Command, command

# A busy machine is no failure.
settings.register_profile("forensics", deadline=None)
settings.load_profile("forensics")

_BUILDS = {"open_case", "verdict_of", "pasted"}
_BY_HAND = {"slow", "deep"}


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark all variants but the first as slow; a test of which some are marked by hand stays as it is."""
    variants: dict[str, list[pytest.Function]] = defaultdict(list)
    for item in (item for item in items if isinstance(item, pytest.Function) and hasattr(item, "callspec")):
        if "tmp_path" in item.fixturenames and _BUILDS & vars(item.module).keys():
            variants[item.nodeid.partition("[")[0]].append(item)
    for same in variants.values():
        if not any(mark.name in _BY_HAND for item in same for mark in item.iter_markers()):
            for item in same[1:]:
                item.add_marker(pytest.mark.slow)


@pytest.fixture
def forensics(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Command:
    """`forensics("diagnose", path)`."""
    return command(monkeypatch, capsys)
