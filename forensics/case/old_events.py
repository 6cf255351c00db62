"""Failures that are of something else than the job: those of hosts long before its first step, and ends below its last one.

Local times of a kernel or of systemd name no zone, nor do most logs: fourteen hours are the most between two of them.
"""

from __future__ import annotations

from forensics.case.database import Connection, has_rows
from forensics.ingest._shared.dump_times import time_in

_KINDS = ("client_evicted", "core_dumped", "hung_task", "segfault", "process_exit")
_FIRST_STEP = "SELECT min(at_s) FROM log_progress WHERE clock = 'line'"
# Ends that a launcher writes are of the run whose log it writes.
_DATED = f"""
SELECT source_id, locator, kind, subject, text FROM log_events
WHERE kind IN {_KINDS} AND rank IS NULL AND (kind <> 'process_exit' OR contains(subject, ' since='))
"""
_EARLIER = "UPDATE log_events SET kind = 'earlier_' || kind WHERE source_id = ? AND locator = ? AND kind = ?"
_LONG_S = (24 + 14) * 3600
# Of a process that went away below the end of the training nobody knows whether it was only ended with the job, unless its
# signal is stated.
_BELOW_THE_END = """
UPDATE log_events SET kind = 'earlier_' || kind
WHERE kind = 'process_exit' AND subject LIKE 'exitcode=unknown %' AND EXISTS (
    SELECT 1 FROM log_events f
    WHERE f.source_id = log_events.source_id AND f.kind = 'job_finished' AND f.locator < log_events.locator AND NOT EXISTS (
        SELECT 1 FROM log_progress p
        WHERE p.source_id = f.source_id AND p.locator BETWEEN f.locator AND log_events.locator
            AND (p.total IS NULL OR p.step < p.total)))
"""


def set_old_events_aside(connection: Connection) -> None:
    """Call them `earlier_`, as those of a former start of a job are."""
    if has_rows(connection, "log_events", ("job_finished",)):
        connection.execute(_BELOW_THE_END)
    if not has_rows(connection, "log_progress") or not has_rows(connection, "log_events"):
        return
    ((first,),) = connection.execute(_FIRST_STEP).fetchall()
    for source, locator, kind, subject, text in connection.execute(_DATED).fetchall() if first is not None else ():
        time_ns = time_in(f"{subject} {text}")
        if time_ns is not None and time_ns / 1e9 + _LONG_S < first:
            connection.execute(_EARLIER, (source, locator, kind))
