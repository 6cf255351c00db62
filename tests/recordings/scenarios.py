"""Recorded scenarios as cases that several tests look at: each is read once, and what a test changes is taken back."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path

from forensics.case.build import open_case
from forensics.case.call_store import calls_table
from forensics.case.database import Connection

SCENARIOS = Path(__file__).parents[2] / "fixtures/scenarios"


@cache
def recorded(scenario: str) -> Connection:
    """The case of a scenario; nobody changes it."""
    return open_case([SCENARIOS / scenario / "bundle.tar.zst"])


@contextmanager
def changed(scenario: str, statements: str) -> Iterator[Connection]:
    """The same after these statements, for a while; what is to be done to operations is done to the table that has them."""
    connection = recorded(scenario)
    statements = statements.replace("UPDATE operations", f"UPDATE {calls_table(connection)}")
    connection.begin()
    try:
        connection.execute(statements)
        yield connection
    finally:
        connection.rollback()
