"""What schedulers, clusters, clouds and file systems say of one node of the job, of which no rank is known."""

from __future__ import annotations

from forensics.rules.leads.single import Single

# Nodes that Kubernetes finds not ready: of those with pods of the job, where a table shows these.
_NOT_READY = """
SELECT subject, min(source) FROM logged_event WHERE kind = 'node_not_ready' AND (
    subject IN (SELECT value FROM job_config WHERE key = 'pod.node')
    OR NOT EXISTS (SELECT 1 FROM job_config WHERE key = 'pod.node'))
GROUP BY subject ORDER BY subject
"""
# Conditions of nodes that tell of their devices, by node.
_CONDITIONS = r"""
SELECT regexp_extract(subject, '^(\S+)', 1) AS node, min(regexp_extract(subject, ' (\S+)$', 1)), min(source)
FROM logged_event WHERE kind = 'node_condition' GROUP BY node
HAVING node IN (SELECT value FROM job_config WHERE key = 'pod.node')
    OR NOT EXISTS (SELECT 1 FROM job_config WHERE key = 'pod.node') ORDER BY node
"""
# Nodes that the cluster of the job lists as dead.
_DEAD = "SELECT subject, min(source) FROM logged_event WHERE kind = 'node_dead' GROUP BY subject ORDER BY subject"
# What a line dates long before the last steps of the job is not of them: logs may name no zone.
_NOT_OLD = r"""
coalesce(epoch(try_cast(regexp_extract(text, '\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d') AS TIMESTAMP)) + 14 * 3600 >= (
    SELECT max(at_s) FROM log_progress WHERE clock = 'line'), true)
"""
_OF_JOB = "SELECT value FROM job_config WHERE key = 'job.node' UNION SELECT host FROM nodes"
# Nodes of the job that its scheduler lists as down.
_DOWN = f"""
SELECT subject, min(source) FROM logged_event WHERE kind = 'node_down' AND subject IN ({_OF_JOB}) AND {_NOT_OLD}
GROUP BY subject ORDER BY subject
"""
_EXPELLED = f"""
SELECT subject, min(source) FROM logged_event WHERE kind = 'node_expelled' AND subject IN ({_OF_JOB}) AND {_NOT_OLD}
GROUP BY subject ORDER BY subject
"""
# Virtual machines that their cloud took away, of those of the job where these are known.
_TAKEN_AWAY = rf"""
SELECT regexp_extract(subject, '^(\S+)', 1) AS node, min(regexp_extract(subject, ' (\w+)$', 1)), min(source) FROM logged_event
WHERE kind = 'node_taken' AND {_NOT_OLD} GROUP BY node
HAVING node IN ({_OF_JOB}) OR NOT EXISTS ({_OF_JOB}) ORDER BY node
"""
OF_NODES = (
    # Of several some may be of other jobs.
    Single(
        _NOT_READY,
        "node_not_ready",
        "console and kernel log of node {0}, and which pods of the job are on it: it is not ready ({1})",
    ),
    # The list may hold nodes that former jobs lost.
    Single(
        _DEAD,
        "node_dead",
        "console and kernel log of node {0}, and which ranks ran there: its cluster found it dead ({1})",
    ),
    # Of several the network or the scheduler may have lost all.
    Single(
        _DOWN,
        "node_down",
        "console and kernel log of node {0}, and which ranks ran there: its scheduler lists it as down ({1})",
    ),
    # Of several the servers may have lost all.
    Single(
        _EXPELLED,
        "node_expelled",
        "network, console and kernel log of node {0}, and which ranks ran there: its file system shut it out ({1})",
    ),
    Single(
        _TAKEN_AWAY,
        "node_taken",
        "whether {0} is back, and which ranks ran there: its cloud reports the event {1} ({2})",
    ),
    Single(
        _CONDITIONS,
        "node_condition",
        "devices and kernel log of node {0}, and which ranks ran there: its condition {1} is bad ({2})",
    ),
)
