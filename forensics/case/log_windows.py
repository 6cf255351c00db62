"""Reads only the end of large logs of the collector: as much of it as some of them show to matter (Mycroft, 4.3 and 5.1).

A fault anywhere reaches every rank within a step. So a few logs, read whole, tell when the job went wrong, and of all logs that
part is read which lies around that moment, counted from the end of each, for hosts agree on no time.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import replace

from forensics.bundle.artefact import Artefact
from forensics.case.database import Connection

Judge = Callable[[Connection], int | None]
"""From a case of some logs, how much of every log has to be read: ns before its end; None for all of it."""

LEAST_LOGS, LEAST_BYTES = 64, 256 << 20
"""Fewer logs, or smaller ones, are read whole: it costs less than to ask some of them first."""
_SAMPLED = 16
_LOG = re.compile(r"\.\d{1,10}\.\d{1,20}\.frx(?:\.zst)?$")


def sampled_logs(artefacts: Sequence[Artefact]) -> list[Artefact]:
    """Logs at equal distances, with respect to their ranks; none where there is too little to read."""
    logs = sorted(filter(_is_log, artefacts), key=lambda each: (-1 if each.rank is None else each.rank, each.path))
    if len(logs) < LEAST_LOGS or sum(log.stored_bytes for log in logs) < LEAST_BYTES:
        return []
    return logs[:: -(-len(logs) // _SAMPLED)]


def ends_only(artefacts: Sequence[Artefact], newest_ns: int | None) -> list[Artefact]:
    """The artefacts, of the logs among them that much before the end."""
    return [replace(each, newest_ns=newest_ns) if _is_log(each) else each for each in artefacts]


def _is_log(artefact: Artefact) -> bool:
    return artefact.shard is None and artefact.summary is None and _LOG.search(artefact.path) is not None
