"""How many cores the kernel lets the process of each rank run on: a pinned process is slow on a host with free cores."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import NewType

from duckdb import DuckDBPyConnection

from forensics.case.database import rows_of
from forensics.rules.reductions.hardware.apart import usual_of_others
from forensics.rules.reductions.interface import reduction

# Of what others have: fewer is no rounding of a launcher that deals out cores.
_FEW = 0.5

_LISTS = """
SELECT c.rank, max(c.value), min(s.path) FROM job_config c JOIN sources s USING (source_id)
WHERE c.key = 'process.cpus_allowed' AND c.rank IS NOT NULL GROUP BY c.rank HAVING count(DISTINCT c.value) = 1 ORDER BY c.rank
"""


@dataclass(frozen=True, slots=True)
class Allowed:
    """The cores that one process may run on (`Cpus_allowed_list` of its status), and where that stands."""

    cores: int
    source: str


@dataclass(frozen=True, slots=True)
class FewCores:
    """The most cores that one of some ranks may run on, and what the others usually may."""

    cores: int
    usual: int
    source: str


AllowedCores = NewType("AllowedCores", Mapping[int, Allowed])
"""What is known of it, by rank."""


@reduction
def allowed_cores(connection: DuckDBPyConnection) -> AllowedCores:
    """Count the cores of each list that can be read."""
    rows = rows_of(connection, "job_config", _LISTS, kinds=("process.cpus_allowed",))
    return AllowedCores({rank: Allowed(cores, path) for rank, text, path in rows if (cores := cores_in(text))})


def cores_in(text: str) -> int:
    """Cores of a list such as `0-11,24`; 0 where it is none."""
    try:
        ends = [[int(end) for end in part.split("-")] for part in text.split(",")]
    except ValueError:
        return 0
    return sum(end[-1] - end[0] + 1 for end in ends if end[-1] >= end[0] >= 0)


def fewer_cores(ranks: Collection[int], allowed: AllowedCores) -> FewCores | None:
    """That each of some slow ranks may run on half of the cores of the others at most; it accuses nobody by itself."""
    known = {rank: each.cores for rank, each in allowed.items()}
    usual = usual_of_others(ranks, known, lambda cores, usual: cores <= _FEW * usual)
    if usual is None:
        return None
    most = max((allowed[rank] for rank in ranks), key=lambda each: each.cores)
    return FewCores(most.cores, round(usual), most.source)
