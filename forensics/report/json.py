"""The verdict as a JSON document: schema `forensics.verdict/1`, described in docs/verdict.md and docs/verdict.schema.json."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import asdict
from typing import Any

import orjson

import forensics
from forensics.model import Assessment, CoverageRow, Evidence, KnownDefect, Suspect, Verdict
from forensics.report import frontier

SCHEMA = "forensics.verdict/1"
"""Name of the schema; the number changes when a key is removed or its meaning changes, never when one is added."""


def render(verdict: Verdict) -> bytes:
    """The document as indented UTF-8 with a fixed key order, ending in a newline; what is not printable is escaped."""
    return encoded(document(verdict))


def encoded(tree: Any, option: int = orjson.OPT_INDENT_2) -> bytes:
    """Any such document in the same form; without the option, on one line."""
    option |= orjson.OPT_APPEND_NEWLINE
    try:
        return _printable(orjson.dumps(tree, option=option))
    except orjson.JSONEncodeError:
        return _printable(orjson.dumps(_encodable(tree), option=option))


_NOT_ASCII = re.compile(r"[^\n -~]")


def _printable(content: bytes) -> bytes:
    r"""The same values with control, format and bidirectional characters as `\u202e`: a terminal shows them, and obeys none."""
    if content.isascii() and b"\x7f" not in content:
        return content
    return _NOT_ASCII.sub(lambda found: _escaped(found[0]), content.decode()).encode()


def _escaped(char: str) -> str:
    """Characters beyond the first plane are a surrogate pair in JSON."""
    if char.isprintable():
        return char
    units = char.encode("utf-16-be")
    return "".join(f"\\u{units[i]:02x}{units[i + 1]:02x}" for i in range(0, len(units), 2))


def document(verdict: Verdict) -> dict[str, Any]:
    """The document as plain dictionaries and lists: the keys of the contract first, then those added since."""
    return {
        "schema": SCHEMA,
        "outcome": verdict.outcome,
        "since": asdict(verdict.since) if verdict.since else None,
        "suspects": [_with_evidence(suspect) for suspect in verdict.suspects],
        "victims": _rows(verdict.victims),
        "labels": [
            {"label": label.label, "axis": label.axis, "stage": label.stage, "reason": label.reason} for label in verdict.labels
        ],
        "frontier": frontier.document(verdict.frontier),
        "critical_path": asdict(verdict.critical_path) if verdict.critical_path else None,
        "coverage": _coverage(verdict.coverage),
        "not_checked": list(verdict.not_checked),
        "ruled_out": _rows(verdict.ruled_out),
        **_additions(verdict),
    }


def _additions(verdict: Verdict) -> dict[str, Any]:
    return {
        "summary": verdict.summary,
        "world_size": verdict.world_size,
        "tree": _rows(verdict.tree),
        "groups": _rows(verdict.groups),
        "timeline": _rows(verdict.timeline),
        "warnings": [_evidence(warning) for warning in verdict.warnings],
        "leads": list(verdict.leads),
        "would_change": list(verdict.would_change),
        "symptoms": _rows(verdict.symptoms),
        "last_lines": [_evidence(line) for line in verdict.last_lines],
        "assessments": [_with_evidence(each) for each in verdict.assessments],
        "known_defects": [_with_evidence(each) for each in verdict.known_defects],
        "clocks": _rows(verdict.clocks),
        "layout": asdict(verdict.layout) if verdict.layout else None,
        "incomplete_graph": asdict(verdict.incomplete_graph) if verdict.incomplete_graph else None,
        "bundle_sha256": verdict.bundle_sha256,
        "tool": f"forensics {forensics.__version__}",
    }


def _with_evidence(each: Suspect | Assessment | KnownDefect) -> dict[str, Any]:
    return asdict(each) | {"evidence": [_evidence(item) for item in each.evidence]}


def _evidence(item: Evidence) -> dict[str, Any]:
    return {"statement": item.statement, "for": item.supports, "source": item.source}


def _coverage(rows: Iterable[CoverageRow]) -> dict[str, list[dict[str, Any]]]:
    """The rows under their scope, `rank` or `host`."""
    by_scope: dict[str, list[dict[str, Any]]] = {}
    for row in rows:
        absent = [{"subject": subject, "reason": reason} for subject, reason in row.absent]
        entry = {"kind": row.kind, "present": list(row.present), "partial": list(row.partial), "absent": absent}
        by_scope.setdefault(row.scope, []).append(entry)
    return by_scope


def _rows(items: Iterable[Any]) -> list[dict[str, Any]]:
    return [asdict(item) for item in items]


def _encodable(value: Any) -> Any:
    """The same value with what JSON cannot hold (bytes that were no text) as visible escapes."""
    if isinstance(value, dict):
        return {key: _encodable(each) for key, each in value.items()}
    if isinstance(value, list | tuple):
        return [_encodable(each) for each in value]
    if isinstance(value, str):
        return value.encode(errors="backslashreplace").decode()
    return value
