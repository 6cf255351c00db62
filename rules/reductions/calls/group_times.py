"""The times of group calls: of what one group call issued, the entry that closes it has them, and they are those of all."""

from __future__ import annotations

from duckdb import DuckDBPyConnection

from forensics.case.database import rows_of

_OF_GROUPS = """(
    SELECT source_id, pg_id, pg_name, is_p2p, group_call, max(duration_ns) AS took_ns, max(device_end_ns) AS over_ns
    FROM latest_call WHERE group_call IS NOT NULL AND {condition} GROUP BY ALL
)"""


def has_durations(connection: DuckDBPyConnection) -> bool:
    """Whether any call has a duration of its own, as most recorders of gloo, and NCCL's without timing, have none."""
    return bool(rows_of(connection, "operations", "SELECT 1 FROM operations WHERE duration_ns IS NOT NULL LIMIT 1"))


def joined_group_times(calls: str, condition: str) -> str:
    """SQL that joins the times of its group call to each call of `calls` as `g`; a call by itself has none.

    `condition` says which calls of `latest_call` count. Only calls of group calls are sorted into groups: a window over all
    calls of a large job takes as long as reading them.
    """
    return f"""LEFT JOIN {_OF_GROUPS.format(condition=condition)} g
        ON g.source_id = {calls}.source_id AND g.group_call = {calls}.group_call
        AND g.pg_id IS NOT DISTINCT FROM {calls}.pg_id AND g.pg_name IS NOT DISTINCT FROM {calls}.pg_name
        AND g.is_p2p IS NOT DISTINCT FROM {calls}.is_p2p"""
