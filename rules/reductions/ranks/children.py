"""Child processes of a rank as the kernel shows them: compilers and writers that no Python sampler can look into."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass
from typing import NewType

from duckdb import DuckDBPyConnection

from forensics.case.database import rows_of
from forensics.rules.reductions.interface import reduction
from forensics.rules.reductions.ranks.on_cpu import cpu_share

_BUSY = 0.5
_SHORT_OF_CPU = 0.05
_COMPILERS = re.compile(
    r"(?:cc|c\+\+|gcc|g\+\+|clang(?:\+\+)?(?:-\d+)?|cc1|cc1plus|as|ld|ld\.lld|lld|collect2|nvcc|cicc|ptxas|cudafe\+\+|fatbinary|nvlink"
    r"|hipcc|hip-clang|icpx|ninja|cmake|make|x86_64-\w[\w-]*|aarch64-\w[\w-]*)\Z"
)


@dataclass(frozen=True, slots=True)
class ChildProcess:
    """One child process in the newest samples; `cpu_share` is the share of the time on a CPU, None with a single sample.

    `states` are those of all samples of it, oldest first.
    """

    pid: int
    name: str
    state: str | None
    wchan: str | None
    cpu_share: float | None
    source: str
    states: tuple[str, ...] = ()

    @property
    def at_work(self) -> bool:
        """Whether it keeps a CPU busy; on a host short of CPU it gets less, and is ready to run whenever it is looked at."""
        ready = len(self.states) > 1 and set(self.states) == {"R"}
        return self.running and self.cpu_share is not None and self.cpu_share >= (_SHORT_OF_CPU if ready else _BUSY)

    @property
    def gets_on(self) -> bool:
        """Whether it uses a CPU at all, as one that works in pieces or moves data does: who waits for it waits for that."""
        return self.running and self.cpu_share is not None and self.cpu_share >= _SHORT_OF_CPU

    @property
    def compiles(self) -> bool:
        """Whether it is a compiler, by its name."""
        return _COMPILERS.match(self.name) is not None

    @property
    def running(self) -> bool:
        """Whether the process is alive."""
        return self.state not in ("Z", "X", None)


ChildProcesses = NewType("ChildProcesses", Mapping[int, tuple[ChildProcess, ...]])
"""Child processes of each rank."""

_SAMPLES = """
SELECT p.rank, p.pid, p.name, p.state, p.wchan, p.cpu_ticks, p.time_ns, p.sample, s.path
FROM processes p JOIN sources s USING (source_id)
WHERE p.is_child AND p.thread = p.pid AND p.rank IS NOT NULL ORDER BY p.rank, p.pid, p.sample, s.path
"""
_LAST = "SELECT rank, max(sample) FROM processes WHERE rank IS NOT NULL GROUP BY rank"


@reduction
def child_processes(connection: DuckDBPyConnection) -> ChildProcesses:
    """Children that were there in the last sample of their rank, by rank."""
    last = dict(rows_of(connection, "processes", _LAST))
    samples: dict[tuple[int, int], list[tuple[object, ...]]] = defaultdict(list)
    for rank, pid, *sample in rows_of(connection, "processes", _SAMPLES):
        samples[rank, pid].append(tuple(sample))
    found: dict[int, list[ChildProcess]] = defaultdict(list)
    for (rank, pid), seen in sorted(samples.items()):
        name, state, wchan, _, _, newest, path = seen[-1]
        if newest == last[rank]:
            share = cpu_share([(sample[3], sample[4]) for sample in seen])  # type: ignore[misc]
            states = tuple(str(sample[1]) for sample in seen if sample[1])
            found[rank].append(ChildProcess(pid, str(name or ""), _text(state), _text(wchan), share, str(path), states))
    return ChildProcesses({rank: tuple(children) for rank, children in found.items()})


def _text(value: object) -> str | None:
    return None if value is None else str(value)
