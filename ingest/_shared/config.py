"""Rows of `job_config` from settings found in collection files."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import orjson

from forensics.ingest._shared.values import text
from forensics.ingest.interface import Batch


def config_batches(values: Mapping[str, Any], **constants: Any) -> Iterator[Batch]:
    """One row for each value that is not None; lists and objects as JSON text. `constants` fill whole columns."""
    found = {key: _shown(value) for key, value in values.items() if value is not None}
    rows = {key: value for key, value in found.items() if value is not None}
    yield from config_rows(rows.items(), **constants)


def config_rows(found: Iterable[tuple[str, str]], **constants: Any) -> Iterator[Batch]:
    """One row for each key and value, of which one key may have several. `constants` fill whole columns."""
    rows = list(found)
    if rows:
        keys, values = map(list, zip(*rows, strict=True))
        columns: dict[str, list[Any]] = {"key": keys, "value": values, "confidence": ["read"] * len(rows)}
        yield Batch("job_config", columns | {name: [value] * len(rows) for name, value in constants.items()})


def _shown(value: Any) -> str | None:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, (dict, list, float)):
        return orjson.dumps(value).decode()
    return text(value)
