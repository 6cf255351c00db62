"""What the programs of nccl-tests print: which process is which rank, and in which process a call of CUDA or NCCL failed.

`#  Rank  2 Group  0 Pid 153051 on  n2 device  0 [0xd4] NVIDIA H100` stands above the results; a failure prints what it was and,
below it, the process that met it. What NCCL reports is mostly the end of another process.
Upstream: src/common.h (`CUDACHECK`, `NCCLCHECK`, `TESTCHECK`) and src/common.cu of NVIDIA/nccl-tests, 2.0 to 2.17.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import NamedTuple

from forensics.ingest._job_logs.patterns import mentions
from forensics.ingest._job_logs.reports import MOST_RANKS
from forensics.ingest._shared.values import rank_number

WORDS = (" Pid ", ": Test CUDA failure ", ": Test NCCL failure ", ": Test failure ")
_DEVICE = re.compile(
    r"^# {1,8}Rank {1,8}(?P<rank>\d{1,7}) {1,8}(?:Group {1,8}\d{1,5} {1,8})?Pid {1,10}(?P<pid>\d{1,9}) on {1,64}"
    r"(?P<host>\S{1,253}) "
)
_FAILED = re.compile(r"(?P<host>\S{1,253}): Test (?P<of>CUDA|NCCL) failure \S{1,80}:\d{1,6} '(?P<what>[^'/]{1,200})")
_WHO = re.compile(r"^ ?\.\. (?P<host>\S{1,253}) pid (?P<pid>\d{1,9}): Test failure ")


class Failed(NamedTuple):
    """One failure: what an event of it says."""

    kind: str
    subject: str
    rank: int | None


class FailedTests:
    """Reads them; the failures of several processes may stand between each other."""

    def __init__(self) -> None:
        self._ranks: dict[tuple[str, int], int] = {}
        self._open: dict[str, tuple[str, str]] = {}

    def feed(self, line: str) -> Iterator[Failed]:
        """What this line completes."""
        if not mentions(line, WORDS):
            return
        if (device := _DEVICE.match(line)) and len(self._ranks) < MOST_RANKS:
            rank = rank_number(device["rank"])
            if rank is not None:
                self._ranks[device["host"], int(device["pid"])] = rank
        elif failed := _FAILED.search(line):
            self._open[failed["host"]] = failed["of"], failed["what"].strip()
        elif (who := _WHO.match(line)) and (said := self._open.pop(who["host"], None)):
            of, what = said
            subject = what if of == "CUDA" else f"NCCL error: {what}"
            yield Failed("fatal_error", subject, self._ranks.get((who["host"], int(who["pid"]))))
