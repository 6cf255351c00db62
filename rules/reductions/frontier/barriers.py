"""When hosts came to the barriers inside their stages: a barrier holds the host, which works until it makes the call.

Of other collectives of a job on devices a host only launches what its device waits in.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np
from duckdb import DuckDBPyConnection

from forensics.case.database import rows_of
from forensics.rules.reductions.frontier.accounting import Floats, Ints
from forensics.rules.reductions.frontier.matrix import StageMatrix

_CALLS = """
SELECT rank, list(enqueued_ns ORDER BY enqueued_ns) FROM operations
WHERE rank IS NOT NULL AND enqueued_ns IS NOT NULL AND kind LIKE '%barrier%' GROUP BY rank ORDER BY rank
"""
# Of the steps of a window: where all ranks made the call in fewer, it is not how the stage ends.
_LEAST_KNOWN = 0.9
# Of a step: who comes last leaves at once. Where calls and stages are dated by clocks that differ, the stage is another one.
_AT_ONCE = 0.02
# Steps: of two clocks that differ, one or two may seem to meet.
_LEAST_SHOWN = 3


def with_barriers(connection: DuckDBPyConnection, matrices: Sequence[StageMatrix]) -> tuple[StageMatrix, ...]:
    """The windows, each with what its hosts worked before the last barrier of each stage that has one."""
    if not matrices:
        return ()
    calls = {rank: np.array(times, dtype=np.int64) for rank, times in rows_of(connection, "operations", _CALLS)}
    return tuple(replace(matrix, barriers=_before_barriers(matrix, calls)) for matrix in matrices)


def _before_barriers(matrix: StageMatrix, calls: Mapping[int, Ints]) -> dict[int, Floats]:
    if matrix.ends is None or not all(rank in calls for rank in matrix.ranks):
        return {}
    found: dict[int, Floats] = defaultdict(lambda: np.full(matrix.walls.shape, np.nan))
    for place, rank in enumerate(matrix.ranks):
        ends = matrix.ends[:, :, place] + matrix.epoch_ns
        begins = ends - matrix.durations[:, :, place].astype(np.int64)
        last = np.searchsorted(calls[rank], ends, side="right") - 1
        called = calls[rank][np.maximum(last, 0)]
        for row, column in np.argwhere((last >= 0) & (called >= begins)).tolist():
            found[column][row, place] = called[row, column] - begins[row, column]
    return {column: own for column, own in found.items() if _ends_stage(own, column, matrix)}


def _ends_stage(own: Floats, column: int, matrix: StageMatrix) -> bool:
    """Whether a call is made in the stage by nearly all, and the last one to make it leaves the stage with it.

    A rank that left no stages may be the last one mostly, as the first rank is that logs for all: then some steps show it.
    """
    whole = np.isfinite(own).all(axis=1)
    if whole.mean() < _LEAST_KNOWN:
        return False
    rest = np.sort((matrix.durations[:, column] - own)[whole].min(axis=1))
    shown = rest[min(_LEAST_SHOWN, len(rest)) - 1] if matrix.missing else np.median(rest)
    return float(shown) <= _AT_ONCE * float(np.median(matrix.walls))
