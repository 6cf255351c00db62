"""What was left out of large histories, of which only the end was read."""

from __future__ import annotations

from collections.abc import Mapping

from duckdb import DuckDBPyConnection

from forensics.case.database import rows_of

DUMPS = "recorder_history"
_WORDS = {"shim_history": "shim logs before the onset: {} records", DUMPS: "dumps before the last steps: {} calls"}
_UNREAD = """
SELECT kind, sum(TRY_CAST(regexp_extract(reason, '^[0-9]{1,12}') AS BIGINT)) FROM coverage
WHERE list_contains(?, kind) GROUP BY kind ORDER BY kind DESC
"""


def unread(connection: DuckDBPyConnection) -> Mapping[str, str]:
    """What was not read, in words, by the kind of coverage that states it; empty where all was read."""
    rows = rows_of(connection, "coverage", _UNREAD, [list(_WORDS)])
    return {kind: f"{_WORDS[kind].format(count)} not read; --full reads them" for kind, count in rows}
