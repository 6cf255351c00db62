"""Where to look first by pods that ended or were evicted, and of which nothing shows the ranks."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from duckdb import DuckDBPyConnection

from forensics.case.database import only_row, rows_of
from forensics.rules.reductions.text.evidence_text import counted

# A list of pods that ended shows a kill by 137 only where it was for memory or space.
_PODS = """
SELECT regexp_extract(subject, 'pod=(\\S+)', 1) AS pod, min(source), min(time_ns),
       bool_or(kind = 'oom_kill' OR subject LIKE 'exitcode=137 % time=list by=mpi') FROM logged_event
WHERE kind IN ('process_exit', 'oom_kill') AND rank IS NULL AND subject LIKE '%pod=%'
GROUP BY pod HAVING bool_or(kind = 'process_exit') ORDER BY ALL
"""
_EVICTED = r"""
SELECT regexp_extract(subject, '^(?:pod[/=])?([\w.-]+)', 1) AS pod, min(source) FROM logged_event
WHERE kind = 'pod_evicted' AND rank IS NULL AND subject IS NOT NULL GROUP BY ALL ORDER BY ALL
"""

# The container of `docker ps` that ended by an error while others of its image run.
_CONTAINER = r"""
SELECT regexp_extract(subject, '^(\S+)', 1), regexp_extract(subject, 'code=(\d+)', 1),
    regexp_extract(subject, 'running=(\d+)', 1), min(source)
FROM logged_event WHERE kind = 'container_ended' GROUP BY ALL ORDER BY ALL
"""


def dead_pods(connection: DuckDBPyConnection) -> Iterator[str]:
    """One pod that ended by an error or for its memory, or was evicted, and of which nothing shows the ranks."""
    ended = rows_of(connection, "log_events", _PODS, kinds=("process_exit",))
    evicted = rows_of(connection, "log_events", _EVICTED, kinds=("pod_evicted",))
    # Why a pod was evicted, or killed for its memory, is no error of a peer: those that ended by an error ended with it.
    for pods, how in ((evicted, "was evicted"), ([] if evicted else _killed_first(ended), "ended")):
        if len(pods) == 1:
            pod, source, *_ = pods[0]
            yield f"the log of pod {pod}, which {how} ({source}), and which ranks ran in it"


def ended_container(connection: DuckDBPyConnection) -> Iterator[str]:
    """One container, of which nothing shows the ranks; those of several hosts may have ended together."""
    if row := only_row(connection, "log_events", _CONTAINER, kinds=("container_ended",)):
        name, code, running, source = row
        others = f"{counted(int(running), 'other container')} of its image run"
        yield f"the log of container {name} and the kernel log of its host: it ended (exit code {code}; {source}), {others}"


def _killed_first(ended: list[tuple[Any, ...]]) -> list[tuple[Any, ...]]:
    """The one of several that was killed, where none is known to have ended before it; all of them where none is."""
    killed = [pod for pod in ended if pod[3]]
    if len(killed) != 1 or killed[0][2] is None:
        return killed or ended
    earlier = [pod for pod in ended if pod[2] is not None and pod[2] < killed[0][2]]
    return [] if earlier else killed
