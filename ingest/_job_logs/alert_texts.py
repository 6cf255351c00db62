"""Alerts of Prometheus as people get them by mail or chat: a list of labels below `Labels`, and whether they fire.

Upstream: template/default.tmpl of prometheus/alertmanager: ` - alertname = GpuXid` below `Labels:` in chats, below
`[1] Firing` in mails; `Annotations` follow.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from forensics.ingest._job_logs.alert_places import place_of
from forensics.ingest._job_logs.nccl_tests import Failed

WORDS = ("Labels", "Firing", "Resolved", "alertname = ", "Annotations")
_BEGIN = re.compile(r"Labels:?\s*")
_STATE = re.compile(r"(?:\[\d{1,5}\] |Alerts )?(?P<state>Firing|Resolved):?\s*")
_LABEL = re.compile(r"\s{0,4}(?:- )?(?P<name>[A-Za-z_]\w{0,63}) = (?P<value>[\w.:/-]{1,253})\s*")


class AlertTexts:
    """Reads them; `is_open` while labels may follow."""

    def __init__(self) -> None:
        self._fires = True
        self._labels: dict[str, str] | None = None

    @property
    def is_open(self) -> bool:
        """Whether labels may follow."""
        return self._labels is not None

    def feed(self, line: str) -> Iterator[Failed]:
        """An alert that fires, of a host that its labels name, once the line below them is known."""
        if state := _STATE.fullmatch(line):
            self._fires = state["state"] == "Firing"
        if _BEGIN.fullmatch(line):
            self._labels = {}
        elif self._labels is not None:
            if said := _LABEL.fullmatch(line):
                self._labels[said["name"]] = said["value"]
                return
            labels, self._labels = self._labels, None
            if self._fires and (place := place_of(labels)) and (name := labels.get("alertname")):
                yield Failed("alert", f"{place} {name}", None)
