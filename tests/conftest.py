"""Variants of a test that builds a case of files: a few of them are in every run, all in the slow one."""

from __future__ import annotations

from collections import defaultdict

import pytest

USUAL_VARIANTS = 1
_BUILDS = {"open_case", "verdict_of"}
_MARKED = {"slow", "deep"}


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark variants as slow but for a few spread over them; a test of which some are marked by hand stays as it is."""
    variants: dict[str, list[pytest.Item]] = defaultdict(list)
    for item in items:
        if isinstance(item, pytest.Function) and hasattr(item, "callspec") and _BUILDS & vars(item.module).keys():
            variants[item.nodeid.partition("[")[0]].append(item)
    for same in variants.values():
        takes_a_folder = "tmp_path" in getattr(same[0], "fixturenames", ())
        if takes_a_folder and not any(mark.name in _MARKED for item in same for mark in item.iter_markers()):
            usual = {number * len(same) // USUAL_VARIANTS for number in range(USUAL_VARIANTS)}
            for item in (item for number, item in enumerate(same) if number not in usual):
                item.add_marker(pytest.mark.slow)
