"""NCCL RAS reports as JSON (docs/formats/nccl-ras.md), from NCCL 2.28.7 on.

Written by the RAS thread of any NCCL process in answer to `SET FORMAT json` and `VERBOSE STATUS` (`ncclras -f json`); upstream
`src/ras/client_support.cc` (rasDumpCommsToJSON), read at 2.28.7 to 2.30.7. A report is of the whole job, whoever answers.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from forensics.bundle.artefact import Artefact
from forensics.ingest._shared.content import parse_json, read_document
from forensics.ingest._shared.values import boolean, integer, objects, rank_number, text
from forensics.ingest.interface import Batch, Ingester, Item, Problem
from forensics.ingest.nccl_ras.rows import IN_PROGRESS, Group, Rows, hash_of, kind_of, report

_MAX_KINDS = 64
# 2.28.7 and 2.28.9 write missing ranks without the comma before their status: no JSON, just when something is missing.
_NO_COMMA = re.compile(rb'("nvml_dev": -?\d{1,9})(\s{1,64}"status")')
_MARKS = (b'"communicators_count"', b'"communicators"', b'"cuda_driver_version"', b'"cuda_runtime_version"')


def sniff(head: bytes, path: str) -> int:
    """A JSON object that begins with the versions and the communicators of a report."""
    is_object = head.removeprefix(b"\xef\xbb\xbf").lstrip()[:1] == b"{"
    return 95 if is_object and b'"nccl_version"' in head and sum(mark in head for mark in _MARKS) >= 2 else 0


def rows(artefact: Artefact) -> Iterator[Item]:
    """The report, and a row for each rank of each communicator and kind of collective."""
    document = _document(artefact)
    if isinstance(document, Problem):
        yield document
        return
    snapshot = artefact.sample or 0
    found = objects(document.get("communicators"))
    declared = integer(document.get("communicators_count"))
    if declared is not None and declared != len(found):
        yield Problem(f"{len(found)} communicators instead of {declared}")
    table = Rows(snapshot)
    for number, communicator in enumerate(found):
        yield from _communicator(table, communicator, f"communicator={number}")
    yield _report(document, snapshot, len(found) if declared is None else declared)
    yield from table.batches()


def _document(artefact: Artefact) -> dict[str, Any] | Problem:
    """The report as an object, with the missing commas put in where that makes it one."""
    content = read_document(artefact)
    if isinstance(content, Problem):
        return content
    value = parse_json(content)
    if isinstance(value, Problem):
        repaired = parse_json(_NO_COMMA.sub(rb"\1,\2", content))
        value = value if isinstance(repaired, Problem) else repaired
    return value if isinstance(value, (dict, Problem)) else Problem("not a JSON object", "byte=0", fatal=True)


def _report(document: Mapping[str, Any], snapshot: int, communicators: int) -> Batch:
    service = document.get("ras")
    service = service if isinstance(service, dict) else {}
    return report(
        snapshot,
        form="json",
        taken=text(document.get("timestamp")),
        nccl_version=text(document.get("nccl_version")),
        communicators=communicators,
        timeouts=integer(service.get("timeouts_count")),
    )


def _communicator(table: Rows, communicator: dict[str, Any], place: str) -> Iterator[Problem]:
    digits = hash_of(text(communicator.get("hash")) or "")
    if digits is None:
        yield Problem("a communicator without a hash; left out", place)
        return
    group = Group(digits, text(communicator.get("secondary_hash")), integer(communicator.get("size")))
    ranks = [rank for rank in objects(communicator.get("ranks")) if rank_number(rank.get("rank")) is not None]
    counts = [_counts(rank) for rank in ranks]
    # Of the five kinds a communicator uses one or two: a kind that no rank launched has no rows. Each rank tells all of
    # them, and has no rows for what it does not tell.
    used = {kind for launched in counts for kind, count in launched.items() if count}
    for rank, launched in zip(ranks, counts, strict=True):
        _rank(table, group, place, rank, {kind: launched[kind] for kind in sorted(launched.keys() & used)})
    for rank in objects(communicator.get("missing_ranks")):
        number = rank_number(rank.get("rank"))
        table.add(group, f"{place},rank={number}", **_process(rank), status=_missing(rank.get("status")))
    size = integer(communicator.get("ranks_count"))
    if size is not None and size != len(ranks):
        yield Problem(f"{len(ranks)} ranks instead of {size}", place)


def _counts(rank: Mapping[str, Any]) -> dict[str, int | None]:
    counts = rank.get("collective_counts")
    pairs: Sequence[tuple[str, Any]] = list(counts.items())[:_MAX_KINDS] if isinstance(counts, dict) else []
    return {kind_of(name): integer(count) for name, count in pairs}


def _rank(table: Rows, group: Group, place: str, rank: dict[str, Any], counts: Mapping[str, int | None]) -> None:
    """A rank that answered: one row for each kind that its communicator used, one without a kind when it used none."""
    flags = rank.get("status")
    flags = flags if isinstance(flags, dict) else {}
    facts = {
        **_process(rank),
        "status": _status(flags),
        "init_state": integer(flags.get("init_state")),
        "async_error": integer(flags.get("async_error")),
    }
    locator = f"{place},rank={rank_number(rank.get('rank'))}"
    for kind, launched in counts.items():
        table.add(group, locator, **facts, kind=kind, launched=launched)
    if not counts:
        table.add(group, locator, **facts, launched=0 if isinstance(rank.get("collective_counts"), dict) else None)


def _process(rank: Mapping[str, Any]) -> dict[str, Any]:
    """Who the rank is: its number in the communicator, and its process; NCCL writes -1 and `unknown` for a process it lost."""
    pid = integer(rank.get("pid"))
    address = text(rank.get("host"))
    return {
        "comm_rank": rank_number(rank.get("rank")),
        "address": None if address in ("unknown", "") else address,
        "pid": pid if pid is not None and pid > 0 else None,
        "device": integer(rank.get("nvml_dev")),
    }


def _status(flags: Mapping[str, Any]) -> str | None:
    """The word of the text form for the flags of a rank, in NCCL's own order of precedence."""
    if boolean(flags.get("abort_flag")):
        return "abort"
    if boolean(flags.get("finalize_called")) or boolean(flags.get("destroy_flag")):
        return "finalize"
    state = integer(flags.get("init_state"))
    if state is None:
        return None
    return "running" if state == 0 else "init" if state == IN_PROGRESS else "init_failed"


def _missing(flags: Any) -> str:
    """dead, unresponsive, or nocomm: the process answered and is no member (any more)."""
    known = flags if isinstance(flags, dict) else {}
    if boolean(known.get("considered_dead")):
        return "dead"
    return "nocomm" if boolean(known.get("unresponsive")) is False else "unresponsive"


INGESTER = Ingester("nccl_ras", "nccl_ras", sniff, rows, most=95)
