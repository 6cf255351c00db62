"""The environment of a process as people save it: /proc/PID/environ, with its zero bytes or as lines (docs/formats).

Only what tells the rank is kept: environments hold passwords. The number of the process is in the name of the file or of its
folder.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import PurePosixPath

from forensics.bundle.artefact import Artefact
from forensics.bundle.claims import claim
from forensics.ingest._shared.config import config_batches
from forensics.ingest._shared.content import read_document
from forensics.ingest.interface import Batch, Identity, Ingester, Item, Problem

_VARIABLE = re.compile(rb"(?:^|[\n\0])(?:export )?([A-Za-z_][A-Za-z0-9_]{0,127})=([^\n\0]*)")
_TELLING = re.compile(rb"(?:^|[\n\0])(?:RANK|LOCAL_RANK|SLURM_PROCID|OMPI_COMM_WORLD_RANK|PMI_RANK)=\d{1,7}\s*(?=[\n\0]|$)")
_NUMBER = re.compile(r"(?<!\d)\d{2,9}(?!\d)")
_LEAST = 3


def sniff(head: bytes, path: str) -> int:
    """Variables, most of all lines, and one of them a rank."""
    if not _TELLING.search(head):
        return 0
    parts = [part for part in re.split(rb"[\n\0]", head) if part.strip()]
    return 88 if len(_VARIABLE.findall(head)) >= max(_LEAST, 0.9 * (len(parts) - 1)) else 0


def rows(artefact: Artefact) -> Iterator[Item]:
    """The rank of the process, and the size of the job."""
    content = read_document(artefact)
    if isinstance(content, Problem):
        yield content
        return
    said = claim({name.decode(): value.decode("utf-8", "replace").strip() for name, value in _VARIABLE.findall(content)})
    pid = artefact.pid or _pid(artefact.path)
    if said is None or pid is None:
        yield Problem("no number of a process in its name" if said else "no variable that gives a rank")
        return
    yield Identity(rank=said.rank)
    yield Batch("ranks", {"rank": [said.rank], "local_rank": [said.local_rank], "pid": [pid], "rank_method": [said.method]})
    yield from config_batches({"world_size": said.world_size}, rank=said.rank)


def _pid(path: str) -> int | None:
    """The last number in the name of the file, else in that of its folder."""
    named = PurePosixPath(path)
    numbers = _NUMBER.findall(named.name) or _NUMBER.findall(named.parent.name)
    return int(numbers[-1]) if numbers else None


INGESTER = Ingester("process_environ", "processes", sniff, rows)
