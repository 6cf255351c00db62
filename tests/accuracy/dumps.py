"""The Flight Recorder dumps of a bundle, and what must be changed in those of gloo before other analysers can read them.

gloo names no group in `pg_config`, reports every operation as scheduled, and counts unrecorded sends and receives in
`pg_status` (docs/formats/flight-recorder.md). Each repair favours the other analysers: it gives them facts that the files lack.
"""

from __future__ import annotations

import json
import pickle
import re
import tarfile
from collections import defaultdict
from collections.abc import Iterable, Mapping
from contextlib import closing
from pathlib import Path
from typing import Any

from forensics.case.build import open_case

Dump = dict[str, Any]
Members = Mapping[str, frozenset[int]]
"""Members of each group by its name."""

PREFIX = "rank_"
_DUMP = re.compile(r"ranks/(\d+)/fr/(\d+)\.json")
# The name of a collective that torchfrtrace knows and no job here uses: what it does not know makes it stop.
STRANGER = "allreduce_coalesced"


def latest(bundle: Path) -> dict[int, bytes]:
    """The last dump that the collector got of each rank, as the worker server answered."""
    found: dict[int, tuple[int, bytes]] = {}
    with tarfile.open(bundle) as archive:
        for member in archive.getmembers():
            match, handle = _DUMP.fullmatch(member.name), archive.extractfile(member)
            if match and handle:
                rank, number = map(int, match.groups())
                found[rank] = max(found.get(rank, (-1, b"")), (number, handle.read()))
    return {rank: content for rank, (_, content) in sorted(found.items())}


def members(bundle: Path) -> dict[str, frozenset[int]]:
    """The members of every group as forensics infers them from the whole bundle."""
    with closing(open_case([bundle])) as case:
        rows = case.execute("SELECT pg_name, rank FROM communicators JOIN members USING (communicator)").fetchall()
    groups: dict[str, set[int]] = defaultdict(set)
    for name, rank in rows:
        groups[name].add(rank)
    return {name: frozenset(ranks) for name, ranks in groups.items()}


def repaired(raw: Mapping[int, bytes], groups: Members, known: Iterable[str]) -> dict[int, Dump]:
    """The dumps with group names and members, with done operations as completed, and with counters of collectives only.

    `known` are the collectives that the reader of the dumps accepts.
    """
    dumps, names = {rank: json.loads(content) for rank, content in raw.items()}, frozenset(known)
    entries = {rank: [_entry(entry, names) for entry in dump.get("entries", ())] for rank, dump in dumps.items()}
    descriptions = dict(entry["process_group"] for found in entries.values() for entry in found)
    return {
        rank: {**dump, "entries": entries[rank], "pg_config": _groups_of(rank, groups, descriptions), "pg_status": status}
        for rank, dump in dumps.items()
        for status in [_status(entries[rank])]
    }


def _groups_of(rank: int, groups: Members, descriptions: Mapping[str, str]) -> dict[str, dict[str, str]]:
    own = {name: sorted(ranks) for name, ranks in groups.items() if rank in ranks}
    return {
        name: {"name": name, "desc": descriptions.get(name, "undefined"), "ranks": str(ranks)} for name, ranks in own.items()
    }


def _entry(entry: Mapping[str, Any], known: frozenset[str]) -> dict[str, Any]:
    backend, _, operation = entry["profiling_name"].partition(":")
    return {
        **entry,
        "process_group": tuple(entry["process_group"]),
        "profiling_name": f"{backend}:{operation if operation.split(' ')[0] in known else STRANGER}",
        "state": "completed" if entry["retired"] else "scheduled",
        "input_sizes": entry["input_sizes"] or [[]],
        "output_sizes": entry["output_sizes"] or [[]],
    }


def _status(entries: Iterable[Mapping[str, Any]]) -> dict[str, dict[str, int]]:
    """What NCCL would have counted: the collectives of each group, none of its sends and receives."""
    enqueued: dict[str, int] = defaultdict(lambda: -1)
    completed: dict[str, int] = defaultdict(lambda: -1)
    for entry in entries:
        key, number = str(entry["pg_id"]), entry["collective_seq_id"]
        enqueued[key] = max(enqueued[key], number)
        completed[key] = max(completed[key], number if entry["retired"] else -1)
    return {
        key: {
            "last_enqueued_collective": enqueued[key],
            "last_started_collective": -1,
            "last_completed_collective": completed[key],
        }
        for key in enqueued
    }


def write_pickles(dumps: Mapping[int, Dump], folder: Path) -> None:
    """Dumps as torch writes them to files, one a rank."""
    for rank, dump in dumps.items():
        (folder / f"{PREFIX}{rank}").write_bytes(pickle.dumps(dump, protocol=2))
