"""The rank that a process states of itself in a file of its own, where no line has a label: once, when it starts.

`| distributed init (rank 3): env://` of detr and its heirs, Lightning's `GLOBAL_RANK: 3, MEMBER: 4/8`, `Process index: 3` of
accelerate, an environment with `RANK=3 LOCAL_RANK=1`, and the configuration that wandb notes in debug.log. Whether the whole
file is of that process, the other files show.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from forensics.ingest._job_logs.patterns import mentions
from forensics.ingest._shared.config import config_rows
from forensics.ingest.interface import Batch

WORDS = ("distributed init (rank ", "GLOBAL_RANK: ", "Process index: ", "LOCAL_RANK=", "] config: {")
_STATED = re.compile(
    r"distributed init \(rank (?P<init>\d{1,7})\)|GLOBAL_RANK: (?P<member>\d{1,7}), MEMBER: "
    r"|^Process index: (?P<index>\d{1,7})$"
)
_ENVIRONMENT = re.compile(r"(?<![A-Z_])RANK=(?P<rank>\d{1,7})\b")
_CONFIGURED = re.compile(r"\bwandb_init\.py:.{0,40}\] config: \{.*?'(?:RANK|rank|global_rank)': '?(?P<rank>\d{1,7})'?[,}]")


class OwnRanks:
    """Collects them over a file."""

    def __init__(self) -> None:
        self._found: set[str] = set()

    def feed(self, line: str) -> None:
        """Take one line without a label or a rank in front."""
        if not mentions(line, WORDS):
            return
        if stated := _STATED.search(line):
            self._found.add(stated["init"] or stated["member"] or stated["index"])
        elif "LOCAL_RANK=" in line and (told := _ENVIRONMENT.search(line)):
            self._found.add(told["rank"])
        elif configured := _CONFIGURED.search(line):
            self._found.add(configured["rank"])

    def batches(self) -> Iterator[Batch]:
        """The one rank that is stated."""
        if len(self._found) == 1:
            yield from config_rows([("log.own_rank", str(int(min(self._found))))], rank=None)
