"""Lists of the hosts of a job, in the order of their ranks: hostfiles of DeepSpeed, MPI and Horovod, `scontrol show hostnames`.

Upstream: deepspeed/launcher/runner.py (fetch_hostfile), Open MPI's hostfile, MPICH's machine file, as of 2025.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from forensics.bundle.artefact import Artefact
from forensics.ingest._shared.content import Lines
from forensics.ingest.interface import Batch, Ingester, Item, Problem

MOST_HOSTS = 1 << 17
_NAME = r"(?P<host>(?=[\w.-]{0,252}[A-Za-z0-9])[A-Za-z0-9][\w.-]{0,252})"
_SLOTTED = re.compile(
    rf"{_NAME}(?:[ \t]+(?:slots|max[-_]slots)[ \t]*=[ \t]*(?P<slots>\d{{1,5}}).{{0,80}}|:(?P<count>\d{{1,5}}))"
)
_BARE = re.compile(_NAME)
_COMMAND = re.compile(r"(?:\$ |\S{1,80}[#$] ?)?scontrol show hostnames?\b.{0,200}")
_LONGEST = 400


def sniff(head: bytes, path: str) -> int:
    """Every line a host with its slots; bare names only below the command that lists them."""
    if b"\0" in head:
        return 0
    written = (line for line in head.decode("utf-8", "replace").splitlines() if _is_written(line))
    first = next(written, "")
    if not (_COMMAND.fullmatch(first) or _SLOTTED.fullmatch(first.strip())):
        return 0
    lines = [first, *written]
    if _COMMAND.fullmatch(lines[0]):
        return 60 if len(lines) > 1 and all(_BARE.fullmatch(line.strip()) for line in lines[1:]) else 0
    return 60 if all(_SLOTTED.fullmatch(line.strip()) for line in lines[:-1] or lines) else 0


def rows(artefact: Artefact) -> Iterator[Item]:
    """One row a host, in the order of the list; one that is listed again keeps its first place."""
    found: dict[str, int | None] = {}
    lines = Lines(artefact)
    for number, line in lines:
        if not _is_written(line) or _COMMAND.fullmatch(line):
            continue
        said = _SLOTTED.fullmatch(line.strip()) or _BARE.fullmatch(line.strip())
        if said is None:
            yield Problem("no host and its slots", f"line={number}")
        elif len(found) < MOST_HOSTS:
            slots = said.groupdict().get("slots") or said.groupdict().get("count")
            found.setdefault(said["host"], int(slots) if slots else None)
    if lines.problem is not None:
        yield lines.problem
    if found:
        yield Batch("nodes", {"host": list(found), "node": list(range(len(found))), "slots": list(found.values())})


def _is_written(line: str) -> bool:
    return bool(line.strip()) and not line.lstrip().startswith("#") and len(line) <= _LONGEST


INGESTER = Ingester("host_list", "host_list", sniff, rows, most=60)
