"""Queries that are not asked while a table has no rows, or none of some kinds: they would say nothing."""

from __future__ import annotations

import sys
from collections.abc import Collection
from typing import Any

import pytest

from forensics.case import database
from forensics.rules.engine import discover
from tests.recordings.scenarios import SCENARIOS
from tests.recordings.verdicts import verdict_of


@pytest.mark.parametrize("scenario", ["behind-in-logs", "behind-in-ras", "behind-in-shim-logs", "dataloader-stalled"])
@pytest.mark.first(1)
def test_what_is_not_asked_says_nothing(scenario: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def asked(
        connection: database.Connection, table: str, query: str, parameters: object = None, kinds: Collection[str] = ()
    ) -> list[tuple[Any, ...]]:
        found = connection.execute(query, parameters).fetchall()
        is_asked = database.has_rows(connection, table, kinds)
        assert is_asked or not any(value for row in found for value in row), (table, kinds, query, found)
        return found

    assert discover(), "all modules that ask are loaded"
    real = database.rows_of
    for module in list(sys.modules.values()):
        if getattr(module, "rows_of", None) is real:
            monkeypatch.setattr(module, "rows_of", asked)
    verdict_of(SCENARIOS / scenario / "bundle.tar.zst")
