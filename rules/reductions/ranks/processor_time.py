"""What the thread that runs the job used of processors in each rank, from sample to sample of the processes."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np
from duckdb import DuckDBPyConnection
from numpy.typing import NDArray

from forensics.case.database import rows_of
from forensics.rules.reductions.interface import reduction
from forensics.rules.reductions.ranks.main_threads import of_main_threads
from forensics.rules.reductions.ranks.on_cpu import NS_PER_TICK
from forensics.rules.reductions.stacks.samples import StacksByRank, working_threads

LEAST_INTERVALS = 3
"""One interval is long for a rank that does something once."""
LEAST_RANKS = 3
"""Of two ranks one always uses more, and nothing shows how much two that are alike differ."""
LEAST_RATIO = 1.3
"""Times what any other rank used: 1.08 at most in 21 sound jobs of four ranks, 1.43 at least in 22 slow ones."""
LEAST_LEAD = 1.1
"""Times what any other used in one interval: where all work at the time, the first is any of them."""
LEAST_PART = 0.05
"""Of the time: a job that could save less is not slow by this."""


@dataclass(frozen=True, slots=True)
class ProcessorTimes:
    """Seconds on processors of the thread that runs the job, shape (ranks, intervals between samples).

    `window_s` is the time from first to last sample of the rank for which that is shortest, `sources` the last sample of each.
    """

    ranks: tuple[int, ...] = ()
    used_s: NDArray[np.float64] = field(default_factory=lambda: np.empty((0, 0)))
    window_s: float = 0.0
    sources: Mapping[int, str] = field(default_factory=dict)

    def __bool__(self) -> bool:
        return self.used_s.size > 0


@dataclass(frozen=True, slots=True)
class MostUsed:
    """The rank that used clearly most in nearly every interval: its seconds, those of the next one, and the time."""

    rank: int
    used_s: float
    next_s: float
    window_s: float
    intervals: int
    source: str

    def describe(self) -> str:
        """The fact, for a sentence."""
        return (
            f"its main thread used {self.used_s:.1f} s of a processor in {self.window_s:.1f} s, "
            f"that of any other rank {self.next_s:.1f} s at most"
        )


_SAMPLES = """
SELECT p.rank, p.sample, any_value(cpu_ticks), any_value(time_ns), any_value(s.path)
FROM processes p JOIN sources s USING (source_id)
WHERE {main} AND p.is_child IS DISTINCT FROM true AND p.rank IS NOT NULL AND cpu_ticks IS NOT NULL AND time_ns IS NOT NULL
GROUP BY ALL HAVING count(*) = 1 ORDER BY ALL
"""


@reduction
def processor_times(connection: DuckDBPyConnection, stacks: StacksByRank) -> ProcessorTimes:
    """Times of all ranks that were sampled as often as the one that was sampled most; nothing where samples are too few."""
    query = _SAMPLES.format(main=of_main_threads(working_threads(stacks)))
    found = defaultdict[int, list[tuple[int, int, int, str]]](list)
    for rank, *sample in rows_of(connection, "processes", query):
        number, ticks, time_ns, path = sample
        found[rank].append((number, ticks, time_ns, path))
    most = max(map(len, found.values()), default=0)
    whole = {rank: samples for rank, samples in found.items() if len(samples) == most}
    if most <= LEAST_INTERVALS:
        return ProcessorTimes()
    ticks = np.array([[sample[1] for sample in samples] for samples in whole.values()], dtype=np.int64)
    window = min(samples[-1][2] - samples[0][2] for samples in whole.values())
    used = np.diff(ticks, axis=1) * (NS_PER_TICK / 1e9)
    return ProcessorTimes(tuple(whole), used, window / 1e9, {rank: samples[-1][3] for rank, samples in whole.items()})


def most_used(times: ProcessorTimes, least_ratio: float = LEAST_RATIO, least_part: float = LEAST_PART) -> MostUsed | None:
    """The rank that needed clearly more than any other, in all intervals but one.

    Ranks of one job need as much for each step where they do the same, however many of them share a core: what is more is work
    of this rank alone.
    """
    if len(times.ranks) < LEAST_RANKS or times.window_s <= 0:
        return None
    totals = times.used_s.sum(axis=1)
    first, second = np.argsort(totals)[::-1][:2]
    others = np.delete(times.used_s, first, axis=0).max(axis=0)
    is_most = times.used_s[first] > LEAST_LEAD * others
    own, following = float(totals[first]), float(totals[second])
    clearly = own >= least_ratio * following and own - following >= least_part * times.window_s
    if not clearly or is_most.sum() < len(is_most) - 1:
        return None
    rank = times.ranks[int(first)]
    return MostUsed(rank, own, following, times.window_s, len(is_most), times.sources[rank])
