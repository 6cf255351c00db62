"""Whose the files are that torchrun writes for each process, `attempt_0/3/stderr.log`: 3 counts on its node only.

The rank of the job is known where a file of the same folder states its own (all processes of a node are as far from it as their
numbers are apart), or where the folder holds a process for each rank of the job. A start that another one followed tells
nothing of that one. Where no file names a rank or the size of the job, and one folder holds stacks of all its processes, their
numbers are taken for ranks, which they are in a job of one node: a guess, and said to be one.
Upstream: torch/distributed/elastic/multiprocessing/api.py (`DefaultLogsSpecs`).
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

from forensics.bundle.artefact import Artefact
from forensics.case.alignment import stated_world_sizes
from forensics.case.database import Connection, has_rows, insert_rows
from forensics.case.owners import give_log
from forensics.case.start_order import names_ranks
from forensics.ingest._shared.content import last_lines
from forensics.vocabulary import GUESSED

_PATH = re.compile(
    r"(?P<run>.*?)(?:^|/)attempt_(?P<attempt>\d{1,4})/(?P<local>\d{1,4})/(?:std(?:out|err)\.log|error\.json)"
    r"(?:\.(?:gz|zst|bz2|xz))?"
)
_FILES = "SELECT source_id, path, rank FROM sources WHERE path LIKE '%attempt_%' ORDER BY path"
_STATED = """
SELECT source_id, min(rank) FROM (
    SELECT source_id, rank FROM log_events UNION SELECT source_id, rank FROM log_progress
) WHERE rank IS NOT NULL GROUP BY source_id HAVING count(DISTINCT rank) = 1
"""
_FOLLOWED = "UPDATE log_events SET kind = 'earlier_' || kind WHERE source_id = ? AND NOT starts_with(kind, 'earlier_')"


_LABEL = re.compile(r"\n\[rank(\d{1,7})\]")
_MOST_READ, _LINES = 16, 64


class _File(NamedTuple):
    source_id: int
    local: int
    rank: int | None


def process_of(path: str) -> str | None:
    """The folder of one process; None for a path of another form."""
    return path.rpartition("/")[0] if _PATH.fullmatch(path) else None


def name_local_ranks(connection: Connection, artefacts: Mapping[int, Artefact]) -> None:
    """Give the files the ranks that are proven, and set those of earlier starts apart."""
    starts = _starts(connection)
    if not starts:
        return
    stated = {**_labelled(starts, artefacts), **dict(connection.execute(_STATED).fetchall())}
    sizes = stated_world_sizes(connection, "env.WORLD_SIZE")
    world = sizes.pop() if len(sizes) == len(starts) == 1 else None
    for attempts in starts.values():
        for attempt, files in attempts.items():
            for file, rank in _ranks(files, stated, world):
                give_log(connection, file.source_id, rank)
            for file in files if attempt < max(attempts) else ():
                connection.execute(_FOLLOWED, [file.source_id])


def guess_local_ranks(connection: Connection) -> None:
    """Take the numbers of the processes of one start for ranks, where nothing but stacks of all of them is known."""
    starts = _starts(connection) if has_rows(connection, "stacks") else {}
    if len(starts) != 1 or names_ranks(connection) or stated_world_sizes(connection, "env.WORLD_SIZE"):
        return
    ((_, attempts),) = starts.items()
    files = attempts[max(attempts)]
    with_stacks = {source_id for (source_id,) in connection.execute("SELECT DISTINCT source_id FROM stacks").fetchall()}
    sampled = {file.local: file.source_id for file in files if file.source_id in with_stacks}
    if len(sampled) < 2 or {*sampled} != {*range(len(sampled))}:
        return
    for file in files:
        give_log(connection, file.source_id, file.local, GUESSED)
    rows: list[tuple[object, ...]] = [(source_id, local, GUESSED) for local, source_id in sorted(sampled.items())]
    insert_rows(connection, "ranks", "source_id rank rank_method", rows)


def _starts(connection: Connection) -> dict[str, dict[int, list[_File]]]:
    """Files of every attempt of every run."""
    starts: dict[str, dict[int, list[_File]]] = defaultdict(lambda: defaultdict(list))
    for source_id, path, rank in connection.execute(_FILES).fetchall():
        if said := _PATH.fullmatch(path):
            starts[said["run"]][int(said["attempt"])].append(_File(source_id, int(said["local"]), rank))
    return starts


def _labelled(starts: Mapping[str, Mapping[int, Sequence[_File]]], artefacts: Mapping[int, Artefact]) -> dict[int, int]:
    """The one rank that stands in front of lines of a file, of a few files of each start."""
    found: dict[int, int] = {}
    for files in (files for attempts in starts.values() for files in attempts.values()):
        logs = [file.source_id for file in files if artefacts[file.source_id].path.endswith(".log")]
        for source_id in sorted(logs, key=lambda each: -artefacts[each].stored_bytes)[:_MOST_READ]:
            text = "\n".join(["", *last_lines(artefacts[source_id], _LINES)])
            ranks = {*_LABEL.findall(text)}
            found |= {source_id: int(ranks.pop())} if len(ranks) == 1 else {}
    return found


def _ranks(files: Sequence[_File], stated: Mapping[int, int], world: int | None) -> Iterator[tuple[_File, int]]:
    """Files of one start without a rank, and theirs."""
    known = {file: stated.get(file.source_id, file.rank) for file in files}
    offsets = {rank - file.local for file, rank in known.items() if rank is not None}
    if not offsets and {file.local for file in files} == {*range(world or 0)}:
        offsets = {0}
    if len(offsets) == 1 and min(offsets) >= 0:
        (offset,) = offsets
        yield from ((file, file.local + offset) for file in files if file.rank is None)
