"""Where to look first by what launchers and schedulers say of one task, process, node or pod of which no rank is known."""

from __future__ import annotations

import re
from collections.abc import Iterator

from duckdb import DuckDBPyConnection

from forensics.case.database import only_row, rows_of
from forensics.rules.reductions.logs.log_evidence import OF_THE_JOB
from forensics.rules.reductions.text.evidence_text import counted

# Tasks that a signal ended which no peer and no launcher sends in good order; several in one line have no order. What exits
# with a code may be the launcher of ranks that tell more.
_TASKS = r"""
SELECT subject, min(source) FROM logged_event
WHERE kind = 'process_exit' AND regexp_matches(subject, '^task=\S+ host=\S+ ') AND NOT after_cancel
    AND regexp_matches(subject, ' (Killed|Out Of Memory|Segmentation fault|Bus error|Illegal instruction)')
GROUP BY subject ORDER BY subject
"""
_TASK = re.compile(r"task=(?P<task>\d{1,7}) host=(?P<host>\S+) (?P<how>.+)")
_FOR_MEMORY = "Out Of Memory"
_NOT_LAUNCHED = "SELECT subject, min(source) FROM logged_event WHERE kind = 'launch_failed' GROUP BY subject ORDER BY subject"
# The task that ended by a code of its own where srun then ended others, and nothing tells of ranks.
_EXITED = """
SELECT subject, min(source) FROM logged_event
WHERE kind = 'process_exit' AND regexp_matches(subject, '^task=\\d+ host=\\S+ Exited with exit code') AND NOT after_cancel
    AND NOT EXISTS (SELECT 1 FROM log_events WHERE rank IS NOT NULL)
    AND EXISTS (SELECT 1 FROM log_events WHERE regexp_matches(subject, '^task=\\S+ host=\\S+ (Terminated|Killed)'))
GROUP BY subject ORDER BY subject
"""
# The process that MPICH and its kin, or msrun of MindSpore, saw end; one that was asked to end did so for another one.
_BY_PROCESS = r"""
SELECT regexp_extract(subject, ' pid=(\d+)', 1), regexp_extract(subject, ' host=(\S+)', 1),
    regexp_extract(subject, '^exitcode=(-?\d+)', 1), min(source) FROM logged_event
WHERE kind = 'process_exit' AND rank IS NULL AND NOT after_cancel
    AND regexp_matches(subject, '^exitcode=(-?[1-9]\d*|unknown) pid=\d+ (host=\S+|time=list) by=mpi')
    AND NOT regexp_matches(subject, '^exitcode=(-15|15|143) ')
GROUP BY ALL ORDER BY ALL
"""
# Processes by their number on a node, of a launcher that does not say of which node.
_LOCAL = r"""
SELECT regexp_extract(subject, ' local_rank=(\d+)', 1), regexp_extract(subject, '^exitcode=(-?\d+)', 1), min(source)
FROM logged_event WHERE kind = 'process_exit' AND rank IS NULL AND NOT after_cancel
    AND regexp_matches(subject, '^exitcode=-?[1-9]\d* local_rank=\d+')
GROUP BY ALL ORDER BY ALL
"""
# The process of Elastic Horovod that its launcher saw end first, by its number on its host.
_SLOTS = r"""
SELECT regexp_extract(subject, ' slot=(\S+)', 1), regexp_extract(subject, '^exitcode=(-?\d+)', 1), min(source)
FROM logged_event WHERE kind = 'process_exit' AND contains(subject, ' slot=') AND NOT after_cancel GROUP BY ALL ORDER BY ALL
"""
_OF_TPUS = "SELECT subject, min(source) FROM logged_event WHERE kind = 'worker_failed' GROUP BY subject ORDER BY subject"
# Processes that a coordinator lost while nothing went on below, and the task of a barrier of Spark that failed: without one
# Spark runs what an executor had anew.
_LOST = f"""
SELECT subject, min(source) FROM logged_event WHERE kind = 'process_lost' AND {OF_THE_JOB}
    AND (subject NOT LIKE 'executor %' OR EXISTS (SELECT 1 FROM log_events WHERE kind = 'barrier_task_failed'))
GROUP BY subject ORDER BY subject
"""
_BARRIER_TASK = """
SELECT subject, min(source) FROM logged_event WHERE kind = 'barrier_task_failed' GROUP BY subject ORDER BY subject
"""
# What peers that use MPICH lost, by the rank that they lost.
_LOST_BY_MPI = """
SELECT subject, min(source) FROM logged_event WHERE kind = 'rank_lost' AND NOT after_cancel GROUP BY subject ORDER BY subject
"""
# Nodes that Kubernetes finds not ready: of those with pods of the job, where a table shows these.
_NOT_READY = """
SELECT subject, min(source) FROM logged_event WHERE kind = 'node_not_ready' AND (
    subject IN (SELECT value FROM job_config WHERE key = 'pod.node')
    OR NOT EXISTS (SELECT 1 FROM job_config WHERE key = 'pod.node'))
GROUP BY subject ORDER BY subject
"""
# Numbers that processes say they were given, as many as there are ranks: one of them twice, and another one to nobody.
_TAKEN = r"""
WITH taken AS (
    SELECT CAST(regexp_extract(subject, '^rank=(\d+)', 1) AS INTEGER) AS number,
        CAST(regexp_extract(subject, ' of=(\d+)$', 1) AS INTEGER) AS size, source
    FROM logged_event WHERE kind = 'rank_taken')
SELECT arg_max(number, often), max(often), max(source), min(size) FROM (
    SELECT number, min(size) AS size, count(*) AS often, max(source) AS source FROM taken GROUP BY number)
HAVING sum(often) = min(size) AND min(size) = max(size) AND count(*) < min(size) AND count(*) FILTER (often > 1) = 1
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
# Virtual machines that their cloud took away, of those of the job where these are known.
_TAKEN_AWAY = rf"""
SELECT regexp_extract(subject, '^(\S+)', 1) AS node, min(regexp_extract(subject, ' (\w+)$', 1)), min(source) FROM logged_event
WHERE kind = 'node_taken' AND {_NOT_OLD} GROUP BY node
HAVING node IN ({_OF_JOB}) OR NOT EXISTS ({_OF_JOB}) ORDER BY node
"""
_CONTAINER = """
SELECT subject, min(source) FROM logged_event WHERE kind = 'container_failed' AND NOT after_cancel GROUP BY ALL ORDER BY ALL
"""
_BY_SSH = f"""
SELECT subject, min(source) FROM logged_event WHERE kind = 'ssh_failed' AND NOT after_cancel AND {OF_THE_JOB}
GROUP BY subject ORDER BY subject
"""
# Containers that Docker Compose saw killed before another one failed, of which nothing shows the rank.
_CONTAINERS = rf"""
SELECT regexp_extract(subject, ' service=(\S+)', 1), regexp_extract(subject, '^exitcode=(-?\d+)', 1), min(source)
FROM logged_event WHERE kind = 'process_exit' AND rank IS NULL AND contains(subject, ' service=') AND NOT after_cancel
    AND {OF_THE_JOB}
GROUP BY ALL ORDER BY ALL
"""
_PODS = r"""
SELECT regexp_extract(subject, '^pod=(\S+)', 1), regexp_extract(subject, ' state=(\S+)', 1),
    regexp_extract(subject, ' running=(\d+)', 1), min(source) FROM logged_event
WHERE kind = 'pod_not_running' GROUP BY ALL ORDER BY ALL
"""


def killed_task(connection: DuckDBPyConnection) -> Iterator[str]:
    """One task; on its host it may be one rank or the launcher of several."""
    tasks = rows_of(connection, "log_events", _TASKS, kinds=("process_exit",))
    if len(tasks) == 1 and (task := _TASK.match(str(tasks[0][0]))):
        of = f"task {task['task']} of srun on {task['host']} was, one rank or the launcher of several"
        how = "it was killed for its memory" if task["how"].startswith(_FOR_MEMORY) else f"srun saw it end ({task['how']})"
        yield f"what {of}: {how} ({tasks[0][1]})"


def launcher_leads(connection: DuckDBPyConnection) -> Iterator[str]:
    """Each a sentence that says what to get; where several of a kind ended, none of them is known to be the first."""
    yield from _not_launched(connection)
    yield from _no_container(connection)
    yield from _not_reached_by_ssh(connection)
    yield from _by_process(connection)
    yield from _by_slot(connection)
    yield from _of_session(connection)
    yield from _lost_by_mpi(connection)
    yield from _by_local_number(connection)
    yield from _container(connection)
    yield from _pod_that_does_not_run(connection)
    yield from _node_that_is_not_ready(connection)
    yield from _dead_node(connection)
    yield from _down_node(connection)
    yield from _taken_away(connection)
    yield from _node_in_trouble(connection)
    yield from _exited_task(connection)
    yield from _taken_twice(connection)


def _not_launched(connection: DuckDBPyConnection) -> Iterator[str]:
    """One node; what keeps tasks from starting on several is of the job or of the cluster."""
    if row := only_row(connection, "log_events", _NOT_LAUNCHED, kinds=("launch_failed",)):
        node, source = row
        yield f"the log of slurmd, the clock and munge of {node}: srun could start no task there ({source})"


def _no_container(connection: DuckDBPyConnection) -> Iterator[str]:
    """One node; what keeps containers from starting on several is of the image or of its options."""
    if row := only_row(connection, "log_events", _CONTAINER, kinds=("container_failed",)):
        node, source = row
        yield f"GPU driver, disk and container runtime of {node}: pyxis could start no container there ({source})"


def _not_reached_by_ssh(connection: DuckDBPyConnection) -> Iterator[str]:
    """One host; whoever reaches none has no key, or no network, of their own."""
    if row := only_row(connection, "log_events", _BY_SSH, kinds=("ssh_failed",)):
        host, source = row
        yield f"whether {host} is up, its sshd and the keys there: its part of the job could not be started by ssh ({source})"


def _exited_task(connection: DuckDBPyConnection) -> Iterator[str]:
    row = only_row(connection, "log_events", _EXITED, kinds=("process_exit",))
    if row and (task := _TASK.match(str(row[0]))):
        how = f"srun saw it end first ({task['how'].lower()}; {row[1]}), and ended the others"
        yield f"what task {task['task']} of srun on {task['host']} wrote, and that host: {how}"


def _by_process(connection: DuckDBPyConnection) -> Iterator[str]:
    if row := only_row(connection, "log_events", _BY_PROCESS, kinds=("process_exit",)):
        pid, host, code, source = row
        where, how = f" on {host}" if host else "", f"exit code {code}; " if code else ""
        yield f"the log of process {pid}{where} and the kernel log of its host: its launcher saw it end ({how}{source})"


def _by_slot(connection: DuckDBPyConnection) -> Iterator[str]:
    if row := only_row(connection, "log_events", _SLOTS, kinds=("process_exit",)):
        slot, code, source = row
        host, _, number = slot.removesuffix("]").partition("[")
        which = f"process {number} of Horovod on {host}"
        yield f"the log of {which} and the kernel log of its host: it was the first to end (exit code {code}; {source})"


def _of_session(connection: DuckDBPyConnection) -> Iterator[str]:
    """One worker of TPUs; the others of its session fail with it."""
    if row := only_row(connection, "log_events", _OF_TPUS, kinds=("worker_failed",)):
        worker, source = row
        yield f"the log and chips of worker {worker}: the master of the session of TPUs got an error from it alone ({source})"


def _lost_by_mpi(connection: DuckDBPyConnection) -> Iterator[str]:
    """One rank; where peers lose several, an abort may have taken all of them down."""
    if row := only_row(connection, "log_events", _LOST_BY_MPI, kinds=("rank_lost",)):
        rank, source = row
        yield f"log, exit code and kernel log of rank {rank}: a peer lost its connection with it alone ({source})"


def lost_by_coordinator(connection: DuckDBPyConnection) -> Iterator[str]:
    """One process, or one task of a barrier."""
    if row := only_row(connection, "log_events", _LOST, kinds=("process_lost",)):
        who, source = row
        yield f"log, exit code and kernel log of {who}: it alone was found gone or silent ({source})"
    if row := only_row(connection, "log_events", _BARRIER_TASK, kinds=("barrier_task_failed",)):
        task, source = row
        yield f"the log of Spark's barrier task {task}, and which rank it is: its failure ended the stage ({source})"


def _by_local_number(connection: DuckDBPyConnection) -> Iterator[str]:
    if row := only_row(connection, "log_events", _LOCAL, kinds=("process_exit",)):
        number, code, source = row
        what = f"its launcher saw it fail (exit code {code}; {source})"
        yield f"the end of the log of local rank {number}, and which node it is on: {what}"


def _container(connection: DuckDBPyConnection) -> Iterator[str]:
    """One container, program or unit; of several that were killed somebody may have killed all."""
    if row := only_row(connection, "log_events", _CONTAINERS, kinds=("process_exit",)):
        name, code, source = row
        how = f"a signal ended it before any other failed (exit code {code}; {source})"
        yield f"the log of {name}, the kernel log and memory of its host, and which rank ran there: {how}"


def _pod_that_does_not_run(connection: DuckDBPyConnection) -> Iterator[str]:
    """One pod beside running pods of its job."""
    if row := only_row(connection, "log_events", _PODS, kinds=("pod_not_running",)):
        pod, state, running, source = row
        others = f"{counted(int(running), 'other pod')} of its job run"
        yield f"log (`kubectl logs --previous`) and events of pod {pod}: its state is {state} ({source}), {others}"


def _node_that_is_not_ready(connection: DuckDBPyConnection) -> Iterator[str]:
    """One node; of several some may be of other jobs."""
    if row := only_row(connection, "log_events", _NOT_READY, kinds=("node_not_ready",)):
        node, source = row
        yield f"console and kernel log of node {node}, and which pods of the job are on it: it is not ready ({source})"


def _node_in_trouble(connection: DuckDBPyConnection) -> Iterator[str]:
    """One node whose own conditions tell of its devices."""
    if row := only_row(connection, "log_events", _CONDITIONS, kinds=("node_condition",)):
        node, condition, source = row
        yield f"devices and kernel log of node {node}, and which ranks ran there: its condition {condition} is bad ({source})"


def _dead_node(connection: DuckDBPyConnection) -> Iterator[str]:
    """One node; the list may hold nodes that former jobs lost."""
    if row := only_row(connection, "log_events", _DEAD, kinds=("node_dead",)):
        node, source = row
        yield f"console and kernel log of node {node}, and which ranks ran there: its cluster found it dead ({source})"


def _down_node(connection: DuckDBPyConnection) -> Iterator[str]:
    """One node of the job; of several the network or the scheduler may have lost all."""
    if row := only_row(connection, "log_events", _DOWN, kinds=("node_down",)):
        node, source = row
        yield f"console and kernel log of node {node}, and which ranks ran there: its scheduler lists it as down ({source})"


def _taken_away(connection: DuckDBPyConnection) -> Iterator[str]:
    """One machine; of several that were taken nothing shows which was first."""
    if row := only_row(connection, "log_events", _TAKEN_AWAY, kinds=("node_taken",)):
        node, how, source = row
        yield f"whether {node} is back, and which ranks ran there: its cloud reports the event {how} ({source})"


def _taken_twice(connection: DuckDBPyConnection) -> Iterator[str]:
    """Whoever waits for the number that nobody has waits for ever; which of the processes is right nothing shows."""
    if row := only_row(connection, "log_events", _TAKEN, kinds=("rank_taken",)):
        number, often, source, size = row
        what = f"{often} of {size} processes say that they are rank {number} ({source}), so that another rank has none"
        yield f"the ranks that the launcher gives (RANK, SLURM_PROCID, NODE_RANK): {what}"
