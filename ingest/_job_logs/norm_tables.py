"""The table of gradient norms by rank that a trainer prints when they differ after they were made equal: whose is odd.

Upstream: `_check_grad_norms` of fairseq/trainer.py (`grad_norm across the workers:`, then `rank   3 = 2.31000000`).
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from forensics.ingest._job_logs.nccl_tests import Failed
from forensics.ingest._job_logs.reports import MOST_RANKS

WORDS = ("grad_norm across the workers:",)
KIND = "norm_differs"
_ROW = re.compile(r"^rank {1,7}(?P<rank>\d{1,7}) = (?P<norm>-?(?:\d{1,20}\.\d{1,12}|nan|inf))$")
_LEAST = 3
"""Ranks of which one can be odd."""


class NormTables:
    """Reads them, the row of each rank below the other."""

    def __init__(self) -> None:
        self._norms: dict[int, str] | None = None

    @property
    def is_open(self) -> bool:
        """Whether rows may follow."""
        return self._norms is not None

    def feed(self, line: str) -> Iterator[Failed]:
        """The odd rank, once the line below the table is known."""
        if WORDS[0] in line:
            self._norms = {}
        elif self._norms is not None:
            if (row := _ROW.match(line)) and len(self._norms) < MOST_RANKS:
                self._norms[int(row["rank"])] = row["norm"]
                return
            norms, self._norms = self._norms, None
            yield from _odd(norms)


def _odd(norms: dict[int, str]) -> Iterator[Failed]:
    """The one rank whose norm is not that of all others, which have one."""
    ranks = sorted(norms, key=lambda rank: list(norms.values()).count(norms[rank]))
    if len(norms) >= _LEAST and len({*norms.values()}) == 2 and norms[ranks[0]] not in [norms[rank] for rank in ranks[1:]]:
        yield Failed(KIND, f"{norms[ranks[0]]} others={norms[ranks[1]]} count={len(norms) - 1}", ranks[0])
