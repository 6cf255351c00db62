"""The verdict as SARIF 2.1.0 (OASIS, 2020), for viewers and trackers that take findings of analysis tools.

A suspect is a result: its rule, a level by its confidence (`error` confirmed, `warning` likely, `note` suspect), its evidence
as locations. Artefacts are named by their path in the bundle, relative to `BUNDLE`. What could not be read is a notification.
A verdict without suspects is a run without results; its summary stands in the properties of the run.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Any
from urllib.parse import quote

import forensics
from forensics.model import Evidence, Suspect, Verdict
from forensics.report import json, ranks, suspects
from forensics.report.plain import plain
from forensics.rules.engine import discover

SCHEMA = "https://docs.oasis-open.org/sarif/sarif/v2.1.0/errata01/os/schemas/sarif-schema-2.1.0.json"
BASE = "BUNDLE"
_LEVELS = {"confirmed": "error", "likely": "warning", "suspect": "note"}
_LINE = re.compile(r"line=([1-9]\d{0,8})")
_PLACEHOLDER = re.compile(r"\{(\d+)\}")
_LINK = re.compile(r"\[(?=[^\]]*\]\()")
_UNKNOWN = "FX000"


def render(verdict: Verdict) -> bytes:
    """The log as indented UTF-8 JSON that ends in a newline; what is not printable is escaped."""
    return json.encoded({"$schema": SCHEMA, "version": "2.1.0", "runs": [_run(verdict)]})


def _run(verdict: Verdict) -> dict[str, Any]:
    codes = sorted({code for suspect in verdict.suspects for code in suspect.rules or (_UNKNOWN,)})
    properties = {"outcome": verdict.outcome, "summary": verdict.summary, "bundleSha256": verdict.bundle_sha256}
    return {
        "tool": {"driver": {"name": "forensics", "version": forensics.__version__, "rules": _rules(codes)}},
        "invocations": [{"executionSuccessful": True, "toolExecutionNotifications": _notifications(verdict.warnings)}],
        "originalUriBaseIds": {BASE: {"description": {"text": "the bundle that was diagnosed"}}},
        "results": [_result(suspect, codes) for suspect in verdict.suspects],
        "properties": properties | {"notChecked": list(verdict.not_checked)},
    }


def _rules(codes: Iterable[str]) -> list[dict[str, Any]]:
    known = {rule.code: rule for rule in discover()}
    return [{"id": code} | ({"name": known[code].name} if code in known else {}) for code in codes]


def _result(suspect: Suspect, codes: list[str]) -> dict[str, Any]:
    rule = next(iter(suspect.rules), _UNKNOWN)
    found = [item for item in suspect.evidence if item.supports]
    against = [item for item in suspect.evidence if not item.supports]
    statements = "; ".join(item.statement for item in found)
    return {
        "ruleId": rule,
        "ruleIndex": codes.index(rule),
        "level": _LEVELS[suspect.confidence],
        "message": _message(suspects.title(suspect) + (f": {statements}" if statements else "")),
        "locations": [_location(item) for item in found if item.source],
        "relatedLocations": [{"id": number} | _location(item) for number, item in enumerate(against, 1) if item.source],
        "properties": _properties(suspect),
    }


def _properties(suspect: Suspect) -> dict[str, Any]:
    return {
        "ranks": ranks.fold(suspect.ranks, None),
        "members": suspect.members,
        "hosts": list(suspect.hosts),
        "processes": [one.pid for one in suspect.processes],
        "stage": suspect.stage.name,
        "cause": suspect.cause,
        "confidence": suspect.confidence,
        "fault": suspect.fault,
        "nextSteps": list(suspect.next_steps),
    }


def _location(item: Evidence) -> dict[str, Any]:
    """The artefact, its line where the source is one, and the statement; other places inside stand in the text."""
    path, mark, place = (item.source or "").rpartition("#")
    if not mark or "=" not in place:
        path, place = item.source or "", ""
    physical: dict[str, Any] = {"artifactLocation": {"uri": _uri(path), "uriBaseId": BASE}}
    line = _LINE.fullmatch(place)
    if line:
        physical["region"] = {"startLine": int(line[1])}
    where = f" ({place})" if place and not line else ""
    return {"physicalLocation": physical, "message": _message(item.statement + where)}


def _message(text: str) -> dict[str, str]:
    """The text with no place for an argument and no link in it (sections 3.11.5 and 3.11.6)."""
    braces = _PLACEHOLDER.sub(r"{{\1}}", plain(text))
    return {"text": _LINK.sub(r"\\[", braces)}


def _uri(path: str) -> str:
    """The path as a relative reference of RFC 3986; a colon in its first part would make a scheme."""
    return quote(path.lstrip("/"), safe="/~", errors="replace") or "."


def _notifications(warnings: Iterable[Evidence]) -> list[dict[str, Any]]:
    return [
        {"level": "warning", "message": _message(item.statement), "locations": [_location(item)] if item.source else []}
        for item in warnings
    ]
