"""Where to look first when a library says whom it waited for, in numbers that prove nothing about a rank.

JAX lists the tasks that did not come to a barrier, and not always how many there are; HCCL numbers ranks within a communicator,
DeepEP within an exchange.
"""

from __future__ import annotations

from collections.abc import Iterator

from duckdb import DuckDBPyConnection

from forensics.case.database import only_row, rows_of
from forensics.rules.reductions.logs.log_evidence import TIMEOUTS

# Tasks that did not come to a barrier, of which nothing says whether they are few.
_NOT_JOINED = r"""
SELECT regexp_extract(subject, 'tasks=([0-9,]+)', 1), regexp_extract(subject, ' barrier=(.+)', 1), min(source)
FROM logged_event WHERE kind = 'not_joined' GROUP BY ALL ORDER BY ALL
"""
# Numbers of the ranks whom others waited for, within their communicator.
_HCCL = r"""
SELECT regexp_extract(subject, ' of rank (\d+)$', 1) AS remote, count(DISTINCT rank), min(rank), min(source)
FROM logged_event WHERE kind = 'transfer_timeout' AND regexp_matches(subject, '^HCCL: notify of rank \d') AND NOT after_cancel
GROUP BY remote ORDER BY remote
"""
_PLACED = "SELECT 1 FROM log_positions WHERE origin = 'hccl' LIMIT 1"
# From whom receivers of an exchange of experts got nothing: a host without a number is the receiver's own.
_DEEPEP = r"""
SELECT DISTINCT regexp_extract(subject, '^DeepEP: (host=\d+ gpu=\d+) ', 1),
       coalesce(nullif(regexp_extract(subject, ' from=(\d+):', 1), ''), regexp_extract(subject, 'host=(\d+)', 1)),
       regexp_extract(subject, ' from=\d*:(\d+)$', 1), min(source) OVER ()
FROM logged_event WHERE kind = 'transfer_timeout' AND starts_with(subject, 'DeepEP: ') ORDER BY ALL
"""
# The rank that lacks what all others wrote last, where nothing went wrong in that log and nothing went on below.
_NOT_REACHED = """
SELECT rank, regexp_extract(subject, '^(\\d+ others) wrote', 1), regexp_extract(subject, ' wrote: (.+)', 1), source
FROM logged_event l WHERE kind = 'not_reached' AND NOT EXISTS (
    SELECT 1 FROM log_events e WHERE e.source_id = l.source_id
        AND e.kind NOT IN ('not_reached', 'roll_lacks', 'bare_error', 'several_nodes'))
AND (SELECT count(DISTINCT step) FROM log_progress p WHERE p.source_id = l.source_id AND p.locator > l.locator) < 2
ORDER BY ALL
"""
# The few ranks in a row that lack what all others wrote once, in a log that says that the job stood still.
_ROLLS = rf"""
SELECT regexp_extract(subject, '^ranks=(\S+)', 1), regexp_extract(subject, ' others=(\d+)', 1),
    regexp_extract(subject, ' wrote: (.+)', 1), source
FROM logged_event l WHERE kind = 'roll_lacks' AND EXISTS (
    SELECT 1 FROM log_events e WHERE e.source_id = l.source_id
        AND (e.kind IN {TIMEOUTS} OR (e.kind = 'job_cancelled' AND contains(upper(e.subject), 'TIME LIMIT'))))
AND NOT EXISTS (SELECT 1 FROM log_progress p WHERE p.source_id = l.source_id AND p.locator > l.locator)
ORDER BY ALL
"""
# Hosts whose kernels say that a server of files gave them up.
_EVICTED = """
SELECT coalesce(host, ''), min(subject), min(source) FROM logged_event WHERE kind = 'client_evicted' GROUP BY host ORDER BY host
"""
# Processes that kept a core of their host for long, by host.
_LOCKED = r"""
SELECT coalesce(host, ''), min(subject), max(try_cast(regexp_extract(text, 'stuck for (\d+)', 1) AS INTEGER)), min(source)
FROM logged_event WHERE kind = 'soft_lockup' GROUP BY host ORDER BY host
"""
# Ranks whose processes the kernel found blocked, in the log of the job or in its own, where no steps follow.
_BLOCKED = r"""
SELECT p.rank, p.pid, max(try_cast(regexp_extract(l.text, 'blocked for more than (\d+)', 1) AS INTEGER)), min(l.source)
FROM logged_event l JOIN process_ranks p ON p.rank IS NOT NULL AND coalesce(p.host = l.host, true)
    AND p.pid = try_cast(regexp_extract(l.subject, '(\d+)$', 1) AS BIGINT)
WHERE l.kind IN ('task_blocked', 'hung_task') AND NOT EXISTS (
    SELECT 1 FROM log_progress s WHERE s.source_id = l.source_id AND s.locator > l.locator)
GROUP BY p.rank, p.pid ORDER BY ALL
"""

# The rank that a table of steps shows behind all others.
_BEHIND = r"""
SELECT regexp_extract(subject, '^rank=(\d+)', 1), regexp_extract(subject, ' step=(\d+)', 1),
    regexp_extract(subject, ' others=(\d+)', 1), regexp_extract(subject, ' count=(\d+)', 1), min(source)
FROM logged_event WHERE kind = 'rank_behind' GROUP BY ALL ORDER BY ALL
"""
# Of processes of unknown ranks that are called alike, the one in a state in its last sample: D sleeps in the kernel, T is
# stopped.
_ALONE = """
WITH seen AS (
    SELECT p.source_id, p.pid, p.name, arg_max(p.state, p.sample) AS state, arg_max(p.wchan, p.sample) AS wchan
    FROM processes p WHERE p.rank IS NULL AND p.pid = p.thread AND p.state IS NOT NULL
        AND regexp_matches(p.name, '^(python|pt_main|torchrun|deepspeed|accelerate|ray::|VLLM|sglang)')
        AND (p.pid IN (SELECT pid FROM process_ranks r WHERE r.source_id = p.source_id AND r.local_rank IS NOT NULL)
            OR NOT EXISTS (SELECT 1 FROM process_ranks r WHERE r.source_id = p.source_id AND r.local_rank IS NOT NULL))
    GROUP BY ALL)
SELECT s.path, x.name, count(*) AS alike, min(x.pid) FILTER (x.state = '{0}'), min(x.wchan) FILTER (x.state = '{0}')
FROM seen x JOIN sources s USING (source_id) GROUP BY s.path, x.name
HAVING count(*) FILTER (x.state = '{0}') = 1 AND count(*) >= 4 ORDER BY ALL
"""

# The one rank whose process waits for storage in the kernel, by the channel of its last sample.
_FOR_STORAGE = """
WITH seen AS (
    SELECT p.rank, arg_max(p.pid, p.sample) AS pid, arg_max(p.wchan, p.sample) AS wchan, min(s.path) AS path
    FROM processes p JOIN sources s USING (source_id)
    WHERE p.rank IS NOT NULL AND p.pid = p.thread AND p.wchan IS NOT NULL AND NOT coalesce(p.is_child, false) GROUP BY p.rank
), waiting AS (SELECT * FROM seen WHERE regexp_matches(wchan,
    '^(ll_|.*(nfs|rpc_wait|fuse|ptlrpc|cl_sync|osc_|gpfs|mmfs|jbd2|io_schedule|folio_wait|wait_on_page))'))
SELECT rank, pid, wchan, path, (SELECT count(*) - 1 FROM seen) FROM waiting
WHERE (SELECT count(*) FROM waiting) = 1 AND (SELECT count(*) FROM seen) >= 3
"""


def awaited_leads(connection: DuckDBPyConnection) -> Iterator[str]:
    """Each a sentence that says what to get."""
    yield from _not_joined(connection)
    yield from _of_hccl(connection)
    yield from _of_experts(connection)
    yield from _not_reached(connection)
    yield from _lacks_in_roll(connection)
    yield from _evicted_client(connection)
    yield from _locked_up(connection)
    yield from _blocked(connection)
    yield from _asleep(connection)
    yield from _stopped(connection)
    yield from _for_storage(connection)
    yield from _behind(connection)


def _not_joined(connection: DuckDBPyConnection) -> Iterator[str]:
    if row := only_row(connection, "log_events", _NOT_JOINED, kinds=("not_joined",)):
        tasks, barrier, source = row
        whose = f"task{'s' if ',' in tasks else ''} {tasks}"
        yield f"whether {whose} of JAX were started, and their logs: they did not come to the barrier {barrier} ({source})"


def _of_hccl(connection: DuckDBPyConnection) -> Iterator[str]:
    """The one number that somebody waited for; where several are waited for, they wait for each other as likely."""
    found = rows_of(connection, "log_events", _HCCL, kinds=("transfer_timeout",))
    if len(found) == 1 and not rows_of(connection, "log_positions", _PLACED):
        ((remote, waiting, rank, source),) = found
        who = f"rank {rank}" if waiting == 1 else f"{waiting} ranks" if waiting else "somebody"
        of = f"log and device of whoever is number {remote} of the communicator in which {who} gave up waiting"
        yield f"{of} ({source}): numbers of HCCL are those of the communicator"


def _of_experts(connection: DuckDBPyConnection) -> Iterator[str]:
    """The one GPU from which several others got nothing."""
    waits = rows_of(connection, "log_events", _DEEPEP, kinds=("transfer_timeout",))
    senders = {(host, gpu) for _, host, gpu, _ in waits}
    if len(senders) == 1 and len(waits) > 1:
        ((host, gpu),) = senders
        where = f"the rank on GPU {gpu} of the host that the exchange numbers {host}"
        yield f"log, stack and GPU of {where}: {len(waits)} others got nothing from it in DeepEP ({waits[0][3]})"


def _not_reached(connection: DuckDBPyConnection) -> Iterator[str]:
    if row := only_row(connection, "log_events", _NOT_REACHED, kinds=("not_reached",)):
        rank, others, form, source = row
        whose = f"rank {rank}" if rank is not None else "whoever wrote that log"
        yield f'stack and log of {whose}: its last line is {source}, and the {others} wrote "{form}" since'


def _lacks_in_roll(connection: DuckDBPyConnection) -> Iterator[str]:
    """Those of one log; what was filtered may lack them too."""
    if row := only_row(connection, "log_events", _ROLLS, kinds=("roll_lacks",)):
        ranks, others, form, source = row
        which = f"ranks {ranks}" if "-" in ranks else f"rank {ranks}"
        yield f'logs, stacks and host of {which}: the {others} others wrote "{form}" ({source}), and they did not'


def _evicted_client(connection: DuckDBPyConnection) -> Iterator[str]:
    """One host; a server that gives up several has trouble of its own."""
    if row := only_row(connection, "log_events", _EVICTED, kinds=("client_evicted",)):
        host, server, source = row
        where = host or "the host with this kernel log"
        yield f"the files and ranks of {where}: {server}, a server of files, gave it up ({source}), and what it wrote is lost"


def _locked_up(connection: DuckDBPyConnection) -> Iterator[str]:
    """One host; what locks up all of them is of their kernel."""
    if row := only_row(connection, "log_events", _LOCKED, kinds=("soft_lockup",)):
        host, pid, seconds, source = row
        where = host or "the host with this kernel log"
        how = f"process {pid} kept a core for {seconds} s ({source})"
        yield f"kernel log and cores of {where}, and which rank is process {pid}: {how}"


def _blocked(connection: DuckDBPyConnection) -> Iterator[str]:
    """One rank; a storage that does not answer blocks all."""
    if row := only_row(connection, "log_events", _BLOCKED, kinds=("task_blocked", "hung_task")):
        rank, pid, seconds, source = row
        how = f"the kernel found it blocked for more than {seconds} s ({source})"
        yield f"what process {pid} of rank {rank} waits for in the kernel (`cat /proc/{pid}/stack`), and its files: {how}"


def _asleep(connection: DuckDBPyConnection) -> Iterator[str]:
    """One process of those of a table; a moment in the kernel is nothing, so it is to be looked at again."""
    found = rows_of(connection, "processes", _ALONE.format("D"))
    if len(found) == 1:
        ((path, name, alike, pid, wchan),) = found
        where = f" at {wchan}" if wchan else ""
        how = f"of {alike} processes called {name} it alone sleeps in the kernel{where} ({path})"
        yield f"what process {pid} waits for in the kernel (`cat /proc/{pid}/stack`), and its files: {how}"


def _stopped(connection: DuckDBPyConnection) -> Iterator[str]:
    """One process of those of a table; somebody may have stopped it to look at it, and gone."""
    found = rows_of(connection, "processes", _ALONE.format("T"))
    if len(found) == 1:
        ((path, name, alike, pid, _),) = found
        how = f"of {alike} processes called {name} it alone is stopped ({path})"
        yield f"who stopped process {pid} (SIGSTOP, Ctrl-Z, a debugger), and `kill -CONT {pid}` if nobody needs it: {how}"


def _behind(connection: DuckDBPyConnection) -> Iterator[str]:
    """One rank; who is behind may wait for somebody else."""
    if row := only_row(connection, "log_events", _BEHIND, kinds=("rank_behind",)):
        rank, step, others, count, source = row
        yield f"stack and log of rank {rank}: a table has it at step {step}, the {count} others at {others} ({source})"


def _for_storage(connection: DuckDBPyConnection) -> Iterator[str]:
    if found := rows_of(connection, "processes", _FOR_STORAGE):
        ((rank, pid, wchan, path, others),) = found
        how = f"it alone waits for storage there, at {wchan} ({path}), {others} others do not"
        yield f"what process {pid} of rank {rank} waits for in the kernel, and its files: {how}"
