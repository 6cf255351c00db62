"""Where somebody on call looks first when nobody can be named, by what logs tell: who was lost, ended, raised or gave up.

A launcher that was asked to stop its ranks, and an error of the one rank whose log is here, say where to go on, and accuse
nobody: all ranks may have raised it.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterator, Mapping

from duckdb import DuckDBPyConnection

from forensics.case.database import only_row, rows_of
from forensics.rules.leads.launchers import killed_task, launcher_leads, lost_by_coordinator
from forensics.rules.leads.pods import dead_pods, ended_container
from forensics.rules.reductions.logs.failures import is_of_another
from forensics.rules.reductions.logs.log_evidence import OF_THE_JOB, Logged
from forensics.rules.reductions.logs.lost_connections import without_a_loss
from forensics.rules.reductions.text.evidence_text import counted, ranks_text
from forensics.rules.unplaced_error import last_error, only_error, shortened

LEAST_ALIKE = 3
"""Others that are alike where one stands out."""
_FEW = 3
_NODES = f"""
SELECT subject, min(source) FROM logged_event WHERE kind = 'node_failed' AND rank IS NULL AND {OF_THE_JOB}
GROUP BY ALL ORDER BY ALL
"""
_WORKERS = """
SELECT regexp_extract(subject, 'worker=([0-9]+)', 1), min(source) FROM logged_event
WHERE kind = 'process_exit' AND subject LIKE 'died worker=%' GROUP BY ALL ORDER BY ALL
"""
# Why an actor died stands in its own log, which carries the number of its process; what somebody asked to end is no lead.
_ACTORS = r"""
SELECT regexp_extract(subject, ' pid=([0-9]+) ', 1) AS pid, max(regexp_extract(subject, ' ip=(\S+)', 1)), min(source),
       bool_or(starts_with(subject, 'asked'))
FROM logged_event WHERE kind = 'process_exit' AND rank IS NULL AND subject LIKE '% pid=% by=ray%' GROUP BY pid ORDER BY pid
"""
# The innermost task of those that passed an error on stands last.
_TASK_RAISED = r"""
SELECT regexp_extract(subject, ' pid=([0-9]+)', 1), regexp_extract(subject, ' ip=(\S+)', 1), rank, source FROM logged_event
WHERE kind = 'process_exit' AND subject LIKE 'raised %' ORDER BY path DESC, locator DESC LIMIT 1
"""
# Errors that processes of torchrun wrote beside their logs, in folders that tell their number on their node only.
_REPLIES = """
SELECT l.path, l.subject, l.text, l.time_ns FROM logged_event l JOIN sources s USING (source_id)
WHERE s.parser = 'elastic_error' AND l.kind = 'fatal_error' AND l.rank IS NULL ORDER BY ALL
"""
# The first exception, or fatal error, of each log of which nothing shows the rank; a process that ran well may leave an empty
# one.
_FIRST_RAISED = """
SELECT path, arg_min(coalesce(subject, 'error'), locator), arg_min(text, locator), min(locator) FROM logged_event l
JOIN sources s USING (source_id, path)
WHERE (l.kind = 'exception' OR (l.kind = 'fatal_error' AND s.parser = 'training_log')) AND l.rank IS NULL AND NOT after_cancel
GROUP BY path ORDER BY path
"""
_LOGS = """
SELECT count(*) FROM sources WHERE rank IS NULL
    AND (parser = 'training_log' OR (reason = 'empty' AND regexp_matches(path, '\\.(log|err|out)$')))
"""
_LEAST_LOGS = 3
# Errors without a traceback, of which nothing shows that they ended anything, in logs that end there.
_BARE = """
SELECT path, rank, text, source FROM logged_event l
WHERE kind = 'bare_error' AND NOT after_cancel AND path NOT IN (SELECT path FROM logged_event WHERE kind = 'exception')
    AND NOT EXISTS (SELECT 1 FROM log_progress p WHERE p.source_id = l.source_id AND p.locator > l.locator) ORDER BY ALL
"""
_LOSERS = "SELECT count(DISTINCT path) FROM logged_event WHERE kind = 'peer_closed' AND path <> ?"
# A device by its number on its host, as ROCm's runtime has it; every process of the host may report the same one.
_FAULTY_GPUS = r"""
SELECT regexp_extract(subject, ' by GPU (node-[0-9]+)', 1), min(source) FROM logged_event
WHERE kind = 'fatal_error' AND rank IS NULL AND subject LIKE '% by GPU node-%' AND NOT after_cancel GROUP BY ALL ORDER BY ALL
"""
_DIGESTS = "SELECT subject, min(source) FROM logged_event WHERE kind = 'hang_digest' GROUP BY ALL ORDER BY ALL"
# What each rank gave up on first.
_GAVE_UP = """
SELECT rank, arg_min(subject, (path, locator)), arg_min(source, (path, locator)) FROM logged_event
WHERE kind = 'watchdog_timeout' AND rank IS NOT NULL AND subject LIKE '%seq=%' GROUP BY rank ORDER BY rank
"""
_GROUPED = "SELECT count(DISTINCT rank) FROM log_events WHERE kind = 'watchdog_progress' AND contains(subject, 'pg=')"
# Processes that the kernel killed for their memory, of a node, a step or a number; those of pods are stated with their ends.
_KILLED = """
SELECT subject, min(source) FROM logged_event
WHERE kind = 'oom_kill' AND rank IS NULL AND subject IS NOT NULL AND NOT starts_with(subject, 'pod')
    AND NOT EXISTS (SELECT 1 FROM log_events WHERE kind = 'task_killed') GROUP BY ALL ORDER BY ALL
"""
# Who stopped the job, by its launcher or by Slurm.
_STOPPED = """
SELECT subject, min(source) FROM logged_event WHERE kind = 'job_cancelled' AND subject IS NOT NULL GROUP BY ALL ORDER BY ALL
"""
_SIGNAL = re.compile(r"launcher got signal (?:SIG)?(?P<name>TERM|HUP|15|1)$")
_WHY = re.compile(r"\bDUE TO (?P<why>TIME LIMIT|MEMORY LIMIT|PREEMPTION)$", re.IGNORECASE)
_TIME_LIMIT = "TIME LIMIT"


def ended_leads(connection: DuckDBPyConnection, heard: Logged) -> Iterator[str]:
    """What was lost or ended, the surest first."""
    yield from _lost_nodes(connection)
    yield from _blamed(connection)
    yield from _faulty_gpu(connection)
    yield from _dead_workers(connection)
    yield from _dead_actor(connection)
    yield from dead_pods(connection)
    yield from ended_container(connection)
    yield from killed_task(connection)
    yield from _killed(connection)
    yield from lost_by_coordinator(connection)
    yield from _first_reply(connection) or _raised_alone(connection)
    yield from _ends_by_a_bare_error(connection)
    yield from _own_error(heard)
    yield from _last_error(connection, heard)
    yield from _raised_by_some(connection)
    yield from launcher_leads(connection)
    yield from _stopped(connection, heard)


def waiting_leads(connection: DuckDBPyConnection) -> Iterator[str]:
    """The one rank that waited otherwise than the others, or of whose wait nothing tells."""
    yield from _gave_up_elsewhere(connection)
    yield from _lost_nobody(connection)


def _lost_nodes(connection: DuckDBPyConnection) -> Iterator[str]:
    for node, source in rows_of(connection, "log_events", _NODES, kinds=("node_failed",)):
        yield f"console and kernel log of {node}, which was lost ({source}), and which ranks ran on it"


def _blamed(connection: DuckDBPyConnection) -> Iterator[str]:
    """Workers that the runtime itself takes for the cause of a hang; with other modules on them they are examples only."""
    if row := only_row(connection, "log_events", _DIGESTS, kinds=("hang_digest",)):
        workers, source = row
        yield f"the logs and devices of {workers}: Megascale calls them potential culprits of the hang ({source})"


def _faulty_gpu(connection: DuckDBPyConnection) -> Iterator[str]:
    """The one GPU whose fault runtimes report."""
    if row := only_row(connection, "log_events", _FAULTY_GPUS, kinds=("fatal_error",)):
        gpu, source = row
        yield f"the GPU that ROCm numbers {gpu} on its host (`rocminfo`) and the kernel log there: it failed ({source})"


def _dead_workers(connection: DuckDBPyConnection) -> Iterator[str]:
    """Of several that died together an executor names one."""
    if row := only_row(connection, "log_events", _WORKERS, kinds=("process_exit",)):
        worker, source = row
        yield f"the end of the log of worker {worker} and the kernel log of its host: its executor saw it die ({source})"


def _dead_actor(connection: DuckDBPyConnection) -> Iterator[str]:
    """One process of Ray of which nothing shows the rank."""
    actors = rows_of(connection, "log_events", _ACTORS, kinds=("process_exit",))
    if len(actors) == 1 and not actors[0][3]:
        ((pid, address, source, _),) = actors
        host = f" on {address}" if address not in ("", "0.0.0.0") else ""
        yield f"the log of Ray's worker with pid {pid}{host} and the kernel log of its host: it died ({source})"
    raised = rows_of(connection, "log_events", _TASK_RAISED, kinds=("process_exit",))
    if raised and not actors:
        ((pid, address, rank, source),) = raised
        which = f"{'' if rank is None else f' (rank {rank})'}{f' on {address}' if address else ''}"
        yield f"the log of Ray's worker with pid {pid}{which}: its task raised what ended the driver ({source})"


def _killed(connection: DuckDBPyConnection) -> Iterator[str]:
    """One process of a rank that is not known, perhaps not of the job."""
    if row := only_row(connection, "log_events", _KILLED, kinds=("oom_kill",)):
        what, source = row
        of = (
            f"process {what}" if what.isdecimal() else f"the process on {what}" if "node/" in what else f"the process of {what}"
        )
        yield f"which rank was {of} that the kernel killed for its memory ({source})"


def _first_reply(connection: DuckDBPyConnection) -> tuple[str, ...]:
    """One process of those of unknown ranks whose error is its own, and none of the others, which lost it, is older."""
    replies = rows_of(connection, "log_events", _REPLIES, kinds=("fatal_error",))
    own = [reply for reply in replies if not is_of_another(reply[2])]
    times = [reply[3] for reply in replies if reply[3] is not None]
    if len(own) != 1 or len(replies) < 2 or own[0][3] not in (None, min(times, default=None)):
        return ()
    ((path, kind, _, _),) = own
    what = f"it ended by its own {kind or 'error'}, {len(replies) - 1} others of the folders by the loss of a peer"
    return (f"the log beside {path}, and which rank wrote it: {what}",)


def _raised_alone(connection: DuckDBPyConnection) -> Iterator[str]:
    """One log of several of unknown ranks whose first error is its own, where the others lost a peer or raised nothing."""
    raised = rows_of(connection, "log_events", _FIRST_RAISED, kinds=("exception", "fatal_error"))
    own = [each for each in raised if not is_of_another(each[2])]
    logs = connection.execute(_LOGS).fetchall()[0][0]
    if len(own) == 1 and logs >= _LEAST_LOGS:
        ((path, kind, _, line),) = own
        lost = len(raised) - 1
        how = f"{counted(lost, 'other log')} end by the loss of a peer" if lost else f"{logs - 1} other logs raised nothing"
        yield f"{path}#line={line}, and which rank wrote it: it raised its own {kind or 'error'}, {how}"


def _ends_by_a_bare_error(connection: DuckDBPyConnection) -> Iterator[str]:
    """The one log that ends by an error of its own, without a traceback, where several others lost a peer."""
    bare = rows_of(connection, "log_events", _BARE, kinds=("bare_error",))
    own = [each for each in bare if not is_of_another(each[2])]
    if len({path for path, *_ in own}) == 1:
        path, rank, text, source = own[-1]
        lost = connection.execute(_LOSERS, (path,)).fetchall()[0][0]
        if lost >= _LEAST_LOGS - 1:
            whose = "which rank wrote it" if rank is None else f"the log of rank {rank}"
            yield f"the error {shortened(text)} ({source}), and {whose}: {lost} other logs end by the loss of a peer"


def _raised_by_some(connection: DuckDBPyConnection) -> Iterator[str]:
    """The only error of its own that logs hold without a rank: that of one rank, or of all where it stands there again."""
    if error := only_error(connection):
        again = "" if error.count == 1 else ", which stands there again"
        where = "" if error.host is None else f" of {error.host}"
        yield f"the error {shortened(error.text)} ({error.source}){again}: no line shows which ranks{where} it is of"


def _last_error(connection: DuckDBPyConnection, heard: Logged) -> Iterator[str]:
    """The error of one rank that its program may have noted and passed: no step is made below it."""
    error = None if heard.failures.own else last_error(connection)
    if error is not None:
        rank, text, source = error
        yield f"the error of rank {rank}: {shortened(text)} ({source}): no step follows in this log"


def _own_error(heard: Logged) -> Iterator[str]:
    """The few ranks of which errors of their own are known: in a text that shows few ranks they may be those of all."""
    if 0 < len(heard.failures.own) <= _FEW:
        rank, failure = min(heard.failures.own.items())
        whose = f"rank {rank}" if len(heard.failures.own) == 1 else f"{ranks_text(sorted(heard.failures.own))}, of rank {rank}"
        said = f"{shortened(failure.text)} ({failure.source})"
        yield f"the error of {whose}: {said}; the logs of the other ranks tell whether all have it"


def _stopped(connection: DuckDBPyConnection, heard: Logged) -> Iterator[str]:
    """A job that somebody stopped before anything had gone wrong; behind Ctrl-C somebody sits who knows."""
    if heard.stalled or heard.failures.own:
        return
    for subject, source in rows_of(connection, "log_events", _STOPPED, kinds=("job_cancelled",)):
        if sent := _SIGNAL.search(subject):
            is_hangup = sent["name"] in ("HUP", "1")
            how = "SIGHUP, as when its terminal closes" if is_hangup else "SIGTERM, as of a scheduler, a preemption or a person"
            yield f"what stopped the job: its launcher got {how} ({source})"
        elif (cancelled := _WHY.search(subject)) and cancelled["why"].upper() != _TIME_LIMIT:
            yield f"the scheduler: it cancelled the job for its {cancelled['why'].lower()} ({source})"


def time_limit(connection: DuckDBPyConnection, heard: Logged) -> Iterator[str]:
    """A job that ran into its time limit; one that stands still does too, so all else that is known goes before."""
    if not heard.stalled and not heard.failures.own:
        for subject, source in rows_of(connection, "log_events", _STOPPED, kinds=("job_cancelled",)):
            if (cancelled := _WHY.search(subject)) and cancelled["why"].upper() == _TIME_LIMIT:
                yield f"the scheduler: it cancelled the job for its time limit ({source})"


def _gave_up_elsewhere(connection: DuckDBPyConnection) -> Iterator[str]:
    """One rank that gave up on another call than the others; old lines of torch do not say whether it is of their group."""
    by_call: dict[str, list[tuple[int, str]]] = defaultdict(list)
    for rank, call, source in rows_of(connection, "log_events", _GAVE_UP, kinds=("watchdog_timeout",)):
        by_call[call].append((rank, source))
    calls = sorted(by_call, key=lambda call: len(by_call[call]))
    if len(calls) == 2 and len(by_call[calls[0]]) == 1 and len(by_call[calls[1]]) >= LEAST_ALIKE:
        ((rank, source),) = by_call[calls[0]]
        others = f"{len(by_call[calls[1]])} others gave up on {calls[1]}"
        yield f"log and stack of rank {rank}: it gave up on {calls[0]} ({source}) while {others}"
    elif len(calls) == 2 and len({call.partition(" seq=")[2] for call in calls}) == 1:
        yield from _gave_up_apart(connection, by_call)


def _gave_up_apart(connection: DuckDBPyConnection, by_call: Mapping[str, list[tuple[int, str]]]) -> Iterator[str]:
    """Unlike calls under one number, where no line shows of some who gave up in which group they were."""
    if connection.execute(_GROUPED).fetchall()[0][0] < sum(map(len, by_call.values())):
        each = [
            f"{ranks_text([rank for rank, _ in ranks])} on {call} ({ranks[0][1]})" for call, ranks in sorted(by_call.items())
        ]
        yield f"the calls before these: {' and '.join(each)} gave up; if they are of one group, they are in unlike calls"


def _lost_nobody(connection: DuckDBPyConnection) -> Iterator[str]:
    """One rank; a log that was copied too early tells of no error either."""
    for rank, path, others in without_a_loss(connection):
        yield (
            f"exit code, host and kernel log of rank {rank}: each of the {others} other ranks lost a peer, and {path} holds "
            "no error, as that of a process that was killed"
        )
