"""Where to look first by what one source says of one task, process, node or device alone."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from duckdb import DuckDBPyConnection

from forensics.case.database import only_row


@dataclass(frozen=True, slots=True)
class Single:
    """The sentence for the only row of a query: of several, nothing shows which is to blame.

    `kind` is that of the events in `log_events` that the query reads; `words` is a format of the columns by their place.
    """

    query: str
    kind: str
    words: str


def single_leads(connection: DuckDBPyConnection, leads: Iterable[Single]) -> Iterator[str]:
    """The sentences, in their order."""
    for lead in leads:
        if row := only_row(connection, "log_events", lead.query, kinds=(lead.kind,)):
            yield lead.words.format(*row)
