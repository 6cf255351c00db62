"""Builds a case: every artefact is given to the ingester that knows it, and its facts become rows."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import replace
from pathlib import Path
from types import MappingProxyType
from typing import Any

from forensics.bundle.artefact import Artefact
from forensics.bundle.reader import Bundle, open_bundle
from forensics.case.admission import admit
from forensics.case.alignment import align
from forensics.case.columns import CaseWriter
from forensics.case.copies import RANKED, Copies
from forensics.case.database import SMALL_BYTES, Connection, existing_case, is_case_file, new_case, schema_columns
from forensics.case.far_ends import name_far_ends
from forensics.case.log_windows import Judge, large_histories
from forensics.case.owners import NO_RANK
from forensics.case.reading import Reading
from forensics.case.reading import read_artefact as read_artefact
from forensics.case.sections import with_sections
from forensics.case.settle import settle_case
from forensics.case.shared_facts import SHARED, Met
from forensics.case.workers import readings
from forensics.errors import ExitCode, ForensicsError
from forensics.ingest.interface import Problem

Progress = Callable[[int, int, str], None]
"""Called with the artefacts done, their total, and the path of the next one."""

# A rank beyond this that equals the number of its own process is no rank, whatever the name of the file says.
LEAST_PID = 1000
# A bare number in the name of what tells of a host or its devices counts hosts, devices or files.
_OF_HOSTS = frozenset({"nic_epochs", "ib_counters", "kernel_log", "nvidia_smi", "gpu_table", "dcgm_metrics", "memory_use"})


def open_case(
    paths: Sequence[Path],
    case_file: Path | None = None,
    progress: Progress | None = None,
    names: Mapping[Path, str] = MappingProxyType({}),
    scheduler: str | None = None,
    judge: Judge | None = None,
) -> Connection:
    """The case of the given bundles, directories or files, in memory or in the new file `case_file`.

    `names` are those of files that have none of their own. `scheduler` is the address of a Dask cluster whose workers read.
    With a `judge` large histories of ranks are read as far back as some of them show to matter.
    A single case file (DuckDB) is copied into memory as it is. Raises ForensicsError for input that cannot be used at all.
    """
    if any(is_case_file(path) for path in paths):
        if len(paths) != 1 or case_file is not None:
            raise ForensicsError("a case file is opened alone: build a new case from the bundles instead", ExitCode.USAGE)
        return existing_case(paths[0])
    bundle = open_bundle(paths, names)
    if bundle.kind == "files":
        bundle = replace(bundle, artefacts=tuple(with_sections(bundle.artefacts)))
    if judge is not None:
        bundle = _ends_only(bundle, judge)
    connection = _filled(bundle, case_file, progress, scheduler)
    _refuse_what_is_no_evidence(connection, [names.get(path, str(path)) for path in paths])
    admit(connection)
    align(connection)
    return connection


def _filled(bundle: Bundle, case_file: Path | None, progress: Progress | None, scheduler: str | None) -> Connection:
    with _readings(bundle, scheduler) as found:
        size = sum(artefact.stored_bytes for artefact in bundle.artefacts)
        connection = new_case(case_file, size)
        writer = CaseWriter(connection, narrow=case_file is None and size >= SMALL_BYTES)
        _fill(bundle, found, connection, writer, progress)
    return connection


def _ends_only(bundle: Bundle, judge: Judge) -> Bundle:
    """The bundle, of its large histories only the ends where they suffice."""
    artefacts = bundle.artefacts
    for histories in large_histories(artefacts):
        artefacts = histories.ends(artefacts, _judged(replace(bundle, artefacts=histories.sample), judge))
    return replace(bundle, artefacts=artefacts)


def _judged(sample: Bundle, judge: Judge) -> int | None:
    """What the histories of some ranks say; their case is closed before processes are started that read the others."""
    connection = _filled(sample, None, None, None)
    try:
        admit(connection)
        align(connection)
        return judge(connection)
    finally:
        connection.close()


def _readings(bundle: Bundle, scheduler: str | None) -> AbstractContextManager[Iterator[Reading]]:
    if scheduler is None:
        return readings(bundle.artefacts, schema_columns())
    from forensics.case.cluster import readings_on_cluster

    return readings_on_cluster(bundle.artefacts, schema_columns(), scheduler)


def _refuse_what_is_no_evidence(connection: Connection, names: Sequence[str]) -> None:
    """Raise when no file is of a format that is read; a single file of one that holds nothing usable is refused as well."""
    ((files, known, usable, reason),) = connection.execute(
        """SELECT count(*), count(*) FILTER (status <> 'ignored'), count(*) FILTER (status IN ('ok', 'partial')),
            any_value(reason) FROM sources"""
    ).fetchall()
    if usable or known > 1 or (known and files > 1):
        return
    read = "a dump, a stack, a log, a trace or a report"
    whole = f"{reason}, not {read}" if files == 1 else f"none of {files} files is {read}"
    raise ForensicsError(f"{', '.join(names)}: no evidence: {whole}; what is read: docs/formats")


def build_case(bundle: Bundle, connection: Connection, progress: Progress | None = None) -> None:
    """Read every artefact of the bundle into the tables of an empty case, in path order."""
    with readings(bundle.artefacts, schema_columns()) as found:
        _fill(bundle, found, connection, CaseWriter(connection), progress)


def _fill(
    bundle: Bundle, found: Iterator[Reading], connection: Connection, writer: CaseWriter, progress: Progress | None
) -> None:
    met = Met()
    total = len(bundle.artefacts)
    _warn(writer, None, [(warning.path, warning.locator, warning.message) for warning in bundle.warnings])
    copies = Copies(bundle.artefacts)
    sources: list[dict[str, Any]] = []
    for source_id, artefact in enumerate(bundle.artefacts, start=1):
        if progress is not None:
            progress(source_id - 1, total, artefact.path)
        reading = copies.checked(artefact, next(found))
        if artefact.lines_before is not None and reading.parser is None:
            continue  # words between the outputs of commands
        sources.append(_write(writer, source_id, artefact, reading, bundle.damaged.get(artefact.path), met))
    if sources:
        writer.add("sources", {name: [source[name] for source in sources] for name in sources[0]}, {})
    facts = [("bundle.kind", bundle.kind), ("bundle.sha256", bundle.sha256)]
    known = [(key, value) for key, value in facts if value is not None]
    writer.add("job_config", {"key": [key for key, _ in known], "value": [value for _, value in known]}, {"confidence": "read"})
    writer.flush()
    name_far_ends(connection)
    settle_case(connection, dict(enumerate(bundle.artefacts, start=1)))


def _write(
    writer: CaseWriter, source_id: int, artefact: Artefact, reading: Reading, damage: str | None, met: Met
) -> dict[str, Any]:
    """Rows of one artefact and its warnings; gives its row of `sources`."""
    identity = reading.identity
    stated = None if _is_a_process(artefact, reading) or _is_of_a_host(artefact, reading) else artefact.rank
    rank = identity.rank if identity.rank is not None else stated
    method = "content" if identity.rank is not None else (None if rank is None else artefact.rank_method)
    host = identity.host or artefact.host
    fill = {"source_id": source_id, "rank": rank, "host": host}
    rows = 0
    for batch in met.without_known(reading.batches):
        count = writer.add(batch.table, batch.columns, fill)
        rows += 0 if batch.table in SHARED else count
    problems = list(reading.problems)
    if reading.kind in RANKED and rank is None and not _names_ranks(reading):
        subject = _of_which(reading)
        problems.append(Problem(f"{NO_RANK}{subject}: neither its content, nor a manifest, nor its path says one"))
    _warn(writer, source_id, [(artefact.path, problem.locator, problem.message) for problem in problems])
    status, reason = _status(reading, rows, damage)
    return {
        "source_id": source_id,
        "path": artefact.path,
        "kind": reading.kind,
        "parser": reading.parser,
        "host": host,
        "rank": rank,
        "rank_method": method,
        "captured_ns": artefact.captured_ns,
        "modified_ns": artefact.modified_ns,
        "sha256": artefact.sha256,
        "bytes": artefact.stored_bytes,
        "status": status,
        "rows": rows,
        "reason": reason,
    }


def _names_ranks(reading: Reading) -> bool:
    """Whether a text of stacks says itself which of them are of which rank."""
    return any(batch.table == "stacks" and "rank" in batch.columns for batch in reading.batches)


def _pids(reading: Reading) -> set[int]:
    """Process numbers that stacks say they are of."""
    columns = (batch.columns.get("pid", ()) for batch in reading.batches if batch.table == "stacks")
    return {int(pid) for column in columns for pid in column if pid is not None}


def _is_of_a_host(artefact: Artefact, reading: Reading) -> bool:
    """Whether the number in the name of a file that tells of a host says nothing of a rank."""
    return reading.kind in _OF_HOSTS and not artefact.has_stated_rank


def _is_a_process(artefact: Artefact, reading: Reading) -> bool:
    """Whether the number in the name of a file of stacks is that of its process, or counts files of processes."""
    is_bare = not artefact.has_stated_rank or (artefact.rank_method == "path" and (artefact.rank or 0) >= LEAST_PID)
    if reading.kind != "python_stacks" or not is_bare:
        return False
    if artefact.rank in _pids(reading):
        return True
    return not artefact.has_stated_rank and (len(_mains(reading)) > 1 or bool(_stated(reading) - {artefact.rank}))


def _stated(reading: Reading) -> set[int]:
    """Ranks that stacks say they are of, by headings or by what their processes are called."""
    columns = (batch.columns.get("rank", ()) for batch in reading.batches if batch.table == "stacks")
    return {int(rank) for column in columns for rank in column if rank is not None}


def _mains(reading: Reading) -> set[int]:
    """Processes of which a main thread is shown, and that are no children of another one."""
    found: set[int] = set()
    for batch in reading.batches:
        if batch.table == "stacks" and {"pid", "is_main", "is_child"} <= batch.columns.keys():
            rows = zip(batch.columns["pid"], batch.columns["is_main"], batch.columns["is_child"], strict=True)
            found |= {int(pid) for pid, is_main, is_child in rows if pid is not None and is_main and not is_child}
    return found


def _of_which(reading: Reading) -> str:
    pids = sorted(_pids(reading))
    return f" for {'process' if len(pids) == 1 else 'processes'} {', '.join(map(str, pids[:8]))}" if pids else ""


def _status(reading: Reading, rows: int, damage: str | None) -> tuple[str, str | None]:
    """ok, partial, rejected or ignored, with the reason when it is not ok."""
    fatal = next((problem.message for problem in reading.problems if problem.fatal), None)
    if fatal is not None:
        return ("partial" if rows else "rejected"), fatal
    if reading.parser is None:
        return "ignored", reading.reason
    first = reading.problems[0].message if reading.problems else damage
    return ("ok", None) if first is None else ("partial", first)


def _warn(writer: CaseWriter, source_id: int | None, warnings: Sequence[tuple[str | None, str | None, str]]) -> None:
    """Rows of `ingest_warnings`."""
    if warnings:
        paths, locators, messages = zip(*warnings, strict=True)
        writer.add("ingest_warnings", {"path": paths, "locator": locators, "message": messages}, {"source_id": source_id})
