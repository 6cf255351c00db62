"""What a case holds of the things that known defects are recognised by: stated versions, frames, lines, variables."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence

from duckdb import DuckDBPyConnection

from forensics.case.database import rows_of
from forensics.model import Cause, Evidence, GroupRow, KnownDefect, Suspect
from forensics.rules.known_defects import Defect, Facts, Sign, catalogue, known_defects

_DIFFERENT_CALLS = (Cause.COLLECTIVE_MISMATCH, Cause.SHAPE_MISMATCH, Cause.EXTRA_OR_MISSING_COLLECTIVE, Cause.DEADLOCK)

# Programs say which library runs; a package beside it may be another one, and counts where nothing else is known.
_STATED = """
SELECT CASE
    WHEN key IN ('comm_lib_version', 'nccl_version', 'log.nccl_version') THEN 'nccl'
    WHEN key IN ('package.torch', 'log.torch_version') THEN 'torch'
    WHEN key IN ('gpu.driver_version', 'log.driver_version') THEN 'driver'
    WHEN key IN ('node.machine', 'log.machine') THEN 'machine'
    ELSE 'package' END AS what, value, min(path)
FROM (
    SELECT key, value, path FROM job_config JOIN sources USING (source_id)
    WHERE key IN ('comm_lib_version', 'nccl_version', 'log.nccl_version', 'package.torch', 'log.torch_version',
        'gpu.driver_version', 'log.driver_version', 'node.machine', 'log.machine') OR key LIKE 'package.nvidia_nccl_%'
    UNION ALL SELECT 'nccl_version', nccl_version, path FROM ras_reports JOIN sources USING (source_id)
) WHERE value <> '' GROUP BY ALL ORDER BY ALL
"""
_LINES = """
SELECT text, e.rank, path || coalesce('#line=' || locator, '') FROM (
    SELECT source_id, text, rank, locator FROM log_events WHERE NOT starts_with(kind, 'earlier_')
    UNION ALL SELECT source_id, text, NULL, locator FROM device_events
    UNION ALL SELECT source_id, value, NULL, NULL FROM job_config WHERE key = 'log.note'
) e JOIN sources s USING (source_id) WHERE regexp_matches(text, $line) ORDER BY path, locator, text LIMIT 64
"""
_PATHS = """
SELECT DISTINCT c.call_path, f.name FROM frames f JOIN call_paths c USING (frame) WHERE regexp_matches(f.name, $names)
"""
_THREADS = """
SELECT s.rank, min(o.path || '#' || s.locator), list(DISTINCT h.name) FROM stacks s JOIN sources o USING (source_id)
LEFT JOIN hit h USING (call_path) GROUP BY s.host, s.rank, s.pid, s.thread
HAVING count(DISTINCT h.name) > 0 AND count(DISTINCT s.sample) FILTER (h.name IS NULL) = 0 ORDER BY ALL
"""


def shown_defects(
    connection: DuckDBPyConnection, groups: tuple[GroupRow, ...], suspects: tuple[Suspect, ...]
) -> tuple[KnownDefect, ...]:
    """Public defects that a job shows; that a call stands says nothing where ranks called different things."""
    differ = any(suspect.cause in _DIFFERENT_CALLS for suspect in suspects)
    return known_defects(facts_of(connection, () if differ else groups, catalogue()))


def facts_of(connection: DuckDBPyConnection, groups: tuple[GroupRow, ...], defects: Iterable[Defect]) -> Facts:
    """Read what these defects ask for."""
    stated = _stated(connection)
    defects = tuple(defects)
    return Facts(
        versions={**stated, "nccl": stated["nccl"] or stated["package"]},
        machines=stated["machine"],
        frames=tuple(_frames(connection, {name for defect in defects for name in defect.frames})),
        lines=tuple(dict.fromkeys(_signs(connection, [line for defect in defects for line in defect.lines]))),
        calls=_nccl_only(connection, groups),
        environment=_environment(connection, {name for each in defects for name in (*each.environment, *each.unless)}),
    )


def _stated(connection: DuckDBPyConnection) -> defaultdict[str, tuple[Evidence, ...]]:
    found: defaultdict[str, tuple[Evidence, ...]] = defaultdict(tuple)
    for what, value, path in connection.execute(_STATED).fetchall():
        found[what] += (Evidence(value, path),)
    return found


def _frames(connection: DuckDBPyConnection, names: set[str]) -> Iterator[tuple[frozenset[str], Sign]]:
    """Threads that have some of the functions on their stack in each sample."""
    pattern = rf"\b(?:{'|'.join(sorted(names))})\b"
    paths = rows_of(connection, "frames", _PATHS, {"names": pattern})
    if not paths:
        return
    rows = ", ".join(f"({path}, '{found[0]}')" for path, name in paths if (found := re.search(pattern, name)))
    for rank, source, held in connection.execute(f"WITH hit(call_path, name) AS (VALUES {rows}) {_THREADS}").fetchall():
        functions = frozenset(name for name in held if name)
        ranks = () if rank is None else (rank,)
        yield functions, Sign(f"each sample of this thread is in {', '.join(sorted(functions))}", ranks, source)


def _signs(connection: DuckDBPyConnection, lines: Sequence[str]) -> Iterator[Sign]:
    """Lines of each form; a single look over all of them mostly finds none."""
    if any(_lines(connection, "|".join(f"(?:{line})" for line in lines))):
        for line in lines:
            yield from _lines(connection, line)


def _lines(connection: DuckDBPyConnection, line: str) -> Iterator[Sign]:
    for text, rank, source in connection.execute(_LINES, {"line": line}).fetchall():
        yield Sign(text, () if rank is None else (rank,), source)


def _nccl_only(connection: DuckDBPyConnection, groups: tuple[GroupRow, ...]) -> tuple[GroupRow, ...]:
    rows = rows_of(connection, "communicators", "SELECT communicator FROM communicators WHERE backend <> 'nccl'")
    others = {label for (label,) in rows}
    return tuple(row for row in groups if row.communicator not in others)


def _environment(connection: DuckDBPyConnection, names: set[str]) -> dict[str, frozenset[str]]:
    rows = connection.execute("SELECT DISTINCT key, value FROM job_config WHERE starts_with(key, 'env.')").fetchall()
    return {name: frozenset(value for key, value in rows if key == f"env.{name}") for name in sorted(names)}
