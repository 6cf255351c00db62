"""Which rank each process is and of which host each file, from what any file of the case tells.

Loose files name a process by its number, a host by a prompt or in their own names. What launchers, commands, environments and
NCCL say of processes stands in `process_ranks`; here it is completed by the order of nodes and by NCCL's communicator of all
ranks, and files that only a name ties to a host get that host.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterator

from forensics.case.database import Connection, has_rows, insert_rows
from forensics.case.named_hosts import name_hosts

NO_RANK = "no rank is known"
"""How the warning of a file begins whose rank nothing tells; it is taken back where the rank turns out to be known."""
# The number in the largest communicator is the rank, where it is one communicator and nothing states another size of the job.
_BY_NCCL = """
INSERT INTO process_ranks (source_id, host, pid, rank, method)
WITH numbered AS (
    SELECT min(source_id) AS source_id, host, pid, group_rank, size, min(communicator) AS communicator
    FROM log_positions WHERE origin = 'nccl' AND host IS NOT NULL AND pid IS NOT NULL AND group_rank IS NOT NULL
        AND size = (SELECT max(size) FROM log_positions WHERE origin = 'nccl')
        AND coalesce(rank, group_rank) = group_rank
    GROUP BY host, pid, group_rank, size
)
SELECT source_id, host, pid, group_rank, 'nccl' FROM numbered
WHERE (SELECT count(DISTINCT communicator) = 1 AND count(*) = count(DISTINCT group_rank)
              AND count(*) = count(DISTINCT (host, pid)) FROM numbered)
    AND NOT EXISTS (SELECT 1 FROM job_config c WHERE c.key IN ('world_size', 'log.world_size')
        AND try_cast(c.value AS INTEGER) > numbered.size)
"""
_NUMBERED_BY_NCCL = "SELECT 1 FROM log_positions WHERE origin = 'nccl' AND pid IS NOT NULL LIMIT 1"
# Numbers on the first node are the ranks, however many it has.
_BY_NODE = """
UPDATE process_ranks SET rank = coalesce(node * per_node, 0) + local_rank
WHERE rank IS NULL AND (node = 0 OR node IS NOT NULL AND per_node > local_rank) AND coalesce(per_node > local_rank, true)
"""
# A list of hosts with their slots, in the order of the nodes.
_BY_HOSTS = """
UPDATE process_ranks SET rank = before.ranks + process_ranks.local_rank FROM (
    SELECT host, slots, coalesce(sum(slots) OVER (ORDER BY node ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING), 0) AS ranks
    FROM nodes WHERE slots IS NOT NULL AND (SELECT count(DISTINCT source_id) FROM nodes WHERE slots IS NOT NULL) = 1
) before
WHERE process_ranks.rank IS NULL AND process_ranks.host = before.host
    AND process_ranks.local_rank < before.slots
"""
# Numbers on a host are the ranks where one table holds a process for each rank of the job.
_BY_SIZE = """
UPDATE process_ranks SET rank = local_rank WHERE rank IS NULL AND source_id IN (
    SELECT source_id FROM process_ranks WHERE local_rank IS NOT NULL AND pid IS NOT NULL GROUP BY source_id
    HAVING count(rank) = 0 AND count(*) = count(DISTINCT local_rank) AND count(*) = max(local_rank) + 1
        AND count(*) = ALL (SELECT try_cast(value AS INTEGER) FROM job_config WHERE key IN ('world_size', 'log.world_size'))
        AND EXISTS (SELECT 1 FROM job_config WHERE key IN ('world_size', 'log.world_size'))
)
"""
_KNOWN_OF_HOSTS = "SELECT host, rank FROM process_ranks WHERE host IS NOT NULL AND rank IS NOT NULL AND pid IS NOT NULL"
_UNKNOWN_OF_HOSTS = """
SELECT k.host, min(k.pid) FROM (
    SELECT k.* REPLACE (coalesce(k.host, s.host) AS host) FROM stacks k JOIN sources s USING (source_id)
) k
WHERE k.rank IS NULL AND k.pid IS NOT NULL AND k.host IS NOT NULL AND k.is_main AND NOT coalesce(k.is_child, false)
    AND NOT EXISTS (SELECT 1 FROM process_ranks p WHERE p.host = k.host AND p.pid = k.pid AND p.rank IS NOT NULL)
GROUP BY k.host HAVING count(DISTINCT k.pid) = 1
"""
_LOGS_OF_NCCL = """
UPDATE sources SET rank = one.rank, rank_method = 'pid' FROM (
    SELECT l.source_id, min(p.rank) AS rank FROM log_positions l JOIN process_ranks p ON p.host = l.host AND p.pid = l.pid
    WHERE l.origin = 'nccl' AND p.rank IS NOT NULL GROUP BY l.source_id
    HAVING count(DISTINCT (l.host, l.pid)) = 1 AND count(DISTINCT p.rank) = 1
) one WHERE sources.source_id = one.source_id AND sources.kind = 'nccl_log' AND sources.rank IS NULL
"""
# A log that speaks of one process, and is called by its rank, is of it, where several logs bear each other out.
_LOGS_OF_PROCESSES = """
SELECT s.source_id, s.path, s.host, TRY_CAST(split_part(c.value, ' ', 1) AS BIGINT),
       TRY_CAST(split_part(c.value, ' ', 2) AS INTEGER)
FROM sources s JOIN job_config c USING (source_id)
WHERE s.kind = 'training_log' AND s.rank IS NULL AND c.key = 'log.process' ORDER BY s.source_id
"""
_OWN_WORLD = "SELECT coalesce(max(try_cast(value AS INTEGER)), 0) FROM job_config WHERE key = 'log.own_world'"
_OWN_RANKS = """
SELECT c.source_id, s.path, CAST(c.value AS INTEGER) FROM job_config c JOIN sources s USING (source_id)
WHERE list_contains($keys, c.key) AND s.kind = 'training_log' AND s.rank IS NULL AND CAST(c.value AS INTEGER) = ALL (
    SELECT rank FROM log_events l WHERE l.source_id = c.source_id AND rank IS NOT NULL
    UNION SELECT rank FROM log_progress p WHERE p.source_id = c.source_id AND rank IS NOT NULL
) ORDER BY s.path
"""
# What a RANK without a LOCAL_RANK counts, as the lines of its own log show it where these name ranks.
_GIVEN = """
SELECT count(DISTINCT own) FILTER (own = rank), count(*) FILTER (own <> rank) FROM (
    SELECT CAST(c.value AS INTEGER) AS own, l.rank FROM job_config c
    JOIN (SELECT source_id, rank FROM log_events UNION SELECT source_id, rank FROM log_progress) l USING (source_id)
    WHERE c.key = 'log.given_rank' AND l.rank IS NOT NULL
)
"""
_LOGS_OF_RUNS = (
    "SELECT source_id, path FROM sources WHERE kind = 'training_log' AND rank IS NULL AND path LIKE '%run-%' ORDER BY path"
)
_RUN = re.compile(r"(?:.*/)?(?:offline-)?run-\d{8}_\d{6}-\w{1,64}(?=/)")
_LEAST_LOGS = 2
# Whose they are is shown by what another process says of them.
_OF_OTHERS = (
    "kind NOT IN ('process_exit', 'several_nodes', 'node_failed', 'task_blocked', 'task_killed', 'pod_killed', "
    "'oom_kill', 'xid', 'job_cancelled')"
)
# One process of a host stands for it, where nothing shows another one.
_ONLY = """
UPDATE stacks SET rank = single.rank FROM sources s, (
    SELECT host, min(rank) AS rank FROM process_ranks WHERE host IS NOT NULL AND pid IS NULL AND rank IS NOT NULL
    GROUP BY host HAVING count(DISTINCT rank) = 1
) single
WHERE stacks.rank IS NULL AND s.source_id = stacks.source_id AND coalesce(stacks.host, s.host) = single.host
    AND NOT coalesce(stacks.is_child, false)
    AND (SELECT count(DISTINCT t.pid) FROM stacks t JOIN sources o USING (source_id)
         WHERE coalesce(t.host, o.host) = single.host AND t.is_main AND NOT coalesce(t.is_child, false)) = 1
"""
_NUMBERS = re.compile(r"(?<!\d)0*(\d{1,7})(?!\d)")
_OF_THE_WRITER = ("log_positions", "log_progress", "log_stage_times", "stacks")
LINES_OF_A_LOG = {"log_events": _OF_OTHERS} | dict.fromkeys(_OF_THE_WRITER, "true")
# The lines of a kernel name no host where a journal does not put one in front.
_OF_KERNEL = """
UPDATE {table} SET host = s.host FROM sources s
WHERE {table}.source_id = s.source_id AND {table}.host IS NULL AND s.kind = 'kernel_log'
"""


# What is known of a node is of the one pod of the job on it.
_ON_NODES = """
UPDATE {table} SET host = alone.pod FROM (
    SELECT value AS node, min(host) AS pod FROM job_config WHERE key = 'pod.node' GROUP BY value HAVING count(DISTINCT host) = 1
) alone WHERE host = alone.node AND EXISTS (SELECT 1 FROM process_ranks p WHERE p.host = alone.pod)
"""


def name_owners(connection: Connection) -> None:
    """Complete `process_ranks`, and what follows from hosts."""
    if connection.execute(_NUMBERED_BY_NCCL).fetchall():
        connection.execute(_BY_NCCL)
        connection.execute(_LOGS_OF_NCCL)
    name_hosts(connection)
    for table in ("log_events", "device_events"):
        if has_rows(connection, table):
            connection.execute(_OF_KERNEL.format(table=table))
            if has_rows(connection, "job_config", ("pod.node",)):
                connection.execute(_ON_NODES.format(table=table))
    if has_rows(connection, "job_config", ("log.process", "log.own_rank", "log.given_rank")):
        _name_logs(connection)
        _name_own_logs(connection)
    if has_rows(connection, "process_ranks"):
        connection.execute(_BY_NODE)
        if has_rows(connection, "nodes"):
            connection.execute(_BY_HOSTS)
        connection.execute(_BY_SIZE)
        if has_rows(connection, "stacks"):
            connection.execute(_ONLY)
            insert_rows(connection, "process_ranks", "host pid rank method", list(_implied(connection)))


def _name_logs(connection: Connection) -> None:
    """Give logs that state their one rank, and have it in their names, that rank; with what their lines tell of nobody else."""
    stated = [
        (source_id, host, pid, rank)
        for source_id, path, host, pid, rank in connection.execute(_LOGS_OF_PROCESSES).fetchall()
        if _NUMBERS.findall(path.rpartition("/")[2]) == [str(rank)]
    ]
    if len({rank for *_, rank in stated}) < max(len(stated), _LEAST_LOGS):
        return
    insert_rows(connection, "process_ranks", "source_id host pid rank method", [(*each, "log") for each in stated])
    for source_id, _, _, rank in stated:
        give_log(connection, source_id, rank)


def _name_own_logs(connection: Connection) -> None:
    """Give logs in which their process states its rank that rank, where several do, each another one; with all logs of a run.

    A RANK given to whatever started in a log counts where two logs at least name that rank, and none another one.
    They must be more than half of the ranks up to the highest, or of the size they state: of two nodes whose logs were cut, or
    where one process of each prints its own, 0 and 8 may remain. A run of wandb is of one process, all it printed included.
    """
    agreeing, others = connection.execute(_GIVEN).fetchall()[0]
    keys = ["log.own_rank", *(["log.given_rank"] if agreeing >= _LEAST_LOGS and not others else [])]
    own = connection.execute(_OWN_RANKS, {"keys": keys}).fetchall()
    ranks = {rank for *_, rank in own}
    ((world,),) = connection.execute(_OWN_WORLD).fetchall()
    if len(ranks) < max(len(own), _LEAST_LOGS) or 2 * len(ranks) <= max(*ranks, world):
        return
    runs = {run[0]: rank for _, path, rank in own if (run := _RUN.match(path))}
    for source_id, _, rank in own:
        give_log(connection, source_id, rank)
    for source_id, path in connection.execute(_LOGS_OF_RUNS).fetchall() if runs else ():
        if (run := _RUN.match(path)) and run[0] in runs:
            give_log(connection, source_id, runs[run[0]])


def give_log(connection: Connection, source_id: int, rank: int, method: str = "content") -> None:
    """Make a log that of one rank, with what its lines tell of nobody else."""
    connection.execute("UPDATE sources SET rank = $2, rank_method = $3 WHERE source_id = $1", [source_id, rank, method])
    connection.execute(f"DELETE FROM ingest_warnings WHERE source_id = $1 AND starts_with(message, '{NO_RANK}')", [source_id])
    for table, chosen in LINES_OF_A_LOG.items():
        if has_rows(connection, table):
            statement = f"UPDATE {table} SET rank = $2 WHERE source_id = $1 AND rank IS NULL AND {chosen}"
            connection.execute(statement, [source_id, rank])


def _implied(connection: Connection) -> Iterator[tuple[object, ...]]:
    """The one process of a host that nothing names, where all others of it have the ranks of the host but one.

    All hosts have as many ranks, in a row; on another one at least all of them are known.
    """
    ranks: dict[str, set[int]] = defaultdict(set)
    for host, rank in connection.execute(_KNOWN_OF_HOSTS).fetchall():
        ranks[host].add(rank)
    each = max(map(len, ranks.values()), default=0)
    blocks = {host: {rank // each for rank in own} for host, own in ranks.items()}
    if each < 2 or any(len(block) > 1 for block in blocks.values()) or len(set(map(frozenset, blocks.values()))) < len(blocks):
        return
    for host, pid in connection.execute(_UNKNOWN_OF_HOSTS).fetchall():
        (block,) = blocks.get(host, {-1})
        missing = {*range(block * each, (block + 1) * each)} - ranks[host]
        if len(missing) == 1 and block >= 0:
            yield host, pid, missing.pop(), "implied"
