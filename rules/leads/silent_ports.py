"""The port that several hosts sent to over RDMA in vain, by its local identifier in the fabric."""

from __future__ import annotations

from collections.abc import Iterator

from duckdb import DuckDBPyConnection

from forensics.case.database import only_row, rows_of

_SENT = r"""
SELECT CAST(regexp_extract(subject, 'lid=(\d+)', 1) AS BIGINT) AS lid, count(DISTINCT host), min(source) FROM logged_event
WHERE kind = 'send_unanswered' AND NOT after_cancel GROUP BY lid ORDER BY lid
"""
_OWNERS = """
SELECT DISTINCT c.device, coalesce(c.host, s.host) AS host FROM counters c JOIN sources s USING (source_id)
WHERE c.counter = 'lid' AND c.value = ? AND coalesce(c.host, s.host) IS NOT NULL
"""
_LEAST_HOSTS = 2


def silent_port(connection: DuckDBPyConnection) -> Iterator[str]:
    """One port: sends of one host alone fail by its own NIC as well, those to several ports by what is between."""
    row = only_row(connection, "log_events", _SENT, kinds=("send_unanswered",))
    if row is None or row[1] < _LEAST_HOSTS:
        return
    lid, hosts, source = row
    owners = rows_of(connection, "counters", _OWNERS, [lid])
    where = f"port {owners[0][0]} of {owners[0][1]}" if len(owners) == 1 else f"the port that `saquery -O {lid}` names"
    said = f"sends of {hosts} hosts to it alone were not answered ({source})"
    yield f"{where} (LID {lid}), kernel log and console of its host: {said}"
