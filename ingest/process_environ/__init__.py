"""The environment of a process as people save it: /proc/PID/environ, with its zero bytes or as lines (docs/formats).

Only what shows the rank is kept: environments hold passwords. The number of the process is in the name of the file or of its
folder; of several processes in one text it stands in a line above each, or in front of each variable.
"""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping
from pathlib import PurePosixPath
from typing import Any

from forensics.bundle.artefact import Artefact
from forensics.bundle.claims import claim
from forensics.ingest._shared.config import config_batches
from forensics.ingest._shared.content import read_document
from forensics.ingest.interface import Batch, Identity, Ingester, Item, Problem

_VARIABLE = re.compile(rb"(?:^|[\n\0])(?:export )?([A-Za-z_][A-Za-z0-9_]{0,127})=([^\n\0]*)")
_TELLING = re.compile(rb"(?:^|[\n\0])(?:RANK|LOCAL_RANK|SLURM_PROCID|OMPI_COMM_WORLD_RANK|PMI_RANK)=\d{1,7}\s*(?=[\n\0]|$)")
_NUMBER = re.compile(r"(?<!\d)\d{2,9}(?!\d)")
_LEAST = 3
# "== 20933", "# PID 20933 ===", "/proc/20933/environ:"
_HEADING = re.compile(rb"[=#*>\s-]{0,12}(?:(?i:pid)[ :=]{0,3}|/proc/)?(\d{2,9})(?:/environ)?[ :=#*<-]{0,12}")
_IN_FRONT = re.compile(
    rb"(?:(?i:pid)[ :=]{0,3}|/proc/)?(\d{2,9})(?:/environ)?(?::[ \t]{0,4}|[ \t]{1,8})(?=[A-Za-z_][A-Za-z0-9_]{0,127}=)"
)
# "node-3:", "=== node-3 ===", above the processes of a host
_OF_HOST = re.compile(rb"[=#*\s-]{0,12}((?=[\w.-]{0,252}\d)[A-Za-z][\w.-]{0,252})(?::|(?<=\d)[ ]?[=#*-]{2,12})\s*")
_COMMAND = re.compile(rb"/proc/\d{1,9}/environ")
_VARIABLES = re.compile(rb"(?<!\S)([A-Z_][A-Z0-9_]{0,127})=(\S*)")


def sniff(head: bytes, path: str) -> int:
    """Variables, most of all lines, and one of them a rank."""
    if b"RANK=" in head and b"\0" not in head and _several(head):
        return 88
    if not ((b"RANK=" in head or b"PROCID=" in head) and _TELLING.search(head)):
        return 0
    parts = [part for part in re.split(rb"[\n\0]", head) if part.strip()]
    count = len(_VARIABLE.findall(head))
    # What `grep RANK` leaves of an environment are few, and nothing else.
    return 88 if count >= (0.9 * (len(parts) - 1) if count >= _LEAST else len(parts)) else 0


def rows(artefact: Artefact) -> Iterator[Item]:
    """The rank of the process, and the size of the job."""
    content = read_document(artefact)
    if isinstance(content, Problem):
        yield content
        return
    if b"\0" not in content and (found := _several(content)):
        yield from _of_several(found)
        return
    said = claim({name.decode(): value.decode("utf-8", "replace").strip() for name, value in _VARIABLE.findall(content)})
    pid = artefact.pid or _pid(artefact.path)
    if said is None or pid is None:
        if _COMMAND.search(content):
            return  # of the processes named there, which are read in texts of any kind
        yield Problem("no number of a process in its name" if said else "no variable that gives a rank")
        return
    yield Identity(rank=said.rank)
    yield Batch("ranks", {"rank": [said.rank], "local_rank": [said.local_rank], "pid": [pid], "rank_method": [said.method]})
    yield from config_batches({"world_size": said.world_size}, rank=said.rank)


def _several(content: bytes) -> dict[tuple[str | None, int], dict[str, str]]:
    """Variables of each process by host and number, where these set them apart; nothing where other lines stand between."""
    found: dict[tuple[str | None, int], dict[str, str]] = defaultdict(dict)
    host: str | None = None
    pid, others = None, 0
    for line in content.splitlines():
        if of_host := _OF_HOST.fullmatch(line):
            host, pid = of_host[1].decode(), None
            continue
        if heading := _HEADING.fullmatch(line):
            pid = int(heading[1])
            continue
        front = _IN_FRONT.match(line)
        owner = int(front[1]) if front else pid
        variables = _VARIABLES.findall(line[front.end() if front else 0 :])
        if owner is not None and variables:
            found[host, owner] |= {name.decode(): value.decode("utf-8", "replace") for name, value in variables}
        else:
            others += bool(line.strip())
    return found if len(found) > 1 and others < len(found) else {}


def _of_several(found: Mapping[tuple[str | None, int], Mapping[str, str]]) -> Iterator[Item]:
    """Each process that says its rank; two that say the same one are of several jobs, and tell nothing."""
    said = {process: stated for process, variables in found.items() if (stated := claim(variables)) is not None}
    times = Counter(stated.rank for stated in said.values())
    known = {process: stated for process, stated in said.items() if times[stated.rank] == 1}
    if len(known) < len(said):
        yield Problem("several processes of one rank: of several jobs, or of the children of a rank")
    if known:
        columns: dict[str, list[Any]] = {
            "rank": [one.rank for one in known.values()],
            "local_rank": [one.local_rank for one in known.values()],
            "rank_method": [one.method for one in known.values()],
        }
        hosts: dict[str, list[Any]] = {"host": [host for host, _ in known]} if all(host for host, _ in known) else {}
        yield Batch("ranks", {**columns, **hosts, "pid": [pid for _, pid in known]})
    sizes = {one.world_size for one in known.values()}
    yield from config_batches({"world_size": sizes.pop() if len(sizes) == 1 else None}, rank=None)


def _pid(path: str) -> int | None:
    """The last number in the name of the file, else in that of its folder."""
    named = PurePosixPath(path)
    numbers = _NUMBER.findall(named.name) or _NUMBER.findall(named.parent.name)
    return int(numbers[-1]) if numbers else None


INGESTER = Ingester("process_environ", "processes", sniff, rows, most=88)
