"""Calls of NCCL as a library patched by Megatrace writes them, rank_R.log (docs/formats/megatrace-log.md).

Published by sii-research/Megatrace as a patch of NCCL 2.21.5 (trace/megatrace_nccl.patch, read at 0c0a8c8, October 2025). A
ring of text lines, written out when the process has made no call for a while: which calls were made, never how they ended.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from forensics.bundle.artefact import Artefact
from forensics.ingest._shared.content import Lines
from forensics.ingest._shared.values import integer, rank_number
from forensics.ingest.interface import Batch, Identity, Ingester, Item, Problem

_LINE = re.compile(
    r"\[save_count (?P<dump>\d{1,9})\] (?P<said>\[(?P<s>\d{1,10})\.(?P<ns>\d{9})\] \[Rank (?P<rank>-?\d{1,9})\] "
    r"Fun (?P<kind>\w{1,40}) Data (?P<count>\d{1,20}) "
    r"stream (?P<stream>0x[0-9a-f]{1,16}|\(nil\)) opCount (?P<number>-?\d{1,19})(?P<rest>.*))"
)
_HASH = re.compile(r" groupHash (-?\d{1,20})")
_HEAD = re.compile(rb"\[save_count \d{1,9}\] \[\d{1,10}\.\d{9}\] \[Rank -?\d{1,9}\] Fun ")
_WORD = re.compile(r"(?<=[a-z0-9])(?=[A-Z])")
LINE_CHARS = 127
"""The ring has 128 bytes a line; what is as long as that was cut, and a number at its end may lack digits."""
RING_LINES = 9_999
"""The ring has 10,000 places and keeps one free: a dump of that many had no room for what came before."""
_LEAST_DIGITS = 12
_ROWS = 50_000
_MAX_PROBLEMS = 20
_MAX_GROUPS = 1 << 12


def sniff(head: bytes, path: str) -> int:
    """The front of a line near the beginning: the first line may be damaged."""
    return 90 if _HEAD.search(head) else 0


@dataclass(slots=True)
class _File:
    """What the lines stated so far; `newest` is the last opCount of each communicator and rank, `dump` the dump they are of."""

    hashes: frozenset[str]
    columns: dict[str, list[Any]] = field(default_factory=lambda: defaultdict(list))
    ranks: set[int] = field(default_factory=set)
    newest: dict[tuple[str, int | None], int] = field(default_factory=dict)
    dump: int = 0
    dump_lines: int = 0
    full_dumps: int = 0
    lines: int = 0
    unplaced: int = 0
    skipped: int = 0
    refused: int = 0
    first_ns: int | None = None
    last_ns: int | None = None


def rows(artefact: Artefact) -> Iterator[Item]:
    """One operation a line, and what is missing between them."""
    found, lines = _File(_whole_hashes(artefact)), Lines(artefact)
    for number, line in lines:
        if not line.strip():
            continue
        match = _LINE.fullmatch(line)
        if match is None:
            found.refused += 1
            if found.refused <= _MAX_PROBLEMS:
                yield Problem("not a line of Megatrace: damaged, or cut", f"line={number}")
            continue
        _take(found, match, number)
        if len(found.columns["locator"]) >= _ROWS:
            yield Batch("operations", found.columns)
            found.columns = defaultdict(list)
    yield from _rest(found, lines.problem)


def _whole_hashes(artefact: Artefact) -> frozenset[str]:
    """Every groupHash of a line that is not cut; a cut one is shown by them."""
    found: set[str] = set()
    for _, line in Lines(artefact):
        match = _LINE.fullmatch(line)
        stated = _HASH.fullmatch(match["rest"]) if match is not None and len(match["said"]) < LINE_CHARS else None
        if stated is not None and len(found) < _MAX_GROUPS:
            found.add(stated[1])
    return frozenset(found)


def _take(found: _File, match: re.Match[str], number: int) -> None:
    """One line as a row of `operations`."""
    is_cut = len(match["said"]) >= LINE_CHARS
    communicator = _communicator(found, match["rest"], is_cut)
    # Digits at the end of a cut line may be missing; where text follows them they are whole.
    launch = None if is_cut and not match["rest"] else integer(match["number"])
    rank, time_ns = rank_number(match["rank"]), integer(int(match["s"]) * 1_000_000_000 + int(match["ns"]))
    values = {
        "locator": number,
        "rank": rank,
        "communicator": communicator,
        "pg_name": communicator,
        "backend": "nccl",
        "op_id": launch,
        "kind": _WORD.sub("_", match["kind"]).lower(),
        "is_p2p": match["kind"] in ("Send", "Recv"),
        "count": integer(match["count"]),
        "stream": _stream(match["stream"]),
        "entered_ns": time_ns,
        "state": "pending",
    }
    for name, value in values.items():
        found.columns[name].append(value)
    _count(found, int(match["dump"]), rank, communicator, launch)
    if time_ns is not None:
        found.first_ns = min(time_ns, time_ns if found.first_ns is None else found.first_ns)
        found.last_ns = max(time_ns, time_ns if found.last_ns is None else found.last_ns)


def _stream(text: str) -> int:
    """The pointer with its bits; glibc writes the default stream as (nil)."""
    bits = int(text, 16) if text.startswith("0x") else 0
    return bits - (1 << 64) if bits >= 1 << 63 else bits


def _communicator(found: _File, rest: str, is_cut: bool) -> str | None:
    """The label by the groupHash, which is the same on all members; that of a cut line only where one whole hash fits it."""
    stated = _HASH.fullmatch(rest)
    if stated is None:
        return None
    value: str | None = stated[1]
    if is_cut:
        fitting = [known for known in found.hashes if known.startswith(stated[1])] if len(stated[1]) >= _LEAST_DIGITS else []
        value = fitting[0] if len(fitting) == 1 else None
    return None if value is None else f"nccl:megatrace-{int(value) & (1 << 64) - 1:016x}"


def _count(found: _File, dump: int, rank: int | None, communicator: str | None, launch: int | None) -> None:
    """Lines of each dump, and launches that have none: the numbers of one communicator leave none out."""
    found.lines += 1
    found.dump_lines = found.dump_lines + 1 if dump == found.dump else 1
    found.dump = dump
    found.full_dumps += found.dump_lines == RING_LINES
    if rank is not None and len(found.ranks) < _MAX_GROUPS:
        found.ranks.add(rank)
    if communicator is None or launch is None:
        found.unplaced += communicator is None
        return
    key = (communicator, rank)
    last = found.newest.get(key)
    if last is None and len(found.newest) >= _MAX_GROUPS:
        return
    found.skipped += max(0, launch - last - 1) if last is not None else 0
    found.newest[key] = launch if last is None else max(last, launch)


def _rest(found: _File, end: Problem | None) -> Iterator[Item]:
    if found.columns["locator"]:
        yield Batch("operations", found.columns)
    if len(found.ranks) == 1:
        yield Identity(rank=min(found.ranks))
    if found.lines:
        yield _coverage(found)
    if found.refused > _MAX_PROBLEMS:
        yield Problem(f"{found.refused} lines in all could not be read")
    if end is not None:
        yield end


def _coverage(found: _File) -> Batch:
    """What the file leaves out; that it ends early is never stated: the last calls before a kill are not in it."""
    said = [
        f"{found.full_dumps} dumps filled the ring: older lines were overwritten" if found.full_dumps else None,
        f"{found.skipped} launches between the others have no line" if found.skipped and not found.unplaced else None,
        f"{found.unplaced} of {found.lines} lines do not state their communicator" if found.unplaced else None,
    ]
    reasons = [reason for reason in said if reason]
    columns: dict[str, list[Any]] = {
        "scope": ["rank"],
        "kind": ["megatrace_log"],
        "status": ["partial" if reasons else "ok"],
        "reason": ["; ".join(reasons) or None],
        "begin_ns": [found.first_ns],
        "end_ns": [found.last_ns],
    }
    return Batch("coverage", columns)


INGESTER = Ingester("megatrace_log", "megatrace_log", sniff, rows, most=90)
