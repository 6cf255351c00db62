"""That a server answered requests, by the access lines of uvicorn and what engines print of their throughput.

vllm/v1/metrics/loggers.py (`Avg generation throughput: 55.0 tokens/s`), sglang's scheduler (`gen throughput (token/s): 80.1`),
uvicorn's access log (`"POST /v1/completions HTTP/1.1" 200 OK`). One event a file, at the last such line.
"""

from __future__ import annotations

import re
from collections.abc import Collection

from forensics.ingest._job_logs.event_owners import LAUNCHER
from forensics.ingest._job_logs.event_rows import Events
from forensics.ingest._job_logs.line_origin import Origin

_MARKS = (b' HTTP/1.1" 200', b"generation throughput: ", b"gen throughput (token/s): ")
_ANSWERED = re.compile(
    rb'"(?:POST|GET) /[^\s"]{0,2048} HTTP/1\.1" 200\b|generation throughput: (?!0\.0 )\d[\d.]{0,12} tokens/s'
    rb"|gen throughput \(token/s\): (?!0\.0[0,])\d"
)


class Served:
    """Looks at blocks of whole lines."""

    def __init__(self) -> None:
        self._last: tuple[int, str] | None = None
        self._count = 0

    def survey(self, number: int, block: bytes) -> None:
        """Take whole lines, the first of which has this number."""
        if not any(mark in block for mark in _MARKS):
            return
        place = -1
        for found in _ANSWERED.finditer(block):
            place = found.start()
            self._count += 1
        if place >= 0:
            begin = block.rfind(b"\n", 0, place) + 1
            end = block.find(b"\n", place)
            text = block[begin : end if end >= 0 else len(block)].decode("utf-8", "replace")
            self._last = number + block.count(b"\n", 0, begin), text[:1024]

    def add_to(self, events: Events, workers: Collection[str], ranks: Collection[int]) -> None:
        """That the server answered, and which other workers, by label or rank, wrote anything where one of them ended."""
        if self._last:
            events.add(self._last[0], "served", f"{self._count} answers", self._last[1], None, Origin(None, LAUNCHER, "", 0))
        kinds = zip(events.labels, events.columns["kind"], strict=True)
        ended = {label for label, kind in kinds if kind == "fatal_error" and label in workers}
        for label in sorted({*workers} - ended) if ended else ():
            events.add(0, "heard", None, label, None, Origin(None, label, "", 0))
        raised = zip(events.columns["rank"], events.columns["kind"], strict=True)
        gone = {rank for rank, kind in raised if kind == "fatal_error" and rank in ranks}
        for rank in sorted({*ranks} - gone) if gone else ():
            events.add(0, "heard", None, f"rank {rank}", None, Origin(rank, None, "", 0))
