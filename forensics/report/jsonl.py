"""The verdict as JSON lines: one fact a line, each with its kind, for log pipelines and databases.

The first line has `record` `verdict` and what is said once; then a line for each suspect, set of victims, caveat and so on, its
keys those of the JSON document (docs/verdict.md#json-lines). Every line names the bundle, so that lines of several
verdicts can be mixed.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from forensics.model import Verdict
from forensics.report import json

RECORDS: Mapping[str, str] = {
    "suspects": "suspect",
    "victims": "victims",
    "labels": "label",
    "symptoms": "symptom",
    "assessments": "assessment",
    "groups": "group",
    "tree": "stack",
    "timeline": "event",
    "known_defects": "known_defect",
    "last_lines": "last_line",
    "not_checked": "not_checked",
    "ruled_out": "rule",
    "would_change": "would_change",
    "warnings": "warning",
}
"""Lists of the document, and the kind of line that each of their entries is, in the order of the lines."""


def render(verdict: Verdict) -> bytes:
    """The lines in UTF-8, each an object that ends in a newline; the same verdict gives the same bytes."""
    return b"".join(json.encoded(record, option=0) for record in records(verdict))


def records(verdict: Verdict) -> Iterator[dict[str, Any]]:
    """The objects: what is said once, then the entries of each list."""
    document = json.document(verdict)
    bundle = {"bundle_sha256": document["bundle_sha256"]}
    lists = (*RECORDS, "coverage", "frontier")
    yield {"record": "verdict"} | {key: value for key, value in document.items() if key not in lists}
    for key, record in RECORDS.items():
        yield from ({"record": record} | bundle | _named(entry) for entry in document[key])
    for scope, rows in document["coverage"].items():
        yield from ({"record": "coverage", "scope": scope} | bundle | row for row in rows)
    for window in (document["frontier"] or {"windows": ()})["windows"]:
        yield {"record": "window"} | bundle | window


def _named(entry: Any) -> dict[str, Any]:
    """A list of the document may hold texts: they get a key."""
    return entry if isinstance(entry, dict) else {"text": entry}
