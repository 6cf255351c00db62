"""Where to look first by what launchers and schedulers say of one task, process, node or pod of which no rank is known."""

from __future__ import annotations

import re
from collections.abc import Iterator

from duckdb import DuckDBPyConnection

from forensics.case.database import only_row, rows_of
from forensics.rules.leads.nodes import OF_NODES
from forensics.rules.leads.single import Single, single_leads
from forensics.rules.reductions.logs.killed_tasks import JOBS
from forensics.rules.reductions.logs.log_evidence import OF_THE_JOB
from forensics.rules.reductions.text.evidence_text import counted

# Tasks that a signal ended which no peer and no launcher sends in good order; several in one line have no order. What exits
# with a code may be the launcher of ranks that tell more; where one did, srun may have killed all those of another host.
_TASKS = r"""
SELECT subject, min(source) FROM logged_event
WHERE kind = 'process_exit' AND regexp_matches(subject, '^task=\S+ host=\S+ ') AND NOT after_cancel
    AND regexp_matches(subject, ' (Killed|Out Of Memory|Segmentation fault|Bus error|Illegal instruction)')
    AND (regexp_matches(subject, '^task=\d+ ')
        OR NOT EXISTS (SELECT 1 FROM log_events WHERE regexp_matches(subject, '^task=\S+ host=\S+ Exited with')))
GROUP BY subject ORDER BY subject
"""
_TASK = re.compile(r"task=(?P<task>\d{1,7}(?P<more>[-,][\d,-]{1,64})?) host=(?P<host>\S+) (?P<how>.+)")
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
_NO_START = (
    # What keeps tasks from starting on several nodes is of the job or of the cluster.
    Single(
        _NOT_LAUNCHED,
        "launch_failed",
        "the log of slurmd, the clock and munge of {0}: srun could start no task there ({1})",
    ),
    # What keeps containers from starting on several is of the image or of its options.
    Single(
        _CONTAINER,
        "container_failed",
        "GPU driver, disk and container runtime of {0}: pyxis could start no container there ({1})",
    ),
    # Whoever reaches no host has no key, or no network, of their own.
    Single(
        _BY_SSH,
        "ssh_failed",
        "whether {0} is up, its sshd and the keys there: its part of the job could not be started by ssh ({1})",
    ),
)
_OF_PROCESSES = (
    # The others of a session fail with the first.
    Single(
        _OF_TPUS,
        "worker_failed",
        "the log and chips of worker {0}: the master of the session of TPUs got an error from it alone ({1})",
    ),
    # Where peers lose several, an abort may have taken all of them down.
    Single(
        _LOST_BY_MPI,
        "rank_lost",
        "log, exit code and kernel log of rank {0}: a peer lost its connection with it alone ({1})",
    ),
    Single(
        _LOCAL,
        "process_exit",
        "the end of the log of local rank {0}, and which node it is on: its launcher saw it fail (exit code {1}; {2})",
    ),
    # A container, a program or a unit; of several that were killed somebody may have killed all.
    Single(
        _CONTAINERS,
        "process_exit",
        "the log of {0}, the kernel log and memory of its host, and which rank ran there: a signal ended it before any other "
        "failed (exit code {1}; {2})",
    ),
)
# The task of Slurm in whose control group a process was killed, by its number on its node.
_KILLED_TASK = rf"""
SELECT regexp_extract(subject, ' task=(\d+)', 1), coalesce(' on ' || host, ''),
    regexp_extract(subject, '^job=(\d+)', 1) AS job, min(source)
FROM logged_event WHERE kind = 'task_killed' AND NOT after_cancel AND (job IN ({JOBS}) OR NOT EXISTS ({JOBS}))
GROUP BY ALL ORDER BY ALL
"""
_OUT_OF_MEMORY = Single(
    _KILLED_TASK,
    "task_killed",
    "which rank ran as task {0} of its node{1} in job {2} of Slurm: a process of it was killed for its memory ({3})",
)
# Whoever waits for the number that nobody has waits for ever; which of the processes is right nothing shows.
_TWICE = Single(
    _TAKEN,
    "rank_taken",
    "the ranks that the launcher gives (RANK, SLURM_PROCID, NODE_RANK): {1} of {3} processes say that they are rank {0} ({2}), "
    "so that another rank has none",
)
_COORDINATED = (
    Single(_LOST, "process_lost", "log, exit code and kernel log of {0}: it alone was found gone or silent ({1})"),
    Single(
        _BARRIER_TASK,
        "barrier_task_failed",
        "the log of Spark's barrier task {0}, and which rank it is: its failure ended the stage ({1})",
    ),
)


def killed_task(connection: DuckDBPyConnection) -> Iterator[str]:
    """One task, which may be one rank or the launcher of several on its host; or all of one host."""
    yield from single_leads(connection, (_OUT_OF_MEMORY,))
    tasks = rows_of(connection, "log_events", _TASKS, kinds=("process_exit",))
    if len(tasks) == 1 and (task := _TASK.match(str(tasks[0][0]))):
        is_one, host = task["more"] is None, task["host"]
        how = "killed for its memory" if task["how"].startswith(_FOR_MEMORY) else task["how"].strip()
        said = f"srun saw {'it' if is_one else 'them'} end ({how}; {tasks[0][1]})"
        what = f"{'task' if is_one else 'tasks'} {task['task']} of srun"
        if is_one:
            yield f"what {what} on {host} was, one rank or the launcher of several: {said}"
        else:
            yield f"kernel log and memory of {host}, and which ranks {what} were: {said}, those of no other host"


def launcher_leads(connection: DuckDBPyConnection) -> Iterator[str]:
    """Each a sentence that says what to get; where several of a kind ended, none of them is known to be the first."""
    yield from single_leads(connection, _NO_START)
    yield from _by_process(connection)
    yield from _by_slot(connection)
    yield from single_leads(connection, _OF_PROCESSES)
    yield from _pod_that_does_not_run(connection)
    yield from single_leads(connection, OF_NODES)
    yield from _exited_task(connection)
    yield from single_leads(connection, (_TWICE,))


def lost_by_coordinator(connection: DuckDBPyConnection) -> Iterator[str]:
    """One process, or one task of a barrier."""
    yield from single_leads(connection, _COORDINATED)


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


def _pod_that_does_not_run(connection: DuckDBPyConnection) -> Iterator[str]:
    """One pod beside running pods of its job."""
    if row := only_row(connection, "log_events", _PODS, kinds=("pod_not_running",)):
        pod, state, running, source = row
        others = f"{counted(int(running), 'other pod')} of its job run"
        yield f"log (`kubectl logs --previous`) and events of pod {pod}: its state is {state} ({source}), {others}"
