"""Adds the configuration of the training that the user names to a case: it counts before what was found."""

from __future__ import annotations

from pathlib import Path

from forensics.case.database import Connection, insert_rows
from forensics.errors import ExitCode, ForensicsError
from forensics.ingest.interface import Batch, Problem
from forensics.ingest.training_config import INGESTER, MAX_BYTES, read_settings

GIVEN = "given"
"""Confidence of a setting from a file that the user named."""


def add_configuration(connection: Connection, path: Path) -> None:
    """Write the settings of a file into `job_config`, and what was wrong with it into `ingest_warnings`.

    Raises ForensicsError for a file that cannot be opened, is too large, or holds no setting of a training.
    """
    found = list(read_settings(_content(path)))
    settings = [
        row for item in found if isinstance(item, Batch) for row in zip(item.columns["key"], item.columns["value"], strict=True)
    ]
    problems = [(item.message, item.locator) for item in found if isinstance(item, Problem)]
    if not settings:
        why = problems[0][0] if problems else "empty"
        raise ForensicsError(f"{path}: {why}; what is read: docs/formats/training-config.md", ExitCode.USAGE)
    ((source,),) = connection.execute("SELECT coalesce(max(source_id), 0) + 1 FROM sources").fetchall()
    status, reason = ("partial", problems[0][0]) if problems else ("ok", None)
    row = (source, str(path), INGESTER.kind, INGESTER.name, status, len(settings), reason)
    insert_rows(connection, "sources", "source_id path kind parser status rows reason", [row])
    insert_rows(connection, "job_config", "source_id key value confidence", [(source, *each, GIVEN) for each in settings])
    warnings: list[tuple[object, ...]] = [(source, str(path), locator, message) for message, locator in problems]
    insert_rows(connection, "ingest_warnings", "source_id path locator message", warnings)


def _content(path: Path) -> bytes:
    """What the file holds."""
    try:
        with path.open("rb") as stream:
            content = stream.read(MAX_BYTES + 1)
    except OSError as error:
        raise ForensicsError(f"{path}: {error.strerror or error}", ExitCode.USAGE) from error
    if len(content) > MAX_BYTES:
        raise ForensicsError(f"{path}: larger than {MAX_BYTES} bytes: no configuration of a training", ExitCode.USAGE)
    return content
