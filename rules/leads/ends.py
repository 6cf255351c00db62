"""Where to look first by how processes ended of which none can be named: devices, tests, signals."""

from __future__ import annotations

import signal
from collections.abc import Iterator

from duckdb import DuckDBPyConnection

from forensics.case.database import only_row, rows_of
from forensics.rules.leads.single import Single, single_leads
from forensics.rules.reductions.logs.log_evidence import TIMEOUTS
from forensics.rules.reductions.text.evidence_text import ranks_text
from forensics.rules.unplaced_error import shortened

# Errors of the hardware of a GPU that no line gives a rank, by log.
_HARDWARE = """
SELECT path, arg_min(subject, locator), arg_min(source, locator) FROM logged_event
WHERE kind = 'device_error' AND rank IS NULL AND NOT after_cancel GROUP BY path ORDER BY path
"""
_SUSPECTED = "SELECT subject, min(source) FROM logged_event WHERE kind = 'node_suspected' GROUP BY subject ORDER BY subject"
_RAISED = "SELECT subject, min(source) FROM logged_event WHERE kind = 'raised_on_device' GROUP BY subject ORDER BY subject"
# What makes a launcher end the others; after a timeout it is the first that gave up.
_FIRST = rf"""
SELECT DISTINCT regexp_extract(subject, ' pid=(\d+)', 1), regexp_extract(subject, 'exitcode=(-?\d+)', 1), source
FROM logged_event
WHERE kind = 'process_exit' AND rank IS NULL AND NOT after_cancel AND subject NOT LIKE '%by=ray%'
    AND regexp_matches(subject, '^exitcode=-?[1-9]\d* pid=\d+ (first|local_rank=)')
    AND NOT EXISTS (SELECT 1 FROM log_events WHERE kind IN {TIMEOUTS}) ORDER BY ALL
"""
# The ends that a launcher dates within its first second, and how many are later.
_FIRST_SECOND = rf"""
WITH ended AS (
    SELECT rank, regexp_extract(subject, ' time=(\S+)', 1) AS second, source,
        try_cast(regexp_extract(subject, '^exitcode=(-?\d+)', 1) AS INTEGER) AS code FROM logged_event
    WHERE kind = 'process_exit' AND rank IS NOT NULL AND NOT after_cancel AND contains(subject, ' time=')
        AND NOT EXISTS (SELECT 1 FROM log_events WHERE kind IN {TIMEOUTS}))
SELECT rank, code, source, (SELECT count(DISTINCT rank) FROM ended) FROM ended
WHERE second = (SELECT min(second) FROM ended) ORDER BY rank
"""
# CUDA calls of NCCL that failed, by rank.
_CUDA = """
SELECT rank, arg_min(subject, (path, locator)), arg_min(source, (path, locator)) FROM logged_event
WHERE kind = 'cuda_failure' AND rank IS NOT NULL AND NOT after_cancel GROUP BY rank ORDER BY rank
"""
_NOT_STARTED = """
SELECT rank, min(subject), min(source) FROM logged_event
WHERE kind = 'start_failed' AND rank IS NOT NULL AND NOT starts_with(subject, 'Duplicate') GROUP BY rank ORDER BY rank
"""
_DUPLICATE = r"""
SELECT regexp_extract(subject, ': (rank \d+ and rank \d+) both', 1) AS who, min(source) FROM logged_event
WHERE kind = 'start_failed' AND starts_with(subject, 'Duplicate') AND who <> '' GROUP BY ALL ORDER BY ALL LIMIT 1
"""
# Ranks that rank 0 did not let go on, where no line says for whom it waited.
_UNANSWERED = """
SELECT count(DISTINCT rank), min(rank), min(source) FROM logged_event
WHERE kind = 'barrier_unanswered' AND NOT EXISTS (SELECT 1 FROM log_events WHERE kind = 'barrier_timeout') HAVING count(*) > 0
"""
# How each rank ended; a launcher asks those that are left to end.
_SIGNALS = r"""
SELECT rank, arg_min(try_cast(regexp_extract(subject, '^exitcode=(-?\d{1,3})\b', 1) AS INTEGER), (path, locator)), min(source)
FROM logged_event WHERE kind = 'process_exit' AND rank IS NOT NULL GROUP BY rank ORDER BY rank
"""
# Ends by a signal of a process of a node whose launcher prints the command of its last one, whichever ended; pdsh puts the
# node in front.
_UNNUMBERED = r"""
SELECT try_cast(regexp_extract(subject, '^exitcode=(-\d{1,2}) ', 1) AS INTEGER) AS code, min(source),
       list(DISTINCT coalesce(host, regexp_extract(text, '^([A-Za-z][\w.-]{0,250}\d[\w.-]{0,60}): ', 1))) FROM logged_event
WHERE kind = 'process_exit' AND rank IS NULL AND regexp_matches(subject, '^exitcode=-\d{1,2} last_local_rank=[1-9]')
    AND NOT after_cancel GROUP BY code ORDER BY code
"""
# What a shell says of a process that a signal ended which no peer causes, where nothing shows its rank.
_BY_SHELL = rf"""
SELECT text, min(source) FROM logged_event WHERE kind = 'process_exit' AND rank IS NULL AND NOT after_cancel
    AND regexp_matches(subject, '^(pid=\d+ )?(Killed|Segmentation fault|Bus error|Illegal instruction|Floating point .+)$')
    AND NOT EXISTS (SELECT 1 FROM log_events WHERE kind IN {TIMEOUTS}) GROUP BY text ORDER BY text
"""
# Processes with a number within their host that ended by a fault of their own and left a core.
_CORES = r"""
SELECT regexp_extract(subject, '^pid=(\d+)', 1), regexp_extract(subject, ' local_rank=(\d+)', 1), host, min(source)
FROM logged_event WHERE kind = 'core_dumped' GROUP BY ALL ORDER BY ALL
"""
# Processes that py-spy was asked for in vain on hosts or in pods of unknown ranks, and how many others it found.
_NOT_FOUND = r"""
SELECT regexp_extract(subject, '^pid=(\d+)', 1), host, min(source), (SELECT count(DISTINCT (host, pid)) FROM stacks)
FROM logged_event WHERE kind = 'process_not_found' GROUP BY ALL ORDER BY ALL
"""
_FEW, _LEAST_FOUND = 3, 3
_SHARED = {
    -signal.SIGBUS: "shared memory of their host (`df -h /dev/shm`, the limit of the container) and files that they map",
    -signal.SIGKILL: "memory and kernel log of their host (OOM kills), and whoever may have killed them",
}
"""What processes of a host have in common, by the signal that ends all of them when it fails."""
# The number of a device is that on its host.
_ON_DEVICE = Single(
    _RAISED,
    "raised_on_device",
    "the process of {0} on its host: it raised an exception ({1}), and no other device is spoken of",
)
# The process that a launcher saw fail, where nothing shows its rank, and nobody had given up waiting.
_SEEN_FIRST = Single(
    _FIRST,
    "process_exit",
    "the end of the log of process {0}, which its launcher saw fail first (exit code {1}; {2})",
)
# What fails on all ranks, or keeps all of them from starting, is of the job or of their host.
_OF_A_RANK = (
    Single(_CUDA, "cuda_failure", "the log and device of rank {0}: a call of NCCL to CUDA failed there ({1}; {2})"),
    Single(_NOT_STARTED, "start_failed", "what else holds the device of rank {0}: it could not start ({1}; {2})"),
)
# What all processes met is of the program.
_WITH_A_CORE = Single(
    _CORES,
    "core_dumped",
    "log and core of process {0}, local rank {1} on {2}: a fault of its own ended it ({3})",
)


def end_leads(connection: DuckDBPyConnection) -> Iterator[str]:
    """Each a sentence that says what to get."""
    yield from _suspected(connection)
    yield from _hardware(connection)
    yield from single_leads(connection, (_ON_DEVICE, _SEEN_FIRST))
    yield from _first_second(connection)
    yield from single_leads(connection, _OF_A_RANK)
    yield from _same_device(connection)
    yield from _unanswered(connection)
    yield from _one_signal(connection)
    yield from _one_of_node(connection)
    yield from _by_shell(connection)
    yield from single_leads(connection, (_WITH_A_CORE,))
    yield from _not_found(connection)


def _suspected(connection: DuckDBPyConnection) -> Iterator[str]:
    """One node that failed the launcher's own test; nodes are tested in pairs, so that of two one may have failed the other."""
    found = rows_of(connection, "log_events", _SUSPECTED, kinds=("node_suspected",))
    if len(found) == 1 and found[0][0].isdigit():
        ((node, source),) = found
        yield f"GPUs, NICs and kernel log of node {node}, by DLRover's numbers: it failed its test before training ({source})"


def _hardware(connection: DuckDBPyConnection) -> Iterator[str]:
    """The one log that speaks of a broken GPU."""
    if row := only_row(connection, "log_events", _HARDWARE, kinds=("device_error",)):
        _, what, source = row
        is_gpu = what.startswith(("uncorrectable", "CUDA"))
        where = "its GPU (`nvidia-smi -q -d ECC`) and the kernel log of its host (Xid)" if is_gpu else "and the log of its host"
        yield f"which rank met {'an ' if is_gpu else ''}{what} ({source}), {where}"


def _first_second(connection: DuckDBPyConnection) -> Iterator[str]:
    """The few ranks that failed in the second in which the first did, where others ended later."""
    found = rows_of(connection, "log_events", _FIRST_SECOND, kinds=("process_exit",))
    if (
        0 < len(found) <= _FEW
        and len(found) < found[0][3]
        and all(code not in (None, 0, -signal.SIGTERM) for _, code, *_ in found)
    ):
        which = ranks_text([rank for rank, *_ in found])
        yield f"the ends of the logs of {which}: by the launcher they failed first, in one second ({found[0][2]})"


def _same_device(connection: DuckDBPyConnection) -> Iterator[str]:
    """The first of the pairs of ranks that chose one device: how they count their devices is of the start of the job."""
    for who, source in rows_of(connection, "log_events", _DUPLICATE, kinds=("start_failed",)):
        yield f"local ranks, CUDA_VISIBLE_DEVICES and GPUs of each task: {who} chose the same GPU ({source})"


def _unanswered(connection: DuckDBPyConnection) -> Iterator[str]:
    """Rank 0, which knows who did not come."""
    for ranks, rank, source in rows_of(connection, "log_events", _UNANSWERED, kinds=("barrier_unanswered",)):
        who = f"rank {rank}" if ranks == 1 else "others"
        what = f"{who} came and got no answer ({source})"
        yield f"the log of rank 0, which says for whom it waited in the monitored barrier: {what}"


def _one_signal(connection: DuckDBPyConnection) -> Iterator[str]:
    """Several ranks that one signal ended, and no rank that ended otherwise but was asked to."""
    ended = [row for row in rows_of(connection, "log_events", _SIGNALS, kinds=("process_exit",)) if row[1] != -signal.SIGTERM]
    codes = {code for _, code, _ in ended}
    if len(ended) > 1 and len(codes) == 1 and (what := _SHARED.get(next(iter(codes)) or 0)):
        name = signal.Signals(-ended[0][1]).name
        yield f"{what}: {ranks_text([rank for rank, *_ in ended])} were all ended by {name} ({ended[0][2]})"


def _one_of_node(connection: DuckDBPyConnection) -> Iterator[str]:
    """One process of a node, and not known which."""
    ended = rows_of(connection, "log_events", _UNNUMBERED, kinds=("process_exit",))
    if len(ended) == 1 and (what := _SHARED.get(ended[0][0])):
        ((code, source, nodes),) = ended
        where = f" {nodes[0]}" if len(nodes) == 1 and nodes[0] else ""
        how = f"one of the processes of{where or ' one node'} was ended by {signal.Signals(-code).name} ({source})"
        yield f"{what}: {how}; the command printed there is that of the last process of the node, whichever ended"


def _by_shell(connection: DuckDBPyConnection) -> Iterator[str]:
    """One line; what stands in front of it may say where."""
    if row := only_row(connection, "log_events", _BY_SHELL, kinds=("process_exit",)):
        said, source = row
        yield f"which process ended as `{shortened(said)}` says ({source}), its log and the kernel log of its host"


def _not_found(connection: DuckDBPyConnection) -> Iterator[str]:
    """The one process of several that was not there; whoever asked may have had its number wrong."""
    found = rows_of(connection, "log_events", _NOT_FOUND, kinds=("process_not_found",))
    if len(found) == 1 and found[0][3] >= _LEAST_FOUND:
        ((pid, host, source, others),) = found
        how = f"py-spy did not find it, but {others} others ({source})"
        yield f"exit code, log and kernel log of process {pid} of {host}: {how}"
