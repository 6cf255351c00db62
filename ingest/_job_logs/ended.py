"""How somebody that started a process saw it end."""

from __future__ import annotations

from typing import NamedTuple

DESCRIBED = " time=list by=mpi"
"""Of an end that a list states: those of one list have no order, they share a time."""


class Ended(NamedTuple):
    """One process that a launcher saw end: global rank where it tells one, and how, as the subject of a `process_exit`."""

    rank: int | None
    subject: str
    label: str | None = None
