"""How many ranks the job has, as its programs and launchers print it; sizes of groups within the job are passed over."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

from forensics.ingest.interface import Batch

WORDS = ("world_size", "world size", "WORLD_SIZE")
_STATED = re.compile(r"(?<![\w-])(?P<before>[\w-]{1,40}[ _-])?(?:world[_ ]size|WORLD_SIZE)[\"']?(?:=| ?: ?)(?P<size>\d{1,7})\b")
_WHOLE = re.compile(r"(?:using|with|the|total|global|INFO|and) ", re.IGNORECASE)


class StatedWorld:
    """Collects the sizes that a file states."""

    def __init__(self) -> None:
        self._sizes: set[int] = set()

    def feed(self, line: str) -> None:
        """Take one line."""
        if len(self._sizes) > 1 or not any(word in line for word in WORDS):
            return
        for said in _STATED.finditer(line):
            if said["before"] is None or _WHOLE.fullmatch(said["before"]):
                self._sizes.add(int(said["size"]))

    def batches(self) -> Iterator[Batch]:
        """Each size, one row; where they differ, some of them is that of a group."""
        for size in sorted(self._sizes):
            row: dict[str, Any] = {"key": "log.world_size", "value": str(size), "confidence": "read", "rank": None}
            yield Batch("job_config", {name: [value] for name, value in row.items()})
