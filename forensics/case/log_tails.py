"""How the log of each rank ends: what a process wrote last, whether or not anything in it is understood."""

from __future__ import annotations

from collections.abc import Mapping

from forensics.bundle.artefact import Artefact
from forensics.case.database import Connection, insert_rows
from forensics.ingest._shared.content import last_lines

LINES = 3
MOST_TEXT = 400
MOST_COMPRESSED = 8 << 20
"""Stored bytes up to which a compressed log is read once more for its end."""
# Says nothing that the exception below it does not say.
_TRACEBACK = "Traceback (most recent call last):"

_LOGS = """
SELECT source_id, rank FROM sources WHERE kind = 'training_log' AND rank IS NOT NULL AND status IN ('ok', 'partial')
ORDER BY source_id
"""


def add_tails(connection: Connection, artefacts: Mapping[int, Artefact]) -> None:
    """Fill `log_tails` from logs that are of one rank."""
    rows: list[tuple[object, ...]] = []
    for source_id, rank in connection.execute(_LOGS).fetchall():
        artefact = artefacts[source_id]
        if artefact.stored_bytes <= MOST_COMPRESSED or not artefact.path.endswith((".gz", ".zst")):
            found = [line for line in last_lines(artefact, LINES) if not line.endswith(_TRACEBACK)]
            rows += [(source_id, rank, place, text[:MOST_TEXT]) for place, text in enumerate(found)]
    insert_rows(connection, "log_tails", "source_id rank place text", rows)
