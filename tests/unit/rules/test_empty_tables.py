"""Queries that are not asked while a table is empty: they have no rows then, or rows that say nothing."""

from __future__ import annotations

import sys
from typing import Any

import pytest

from forensics.case import database
from forensics.rules.engine import discover
from tests.recordings.scenarios import SCENARIOS
from tests.recordings.verdicts import verdict_of


@pytest.mark.parametrize("scenario", ["behind-in-logs", "behind-in-ras", "behind-in-shim-logs", "dataloader-stalled"])
def test_what_is_not_asked_says_nothing(scenario: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def asked(connection: database.Connection, table: str, query: str, parameters: object = None) -> list[tuple[Any, ...]]:
        found = connection.execute(query, parameters).fetchall()
        assert database.has_rows(connection, table) or not any(value for row in found for value in row), (table, query, found)
        return found

    assert discover(), "all modules that ask are loaded"
    for module in list(sys.modules.values()):
        if getattr(module, "rows_of", None) is database.rows_of:
            monkeypatch.setattr(module, "rows_of", asked)
    verdict_of(SCENARIOS / scenario / "bundle.tar.zst")
