"""Which of the threads of a process stands for its rank."""

from __future__ import annotations

from collections.abc import Mapping


def of_main_threads(working: Mapping[int, int]) -> str:
    """Condition in SQL on a row `p` of `processes`: its thread runs the job.

    That is the first one of the process; `working` are the others, by rank, as numbers of threads.
    """
    if not working:
        return "p.thread = p.pid"
    cases = " ".join(f"WHEN {rank} THEN {thread}" for rank, thread in sorted(working.items()))
    return f"p.thread = CASE p.rank {cases} ELSE p.pid END"
