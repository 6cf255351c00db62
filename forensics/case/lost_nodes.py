"""Nodes that a scheduler, or Kubernetes, lost under a job, with the ranks that ran there: statements that settle a case."""

from __future__ import annotations

# A node that a scheduler lost, with the ranks that the log of the job says are on it.
LOST_NODES = """
INSERT INTO log_events (source_id, locator, time_ns, host, rank, kind, subject, text)
SELECT DISTINCT e.source_id, e.locator, e.time_ns, e.host, p.rank, e.kind, e.subject, e.text
FROM log_events e JOIN process_ranks p ON p.host = e.subject
WHERE e.kind = 'node_failed' AND e.rank IS NULL AND p.rank IS NOT NULL
    AND NOT EXISTS (SELECT 1 FROM log_events o WHERE o.kind = 'node_failed' AND o.rank IS NOT NULL AND o.subject = e.subject)
"""
# The node that Slurm lost when it cancelled the job for a lost node, in the line that says that the job was cancelled.
DOWN_NODES = r"""
INSERT INTO log_events (source_id, locator, host, kind, subject, text)
SELECT c.source_id, c.locator, d.subject, 'node_failed', d.subject, d.text
FROM log_events d JOIN log_events c ON c.kind = 'job_cancelled' AND c.subject LIKE '%DUE TO NODE FAILURE%'
WHERE d.kind = 'node_down' AND abs(date_diff('second',
    try_cast(regexp_extract(d.text, '\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d') AS TIMESTAMP),
    try_cast(regexp_extract(c.text, '\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d') AS TIMESTAMP))) <= 600
"""
# The one node that a scheduler lists as down, or that its file system shut out, whose ranks alone are silent where others gave
# up waiting.
SILENT_NODES = """
WITH gave_up AS (
    SELECT DISTINCT rank FROM log_events WHERE rank IS NOT NULL
        AND kind IN ('watchdog_timeout', 'watchdog_report', 'dump_signal', 'barrier_timeout', 'store_timeout')
), down AS (
    SELECT e.subject, min(e.source_id) AS source_id, arg_min(e.locator, e.source_id) AS locator,
           arg_min(e.text, e.source_id) AS text, list(DISTINCT p.rank) AS ranks
    FROM log_events e JOIN process_ranks p ON p.host = e.subject
    WHERE e.kind IN ('node_down', 'node_expelled') AND p.rank IS NOT NULL
    GROUP BY e.subject
)
INSERT INTO log_events (source_id, locator, host, rank, kind, subject, text)
SELECT source_id, locator, subject, unnest(ranks), 'node_failed', subject, text FROM down
WHERE (SELECT count(*) FROM down) = 1
    AND NOT EXISTS (SELECT 1 FROM gave_up WHERE list_contains(ranks, rank))
    AND NOT EXISTS (SELECT 1 FROM process_ranks p WHERE p.rank IS NOT NULL AND NOT list_contains(ranks, p.rank)
        AND p.rank NOT IN (SELECT rank FROM gave_up))
    AND (SELECT count(*) FROM gave_up) >= len(ranks)
"""
# The pod in whose control group a kernel killed a process, by the identifier in its record, where somebody else failed: it may
# have been a helper of a rank that goes on, or that lived to tell of a failure.
KILLED_PODS = r"""
WITH failed AS (
    SELECT rank FROM log_events WHERE kind IN ('peer_closed', 'exception', 'fatal_error', 'watchdog_timeout', 'barrier_timeout',
        'store_timeout', 'transfer_timeout')
)
INSERT INTO log_events (source_id, locator, time_ns, host, kind, subject, text)
SELECT e.source_id, e.locator, e.time_ns, c.host, 'process_exit', 'exitcode=-9 pod=' || c.host || ' by=kernel', e.text
FROM log_events e JOIN job_config c
    ON c.key = 'pod.uid' AND c.value = replace(regexp_extract(e.subject, '^uid=(\S+)', 1), '_', '-')
WHERE e.kind = 'pod_killed' AND EXISTS (FROM failed)
    AND NOT EXISTS (SELECT 1 FROM process_ranks p JOIN failed f ON f.rank = p.rank WHERE p.host = c.host)
"""
# The one pod whose node went away, of ranks that others gave up waiting for: events of Kubernetes are of the last hour.
PODS_WITHOUT_NODE = """
INSERT INTO log_events (source_id, locator, host, rank, kind, subject, text)
SELECT min(e.source_id), arg_min(e.locator, e.source_id), p.host, p.rank, 'node_failed', p.host, arg_min(e.text, e.source_id)
FROM log_events e JOIN process_ranks p ON e.subject = 'pod/' || p.host
WHERE e.kind = 'node_failed' AND e.rank IS NULL AND p.rank IS NOT NULL AND p.pid IS NULL
    AND EXISTS (SELECT 1 FROM log_events w WHERE w.kind IN ('watchdog_timeout', 'store_timeout', 'peer_closed')
        AND w.rank IS DISTINCT FROM p.rank)
    AND (SELECT count(DISTINCT subject) FROM log_events WHERE kind = 'node_failed' AND starts_with(subject, 'pod/')) = 1
GROUP BY p.host, p.rank
"""
