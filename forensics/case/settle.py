"""What can only be settled when all artefacts are in: facts of one that complete or repeat those of another."""

from __future__ import annotations

from collections.abc import Mapping

from forensics.bundle.artefact import Artefact
from forensics.bundle.streams import COMPRESSED_SUFFIXES
from forensics.case.database import Connection, filled_tables, insert_rows
from forensics.case.folders_of_ranks import forget_numbers_of_looks, name_stacks_beside_ranks
from forensics.case.former_logs import leave_out_former_logs
from forensics.case.lagging_logs import mark_the_one_behind
from forensics.case.launcher_folders import guess_local_ranks, name_local_ranks
from forensics.case.lost_nodes import DOWN_NODES, KILLED_PODS, LOST_NODES, PODS_WITHOUT_NODE, SILENT_NODES
from forensics.case.node_ranks import complete_nodes
from forensics.case.numbered_logs import forget_refuted_numbers, name_numbered_logs
from forensics.case.old_events import set_old_events_aside
from forensics.case.other_runs import leave_out_other_runs
from forensics.case.owners import NO_RANK, name_owners
from forensics.case.repeated_dumps import number_dumps
from forensics.case.repeated_reports import number_reports
from forensics.case.repeated_stacks import Artefacts, number_stacks
from forensics.case.start_order import number_by_start
from forensics.case.tracked_runs import leave_out_former_tracked_runs
from forensics.ingest._shared.content import last_lines

# A process that is a child by the look of its stack only is one when the rank is known to be another process.
_CHILDREN = """
UPDATE stacks SET is_child = EXISTS (
    SELECT 1 FROM ranks r WHERE r.rank = stacks.rank AND r.pid IS NOT NULL AND r.pid <> stacks.pid
    UNION ALL
    SELECT 1 FROM stacks o WHERE o.rank = stacks.rank AND o.pid <> stacks.pid AND o.is_child = false
) WHERE is_child IS NULL
"""
# The name of a dump may tell the process; it is believed where a stack of unknown rank is of that process.
_CALLED_BY_PROCESS = """
SELECT source_id, rank, host FROM sources WHERE kind = 'flight_recorder' AND rank IS NOT NULL
"""
_NAMELESS_STACKS = "SELECT DISTINCT pid FROM stacks WHERE rank IS NULL AND pid IS NOT NULL"
# A table of processes knows numbers, another file whose they are: the same number on the same host is the same process. Where
# the evidence is of several hosts and the table does not say of which it is, the number proves nothing.
_NUMBERED = """
        SELECT rank, pid, host FROM ranks WHERE rank IS NOT NULL AND pid IS NOT NULL
        UNION SELECT t.rank, t.pid, coalesce(t.host, s.host) FROM stacks t JOIN sources s USING (source_id)
        WHERE t.rank IS NOT NULL AND t.pid IS NOT NULL AND t.is_child IS DISTINCT FROM true
        UNION SELECT rank, pid, host FROM process_ranks WHERE rank IS NOT NULL AND pid IS NOT NULL
"""
# Tables of processes show environments.
_LISTED = f"""{_NUMBERED}
        UNION SELECT rank, pid, host FROM processes WHERE rank IS NOT NULL AND pid = thread AND is_child IS DISTINCT FROM true
"""
_OF_ONE_RANK = """(
    SELECT pid, host, min(rank) AS rank FROM ({}) GROUP BY pid, host HAVING count(DISTINCT rank) = 1
    WINDOW of_number AS (PARTITION BY pid)
    QUALIFY min(min(rank)) OVER of_number = max(min(rank)) OVER of_number OR NOT bool_or(host IS NULL) OVER of_number
)"""
_KNOWN = _OF_ONE_RANK.format(_NUMBERED)
_SAME = """known.pid AND CASE WHEN {host} IS NOT NULL AND known.host IS NOT NULL THEN {host} = known.host
    ELSE (SELECT count(DISTINCT host) FROM (
        SELECT host FROM sources UNION SELECT host FROM process_ranks UNION SELECT host FROM ranks)) < 2 END"""
_OWNERS = f"""
UPDATE processes SET rank = known.rank, is_child = false FROM {_KNOWN} known
WHERE processes.rank IS NULL AND processes.pid = {_SAME.format(host="processes.host")}
"""
_STACK_OWNERS = f"""
UPDATE stacks SET rank = known.rank FROM {_KNOWN} known, sources s
WHERE stacks.rank IS NULL AND s.source_id = stacks.source_id
    AND stacks.pid = {_SAME.format(host="coalesce(stacks.host, s.host)")}
"""
_KERNEL_OWNERS = f"""
UPDATE device_kernels SET rank = known.rank FROM {_KNOWN} known, sources s
WHERE device_kernels.rank IS NULL AND s.source_id = device_kernels.source_id
    AND device_kernels.pid = {_SAME.format(host="s.host")}
"""
# No watchdog waits for a day: what is dated so long before all that the logs tell was another process of that number.
_NO_WAIT_NS = 24 * 3600 * 10**9
# The kernel names processes by number: the file that it stands in may be called by another rank of the host.
_KILLED = f"""
UPDATE log_events SET rank = (
    SELECT any_value(known.rank) FROM {_KNOWN} known
    WHERE try_cast(log_events.subject AS BIGINT) = {_SAME.format(host="log_events.host")}
) WHERE kind IN ('oom_kill', 'segfault')
    AND source_id IN (SELECT source_id FROM sources WHERE kind = 'kernel_log')
    AND coalesce(time_ns >= (
        SELECT min(t) FROM (
            SELECT e.time_ns AS t FROM log_events e JOIN sources s USING (source_id) WHERE s.kind = 'training_log'
            UNION ALL SELECT CAST(1e9 * at_s AS BIGINT) FROM log_progress WHERE clock = 'line'
        )
    ) - {_NO_WAIT_NS}, true)
"""
# What a launcher says of the end of a process that it calls by its number alone.
_ENDED = f"""
UPDATE log_events SET rank = (
    SELECT any_value(known.rank) FROM {_OF_ONE_RANK.format(_LISTED)} known
    WHERE try_cast(regexp_extract(log_events.subject, ' pid=(\\d+)', 1) AS BIGINT) = {_SAME.format(host="log_events.host")}
) WHERE rank IS NULL AND kind = 'process_exit' AND regexp_matches(subject, '^exitcode=\\S+ pid=\\d+')
"""
# Of what is said of one process twice, once without its host, the other says more.
_WITHOUT_HOST = """
DELETE FROM process_ranks USING process_ranks o
WHERE process_ranks.host IS NULL AND o.host IS NOT NULL AND process_ranks.pid = o.pid AND process_ranks.rank = o.rank
    AND process_ranks.method = o.method
"""
# A launcher on a host counts its processes there; which node the host is, something else may tell.
_LOCAL_ENDS = """
UPDATE log_events SET rank = p.node * p.per_node + try_cast(regexp_extract(subject, 'local_rank=([0-9]+)', 1) AS INTEGER)
FROM (SELECT host, min(node) AS node, min(per_node) AS per_node FROM process_ranks
      WHERE host IS NOT NULL AND node IS NOT NULL AND per_node IS NOT NULL
      GROUP BY host HAVING count(DISTINCT (node, per_node)) = 1) p
WHERE log_events.rank IS NULL AND log_events.host = p.host AND kind = 'process_exit'
    AND try_cast(regexp_extract(subject, 'local_rank=([0-9]+)', 1) AS INTEGER) < p.per_node
"""
# Of one process that py-spy did not find beside others that it read, the number was right; of several, the job had ended, or
# they are counted in another namespace.
_NOT_FOUND = """
WITH missed AS (
    SELECT r.source_id, r.rank FROM ranks r JOIN sources s USING (source_id)
    WHERE s.kind = 'python_stacks' AND r.state = 'absent'
)
UPDATE ranks SET state = 'unknown' FROM missed WHERE ranks.source_id = missed.source_id AND ranks.rank = missed.rank
    AND ((SELECT count(DISTINCT rank) FROM missed) > 1
        OR (SELECT count(DISTINCT rank) FROM stacks WHERE rank NOT IN (SELECT rank FROM missed)) < 2)
"""
_ENDED_PODS = """
UPDATE log_events SET rank = p.rank FROM (
    SELECT host, min(rank) AS rank FROM process_ranks WHERE pid IS NULL AND host IS NOT NULL AND rank IS NOT NULL
    GROUP BY host HAVING count(DISTINCT rank) = 1
) p
WHERE log_events.rank IS NULL AND kind IN ('oom_kill', 'process_exit')
    AND regexp_extract(subject, 'pod=([a-z0-9][a-z0-9.-]*)', 1) = p.host
"""
# gdb shows the process in its threads only, so that the rank is that of the stacks beside the kernels.
_KERNEL_SOURCES = """
UPDATE device_kernels SET rank = s.rank FROM sources s
WHERE s.source_id = device_kernels.source_id AND device_kernels.rank IS NULL AND device_kernels.pid IS NULL
"""
_STACK_SOURCES = f"""
CREATE TEMP TABLE found_owners AS SELECT source_id, min(t.rank) AS rank, count(DISTINCT t.rank) AS ranks
FROM stacks t JOIN sources s USING (source_id) WHERE s.rank IS NULL GROUP BY source_id HAVING count(*) = count(t.rank);
UPDATE sources SET rank = CASE found_owners.ranks WHEN 1 THEN found_owners.rank END, rank_method = 'pid',
    status = CASE WHEN reason LIKE '{NO_RANK} for %' THEN 'ok' ELSE status END,
    reason = CASE WHEN reason LIKE '{NO_RANK} for %' THEN NULL ELSE reason END
FROM found_owners WHERE sources.source_id = found_owners.source_id;
DELETE FROM ingest_warnings USING found_owners
WHERE ingest_warnings.source_id = found_owners.source_id AND message LIKE '{NO_RANK} for %';
DROP TABLE found_owners
"""
# bundle.json repeats in short what rank.json and collectors.jsonl say; it counts for what they are missing for.
_KNOWN_RANKS = """
DELETE FROM ranks USING sources s WHERE ranks.source_id = s.source_id AND s.parser = 'bundle_manifest'
    AND EXISTS (SELECT 1 FROM ranks o WHERE o.rank = ranks.rank AND o.source_id <> ranks.source_id)
"""
_KNOWN_COVERAGE = """
DELETE FROM coverage USING sources s WHERE coverage.source_id = s.source_id AND s.parser = 'bundle_manifest'
    AND EXISTS (SELECT 1 FROM coverage o WHERE o.source_id <> coverage.source_id AND o.scope = coverage.scope
        AND o.kind = coverage.kind AND CASE o.scope WHEN 'rank' THEN o.rank = coverage.rank ELSE o.host = coverage.host END)
"""
# The end of a container long before steps that the job trained since is that of an earlier start. Logs write the time of a zone
# that they do not name, 14 hours ahead at most.
_EARLIER_ENDS = """
UPDATE log_events SET kind = 'earlier_' || kind
WHERE kind IN ('process_exit', 'oom_kill', 'pod_evicted')
    AND source_id IN (SELECT source_id FROM sources WHERE kind = 'scheduler_log')
    AND time_ns / 1e9 + 14 * 3600 < (
        SELECT max(at_s, 2)[2] FROM log_progress WHERE clock = 'line' AND at_s IS NOT NULL)
"""
_SETTLED = (
    *(("stacks", statement) for statement in (_STACK_OWNERS, _STACK_SOURCES, _CHILDREN)),
    *(("device_kernels", statement) for statement in (_KERNEL_OWNERS, _KERNEL_SOURCES)),
    *(("log_events", statement) for statement in (DOWN_NODES, KILLED_PODS)),
    *(("process_ranks", statement) for statement in (_WITHOUT_HOST, PODS_WITHOUT_NODE, _ENDED_PODS, _LOCAL_ENDS)),
    *(("process_ranks", statement) for statement in (LOST_NODES, SILENT_NODES)),
    *(("log_events", _KILLED), ("processes", _OWNERS), ("log_events", _ENDED), ("log_progress", _EARLIER_ENDS)),
    *(("ranks", _NOT_FOUND), ("ranks", _KNOWN_RANKS), ("coverage", _KNOWN_COVERAGE)),
)
"""Statements in their order, each with the table whose rows it settles."""
_ONLY_WITH = {
    _STACK_OWNERS: "stacks WHERE rank IS NULL AND pid IS NOT NULL",
    _STACK_SOURCES: "stacks JOIN sources s USING (source_id) WHERE s.rank IS NULL",
    _CHILDREN: "stacks WHERE is_child IS NULL",
    _OWNERS: "processes WHERE rank IS NULL AND pid IS NOT NULL",
    _WITHOUT_HOST: "process_ranks WHERE host IS NULL",
    _NOT_FOUND: "ranks WHERE state = 'absent'",
    _KILLED: "log_events WHERE kind IN ('oom_kill', 'segfault')",
    _ENDED: "log_events WHERE kind = 'process_exit' AND rank IS NULL AND contains(subject, ' pid=')",
    KILLED_PODS: "log_events WHERE kind = 'pod_killed'",
    DOWN_NODES: "log_events WHERE kind = 'node_down'",
    SILENT_NODES: "log_events WHERE kind IN ('node_down', 'node_expelled')",
}
"""Rows without which a statement does nothing: looking for one takes a tenth of the time of the statement."""
# The kernel stamps its log in seconds since boot; a reading of both clocks on that host turns them into realtime.
_BOOT_TIMES = """
UPDATE {table} SET time_ns = clock.since_ns
    + CAST(1e9 * CAST(regexp_extract(text, '^(?:<[0-9]+>)?\\[ *([0-9]+\\.[0-9]{{6}})\\]', 1) AS DOUBLE) AS BIGINT)
FROM (
    SELECT host, arg_min(realtime_ns - monotonic_ns, coalesce(bound_ns, 0)) AS since_ns FROM clocks
    WHERE reference IS NULL AND realtime_ns IS NOT NULL AND monotonic_ns IS NOT NULL GROUP BY host
) clock
WHERE {table}.time_ns IS NULL AND {table}.host = clock.host
    AND {table}.source_id IN (SELECT source_id FROM sources WHERE kind = 'kernel_log')
    AND regexp_matches(text, '^(?:<[0-9]+>)?\\[ *[0-9]+\\.[0-9]{{6}}\\]')
"""
_IGNORED = "SELECT 1 FROM sources WHERE status = 'ignored' LIMIT 1"
# A file of a rank that cannot be used is a gap somebody should know of, a photograph beside the dumps is not; where nothing at
# all was understood, every file is worth a word.
_UNUSED = """
INSERT INTO ingest_warnings SELECT source_id, path, NULL, 'not used: ' || reason FROM sources
WHERE status = 'ignored'
    AND reason IN ('empty', 'no ingester for this format', 'text of no known form', 'source code of a program',
        'instructions that quote messages')
    AND (rank IS NOT NULL OR NOT EXISTS (SELECT 1 FROM sources WHERE status IN ('ok', 'partial')))
"""
# What people saved in words may be what they want to have looked at; a bundle's own books are not, nor is what stands around
# the parts of a text that were read.
_UNREAD = r"""
INSERT INTO ingest_warnings
SELECT NULL, NULL, NULL, 'not read: ' || count(*) || ' text files of no known form, e.g. '
    || array_to_string(list(path ORDER BY path)[1:8], ', ')
FROM sources WHERE status = 'ignored' AND reason = 'text of no known form'
    AND NOT regexp_matches(path, '(^|/)(SHA256SUMS|redactions\.json)$')
    AND path NOT IN (
        SELECT array_to_string(words[1:last], '/') FROM (
            SELECT words, unnest(range(1, len(words) + 1)) AS last
            FROM (SELECT string_split(path, '/') AS words FROM sources WHERE status IN ('ok', 'partial'))))
    AND source_id NOT IN (SELECT source_id FROM ingest_warnings WHERE source_id IS NOT NULL) HAVING count(*) > 0
"""
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


def settle_case(connection: Connection, artefacts: Artefacts) -> None:
    """Number repeated captures, tell children from ranks, drop summaries of what is there in full, date kernel messages."""
    if connection.execute(_IGNORED).fetchall():
        connection.execute(f"{_UNUSED}; {_UNREAD}")
    forget_numbers_of_looks(connection)
    leave_out_other_runs(connection)
    leave_out_former_tracked_runs(connection, artefacts)
    leave_out_former_logs(connection)
    set_old_events_aside(connection)
    number_dumps(connection, artefacts)
    add_processes(connection, artefacts)
    forget_refuted_numbers(connection)
    name_owners(connection)
    name_local_ranks(connection, artefacts)
    name_numbered_logs(connection)
    complete_nodes(connection)
    name_stacks_beside_ranks(connection)
    guess_local_ranks(connection)
    number_by_start(connection)
    filled = filled_tables(connection)
    for table, statement in _SETTLED:
        if table in filled and _has_work(connection, statement):
            connection.execute(statement)
    number_stacks(connection, artefacts)
    number_reports(connection, artefacts)
    mark_the_one_behind(connection, artefacts)
    add_tails(connection, artefacts)
    for table in filled & {"log_events", "device_events"} if "clocks" in filled else ():
        connection.execute(_BOOT_TIMES.format(table=table))


def _has_work(connection: Connection, statement: str) -> bool:
    wanted = _ONLY_WITH.get(statement)
    return wanted is None or bool(connection.execute(f"SELECT 1 FROM {wanted} LIMIT 1").fetchall())


def add_processes(connection: Connection, artefacts: Artefacts) -> None:
    """Fill `ranks` from dumps that are called by host and process, where stacks of such a process are of no known rank."""
    nameless = {pid for (pid,) in connection.execute(_NAMELESS_STACKS).fetchall()}
    if nameless:
        dumps = connection.execute(_CALLED_BY_PROCESS).fetchall()
        rows = [(source_id, rank, host, artefacts[source_id].pid) for source_id, rank, host in dumps]
        insert_rows(connection, "ranks", "source_id rank host pid", [row for row in rows if row[3] in nameless])


def add_tails(connection: Connection, artefacts: Mapping[int, Artefact]) -> None:
    """Fill `log_tails` from logs that are of one rank."""
    rows: list[tuple[object, ...]] = []
    for source_id, rank in connection.execute(_LOGS).fetchall():
        artefact = artefacts[source_id]
        if artefact.stored_bytes <= MOST_COMPRESSED or not artefact.path.endswith(COMPRESSED_SUFFIXES):
            found = [line for line in last_lines(artefact, LINES) if not line.endswith(_TRACEBACK)]
            rows += [(source_id, rank, place, text[:MOST_TEXT]) for place, text in enumerate(found)]
    insert_rows(connection, "log_tails", "source_id rank place text", rows)
