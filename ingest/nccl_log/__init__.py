"""Logs of NCCL alone, as NCCL_DEBUG_FILE writes them (docs/formats/nccl-log.md).

NCCL 2.14 to 2.30 are known; the front of a line is written in src/debug.cc of NVIDIA/nccl. One file may hold several processes.
"""

from __future__ import annotations

from collections.abc import Iterator

from forensics.bundle.artefact import Artefact
from forensics.ingest._job_logs.nccl_lines import FRONT
from forensics.ingest.interface import Ingester, Item


def sniff(head: bytes, path: str) -> int:
    """Most lines have NCCL's front; in a training log they are few."""
    if b"\0" in head or b" NCCL " not in head:
        return 0
    lines = [line for line in head.decode("utf-8", "replace").splitlines() if line.strip()]
    return 55 if 2 * sum(FRONT.search(line) is not None for line in lines) > len(lines) else 0


def rows(artefact: Artefact) -> Iterator[Item]:
    """What the lines tell. Their patterns take a tenth of a second to compile: not where there is no log."""
    from forensics.ingest._job_logs import reading

    return reading.rows(artefact)


INGESTER = Ingester("nccl_log", "nccl_log", sniff, rows, most=55)
