"""Events of Kubernetes as `kubectl get events -o json` gives them, as rows of the table that it prints otherwise.

Upstream: `Event` of kubernetes/api/core/v1, and of events/v1, which calls the object and the text otherwise.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

_MOST = 100_000
_BEGIN = re.compile(rb"\s*[{\[]")
_MARKS = (b'"kind": "Event"', b'"kind":"Event"', b'"kind": "EventList"', b'"kind":"EventList"')


def is_document(head: bytes) -> bool:
    """Whether it begins as a list of events, or as one."""
    return _BEGIN.match(head) is not None and any(mark in head for mark in _MARKS)


def rows_of_document(document: Any) -> Iterator[str]:
    """A row for each event, the oldest first."""
    items = document.get("items", [document]) if isinstance(document, dict) else document
    events = [each for each in items if isinstance(each, dict)] if isinstance(items, list) else []
    for event in sorted(events[:_MOST], key=_moment):
        about = event.get("involvedObject") or event.get("regarding")
        if isinstance(about, dict) and isinstance(name := about.get("name"), str):
            what = f"{str(about.get('kind', '')).lower()}/{name}"
            text = " ".join(str(event.get("message") or event.get("note") or "").split())
            yield f"{_moment(event)} {event.get('type', 'Normal')} {event.get('reason', '')} {what} {text}"


def _moment(event: dict[str, Any]) -> str:
    """In ISO 8601, in UTC, which sorts as text."""
    about = event.get("metadata")
    created = about.get("creationTimestamp") if isinstance(about, dict) else None
    stated = (event.get("lastTimestamp"), event.get("eventTime"), created)
    return next((each for each in stated if isinstance(each, str)), "-")
