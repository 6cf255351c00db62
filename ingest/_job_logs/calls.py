"""Rows of `log_calls`: calls that a log speaks of one by one, so that those of several ranks can be compared.

NCCL notes each call with `NCCL_DEBUG_SUBSYS=COLL`: the newest of each process and communicator are kept. torch's
`TORCH_DISTRIBUTED_DEBUG=DETAIL` compares fingerprints before each call and prints two that differ.
Upstream: torch/csrc/distributed/c10d/ProcessGroupWrapper.cpp (`CollectiveFingerPrint`, torch 1.9 to 2.13).
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, fields
from typing import Any

from forensics.ingest._job_logs.patterns import mentions
from forensics.ingest._job_logs.positions import LogPosition
from forensics.ingest._shared.values import integer, rank_number
from forensics.ingest.interface import Batch

NEWEST = 64
"""Calls of one process in one communicator: hosts run ahead of a device that stands still by some dozens."""
WORDS = ("is running collective:", "running inconsistent collective:")
_FINGERPRINT = re.compile(
    r"Rank (?P<rank>\d{1,7}) is running (?:inconsistent )?collective: "
    r"(?:CollectiveFingerPrint\((?:SequenceNumber=(?P<number>\d{1,18}),? ?)?OpType=(?P<operation>\w{1,64})"
    r"(?:, TensorShape=\[(?P<shape>[\d, ]{0,400})\](?:, TensorDtypes=(?P<dtype>\w{1,32}))?)?|(?P<plain>[A-Z_]{2,64})\b)"
)
_MOST = 1 << 14


@dataclass(slots=True)
class LoggedCall:
    """One call; `number` is NCCL's opCount or torch's sequence number, `operation` NCCL's number of a reduction."""

    locator: int
    number: int | None
    kind: str
    sizes: str | None
    dtype: str | None = None
    root: int | None = None
    operation: int | None = None


@dataclass(slots=True)
class Fingerprints:
    """Collects the first fingerprint of each rank of a group, as torch prints them in pairs."""

    by_rank: dict[int, LoggedCall] = field(default_factory=dict)

    def feed(self, number: int, line: str) -> None:
        """Take one line."""
        if not mentions(line, WORDS):
            return
        for said in _FINGERPRINT.finditer(line):
            rank = rank_number(said["rank"])
            kind = (said["operation"] or said["plain"]).lower().lstrip("_")
            call = LoggedCall(number, integer(said["number"]), kind, said["shape"], said["dtype"])
            known = self.by_rank.get(rank) if rank is not None else None
            # The first versions print the shape of one side only; what the other rank prints fills it in.
            better = known is not None and known.sizes is None and (known.number, known.kind) == (call.number, call.kind)
            if rank is not None and (known is None or better) and len(self.by_rank) < _MOST:
                self.by_rank[rank] = call


def batch(
    made: Iterable[tuple[LogPosition, Iterable[LoggedCall]]],
    fingerprints: Mapping[int, LoggedCall],
    analysed: Iterable[tuple[str, int, LoggedCall]],
) -> Batch | None:
    """The rows: calls of NCCL with the process that made them, fingerprints by rank, and what an analyzer compared."""
    rows: list[tuple[str, str | None, int | None, int | None, str, LoggedCall]] = []
    for said, calls in made:
        rows += [("nccl", said.host, said.pid, said.rank, said.communicator, call) for call in calls if said.communicator]
    rows += [("fingerprint", None, None, rank, "default group", call) for rank, call in sorted(fingerprints.items())]
    rows += [("analysis", None, None, rank, name, call) for name, rank, call in analysed]
    names = ("origin", "host", "pid", "rank", "communicator")
    columns: dict[str, list[Any]] = {name: [row[place] for row in rows] for place, name in enumerate(names)}
    columns.update((known.name, [getattr(row[-1], known.name) for row in rows]) for known in fields(LoggedCall))
    return Batch("log_calls", columns) if rows else None
