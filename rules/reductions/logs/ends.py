"""How launchers saw processes end.

A table of torchrun is of one node; the ranks in it have times to the second. A number on a host is the rank of the job where
the logs are of one node only.
"""

from __future__ import annotations

import re
import signal
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from functools import partial

from duckdb import DuckDBPyConnection

from forensics.case.database import has_rows, rows_of
from forensics.rules.reductions.logs.killed_tasks import killed_task
from forensics.rules.reductions.logs.local_numbers import has_siblings
from forensics.rules.reductions.logs.process_exit import BY_ITSELF, ENDED_BY_LAUNCHER, Exit

# GPUs of the largest node in use: with more ranks, a number that was counted on a host is not one of the job.
_LARGEST_NODE = 8
_HOW = {"Killed": -9, "Out Of Memory": -9, "Segmentation fault": -11, "Bus error": -7, "Aborted": -6, "Terminated": -15}
# A rank that a launcher ends is seen after the cancel; only what the same log says before it counts. A kill by the launcher
# itself, of a process that did not end when asked to, is the end that it asked for; so is one by the monitor of a rank whose
# time was over. LSF says below the whole output why it ended a job.
_EXITS = """
SELECT l.rank, CASE l.kind WHEN 'oom_kill' THEN 'exitcode=-9 pid=' || l.subject || ' by=kernel'
       WHEN 'segfault' THEN 'exitcode=-11 pid=' || l.subject || ' by=kernel' ELSE CASE WHEN EXISTS (
           FROM log_events k WHERE k.kind = 'signal_sent' AND k.source_id = l.source_id AND k.subject SIMILAR TO
               regexp_extract(l.subject, '^exitcode=-9 (pid=[0-9]+)', 1) || ' (SIGKILL|9)'
           OR k.kind = 'stall_report' AND k.source_id = l.source_id AND k.locator < l.locator
               AND k.subject = 'its monitor ends it')
           THEN replace(l.subject, 'exitcode=-9 ', 'exitcode=-15 ') ELSE l.subject END END, l.source, l.after_cancel
       OR (l.subject LIKE 'exitcode=-% by=mpi' AND EXISTS (
           SELECT 1 FROM log_events c WHERE c.kind = 'job_cancelled' AND c.source_id = l.source_id
               AND c.subject LIKE 'DUE TO %' AND c.locator BETWEEN l.locator AND l.locator + 64))
FROM logged_event l
WHERE (l.kind = 'process_exit' OR (l.kind IN ('oom_kill', 'segfault') AND l.rank IS NOT NULL))
    AND l.subject IS NOT NULL
ORDER BY l.rank, l.path, l.locator
"""
# The one node that was lost before anything else went wrong, with all its ranks. Others give up waiting for these, or lose
# them, before the scheduler sees it; ranks that do so themselves were there. Ray calls a node dead also where a job that others
# gave up on was taken down.
_LOST_NODE = """
WITH lost AS (
    SELECT rank, subject, source, source_id, locator, path, text FROM logged_event
    WHERE kind = 'node_failed' AND rank IS NOT NULL
)
SELECT l.rank, l.subject, l.source, min(l.subject) OVER () = max(l.subject) OVER ()
FROM lost l
WHERE NOT EXISTS (
    SELECT 1 FROM log_events c WHERE c.source_id = l.source_id AND c.locator < l.locator AND c.kind IN (
        'job_cancelled', 'exception', 'fatal_error', 'process_exit', 'terminated', 'signal_sent')
        AND coalesce(c.subject, '') NOT LIKE '%DUE TO NODE FAILURE%')
AND NOT EXISTS (
    SELECT 1 FROM log_events c JOIN lost o ON o.rank = c.rank AND o.subject = l.subject
    WHERE c.kind IN ('watchdog_timeout', 'store_timeout', 'transfer_timeout', 'peer_closed'))
AND NOT (l.text LIKE '%marked dead%' AND EXISTS (
    SELECT 1 FROM log_events c WHERE c.source_id = l.source_id AND c.locator < l.locator
    AND c.kind IN ('watchdog_timeout', 'store_timeout', 'transfer_timeout', 'peer_closed')))
ORDER BY l.rank, l.path, l.locator
"""
# Of one step of one job: a log of several tells several.
_MEMORY = """
SELECT text, coalesce(subject, ''), source FROM logged_event
WHERE kind IN ('oom_kill', 'process_exit') AND (SELECT count(DISTINCT subject) FROM log_events WHERE kind = 'oom_kill') = 1
ORDER BY path, locator
"""
_NODES = """
SELECT count(*) FILTER (kind = 'several_nodes'), max(rank), count(DISTINCT host),
       count(*) FILTER (kind = 'signal_sent' OR subject LIKE '%local_rank=%' OR text LIKE '%ChildFailedError%'),
       count(DISTINCT subject) FILTER (kind = 'job_cancelled' AND subject LIKE '%DUE TO TASK FAILURE'),
       (SELECT max(try_cast(value AS INTEGER)) FROM job_config WHERE key = 'log.world_size')
FROM log_events
"""
_EXIT = re.compile(r"exitcode=(?:(?P<code>-?\d{1,5})|unknown)(?P<rest>.*)")
_WORD = re.compile(r"(pid|time|by|local_rank|last_local_rank)=(\S+)")
_TASK = re.compile(r"task=(?P<task>\d{1,7}) host=(?P<host>\S+) (?P<how>[\w .]+)")
_TASKS = re.compile(r"task=(?P<tasks>[\d,-]+) host=(?P<host>\S+) ")
_TERMINATED = (-signal.SIGTERM, -signal.SIGKILL)
_KILLS = re.compile(r"Detected (\d{1,6}) oom[_-]kill event(?:s|\(s\))? in StepId=\d{1,12}\.\d")
_MOST_TASKS = 1 << 17
_LISTED = "SELECT count(DISTINCT host) FROM nodes"
# Of a launcher that does not say how: no signal is known of it.
_SOME_ERROR = 1
_MEMORY_OF_TASK = "Out Of Memory"
_CODE = re.compile(r"Exited with exit code (\d{1,3})")


def exits(connection: DuckDBPyConnection) -> tuple[Exit, ...]:
    """All ends that are known to be of a rank: of several of one rank, the one its launcher saw first or ended the job for."""
    if not has_rows(connection, "log_events", ("process_exit", "oom_kill", "task_killed", "segfault", "node_failed")):
        return ()
    several, highest, hosts, elastic, failed_steps, world = connection.execute(_NODES).fetchall()[0]
    said = rows_of(connection, "log_events", _EXITS, kinds=("process_exit", "oom_kill", "segfault"))
    rows = [(rank, str(subject), source) for rank, subject, source, is_late in said if not is_late]
    ranked = [end for rank, subject, source in rows if rank is not None and (end := _exit(rank, subject, source))]
    one_node = not several and (highest or 0) < _LARGEST_NODE and hosts <= 1 and not has_siblings(connection)
    ranked += _of_lost_node(connection)
    pids = {end.pid for end in ranked if end.pid is not None}
    local = [end for rank, subject, source in rows if rank is None and (end := _exit(None, subject, source))]
    local = [end for end in local if end.pid not in pids]
    # Two launchers, or two starts of one, count the same numbers.
    if one_node and len({(end.rank, end.table) for end in local}) == 1 and not ranked:
        ranked += local[:1]
    if one_node and not ranked and not elastic:
        ranked += killed_task(connection, world)
    if not ranked and not local and not elastic:
        first = _first_of_ranks(connection)
        ranked += _tasks(rows, [str(subject) for _, subject, _, _ in said], first) or _out_of_memory(connection, first)
        listed = [(str(subject), source) for _, subject, source, _ in said]
        ranked += _unlisted(listed, world) if failed_steps == 1 and not ranked else ()
    found: dict[int, Exit] = {}
    for end in ranked:
        if end.rank not in found or (end.first, end.by_mpi) > (found[end.rank].first, found[end.rank].by_mpi):
            found[end.rank] = end
    if any(end.code == -signal.SIGKILL for end in found.values()) and has_rows(connection, "log_events", ("oom_kill",)):
        return tuple(replace(end, is_out_of_memory=True) for end in found.values())
    return tuple(found.values())


def _exit(rank: int | None, subject: str, source: str) -> Exit | None:
    match = _EXIT.match(subject)
    if match is None:
        return None
    words = dict(_WORD.findall(match["rest"]))
    number = words.get("local_rank")
    if rank is None and words.get("last_local_rank") == "0":
        number = "0"
    if rank is None and number is None:
        return None
    pid = int(words["pid"]) if words.get("pid", "").isdecimal() else None
    first = " first" in match["rest"] or rank is None
    own = rank if rank is not None else int(number or 0)
    said, late = match["code"], match["rest"].endswith(" late")
    code, stated = int(said or _SOME_ERROR), said is not None
    return Exit(own, code, pid, first, source, words.get("time"), rank is None, "by" in words, late=late, is_code_stated=stated)


def _tasks(rows: Iterable[tuple[int | None, str, str]], all_ends: Sequence[str], first: int) -> list[Exit]:
    """The one task that srun saw end, or the only one that was killed, of several on its host, and none other like it.

    One task on a host may be a launcher, or the job's script; `all_ends` name the others, also those that were ended with it.
    From `first` on, tasks are known to be ranks.
    """
    listed = [(tasks, subject[tasks.end() :]) for subject in all_ends if (tasks := _TASKS.match(subject))]
    named = {(tasks["host"], tasks["tasks"]) for tasks, _ in listed}
    alike = {how for tasks, how in listed if not tasks["tasks"].isdecimal()}
    found = []
    for _, subject, source in rows:
        task = _TASK.match(subject)
        is_one_of_several = any(task and host == task["host"] and tasks != task["task"] for host, tasks in named)
        if task and not is_one_of_several and int(task["task"]) < first:
            continue
        code = _code(task["how"]) if task else None
        if task and code is not None and code not in ENDED_BY_LAUNCHER and task["how"] not in alike:
            memory = task["how"].startswith(_MEMORY_OF_TASK)
            found.append(
                Exit(int(task["task"]), code, None, True, source, by_mpi=True, host=task["host"], is_for_memory=memory)
            )
    killed = [end for end in found if end.code in BY_ITSELF]
    chosen = killed if killed else found
    return chosen[:1] if len({end.rank for end in chosen}) == 1 else []


def _first_of_ranks(connection: DuckDBPyConnection) -> int:
    """The first task that is known to be a rank: tasks that say so are, and so are those with numbers above all nodes.

    Of nodes that start launchers nothing is known.
    """
    if has_rows(connection, "job_config", ("log.tasks",)):
        return 0
    nodes = connection.execute(_LISTED).fetchall()[0][0]
    return nodes if nodes and not has_rows(connection, "job_config", ("log.per_node",)) else _MOST_TASKS


def _out_of_memory(connection: DuckDBPyConnection, first: int) -> list[Exit]:
    """The tasks that the kernel killed for memory, where it killed as many processes of the step as srun names of it.

    srun says the same of tasks that were only ended with them: with fewer kills it is not known whose they were. The one task
    of a host may be a launcher, below the `first` that is known to be a rank.
    """
    found: list[Exit] = []
    kills = 0
    by_host: dict[str, set[int]] = defaultdict(set)
    for text, subject, source in rows_of(connection, "log_events", _MEMORY, kinds=("oom_kill",)):
        killed, tasks = _KILLS.search(text), _TASKS.match(subject)
        kills += int(killed[1]) if killed else 0
        if tasks:
            by_host[tasks["host"]] |= _numbers(tasks["tasks"])
        if tasks and subject[tasks.end() :].startswith(_MEMORY_OF_TASK):
            how = partial(Exit, code=-signal.SIGKILL, pid=None, first=True, source=source, by_mpi=True, is_for_memory=True)
            found += [how(task, host=tasks["host"]) for task in _numbers(tasks["tasks"])]
    if kills != len(found) or kills != len({end.rank for end in found}):
        return []
    return [end for end in found if len(by_host[end.host or ""]) > 1 or end.rank >= first]


def _of_lost_node(connection: DuckDBPyConnection) -> Iterator[Exit]:
    for rank, node, source, is_only in rows_of(connection, "log_events", _LOST_NODE, kinds=("node_failed",)):
        if is_only:
            yield Exit(rank, 1, None, True, source, by_mpi=True, why=f"its node {node} was lost", node=node)


def _unlisted(ends: Sequence[tuple[str, str]], world: int | None) -> Iterator[Exit]:
    """The task of a step cancelled for a failed one that srun did not end, where it lists all others of the step and its host.

    The lists of one file cover each number from 0 on but one, which lies within the numbers of one host.
    """
    by_host: dict[str, set[int]] = defaultdict(set)
    for subject, _ in ends:
        said = _TASKS.match(subject)
        if said is None or _HOW.get(subject[said.end() :].strip()) not in _TERMINATED:
            return
        by_host[said["host"]] |= _numbers(said["tasks"])
    listed = set[int]().union(*by_host.values())
    gaps = {number for own in by_host.values() for number in {*range(min(own), max(own))} - own if own}
    missing = {*range(max(world or 0, 1 + max(listed, default=0)))} - listed
    if len(missing) == 1 and missing == gaps and len({source.partition("#")[0] for _, source in ends}) == 1:
        (task,) = missing
        why = f"the step was cancelled for a failed task, and srun ended all {len(listed)} others"
        yield Exit(task, 1, None, True, ends[0][1], by_mpi=True, why=why)


def _numbers(tasks: str) -> set[int]:
    """The numbers of `32-40,42`."""
    spans = [span.partition("-") for span in tasks.split(",") if span[:1].isdecimal()]
    ends = [(int(first), int(last if last.isdecimal() else first)) for first, _, last in spans]
    return {number for first, last in ends for number in range(first, min(last, first + _MOST_TASKS) + 1)}


def _code(how: str) -> int | None:
    exited = _CODE.match(how)
    return int(exited[1]) if exited else next((code for word, code in _HOW.items() if how.startswith(word)), None)
