"""What the board of a host wrote of its own faults: `ipmitool sel list` and `elist` (docs/formats/system-event-log.md).

Upstream: lib/ipmi_sel.c of ipmitool 1.8.18 and 1.8.19: a record number in hexadecimal, date, time, sensor, event, direction.
Times are of the clock of the board, as a rule UTC, or local time; newer ones name a zone.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterator
from datetime import datetime
from typing import Any

from forensics.bundle.artefact import Artefact
from forensics.ingest._shared.content import Lines
from forensics.ingest.interface import Batch, Ingester, Item, Problem

MAX_EVENTS, MAX_LINE = 100_000, 1024
_RECORD = re.compile(
    r"\s{0,8}[\da-f]{1,4} \| (?P<date>\d\d/\d\d/\d\d(?:\d\d)?) \| (?P<time>\d\d:\d\d:\d\d)(?: (?P<half>[AP]M))?(?: \w{2,5})? "
    r"\| (?P<sensor>[^|]{1,80}?) ?\| (?P<event>.{1,200}?)(?: \| (?P<way>Asserted|Deasserted))?\s*"
)
# What ends the work of a host, or a part of it; an error that was corrected does not.
_FAULT = re.compile(
    r"^Uncorrectable ECC|\bIERR\b|Thermal Trip|Machine Check|Bus Fatal Error|Fatal NMI|PCI SERR|Bus Uncorrectable", re.I
)
# What an operator may do as well.
_OFF = re.compile(
    r"^(?:Power off/down|S4/S5: soft-off|Hard reset|Power cycle|Power Supply AC lost|AC lost|Failure detected)\b", re.I
)
_BOOT = re.compile(r"^(?:C: |[A-Z]: )?boot completed|Initiated by power up", re.I)


def sniff(head: bytes, path: str) -> int:
    """Most lines are its records."""
    if b" | " not in head or b"\0" in head:
        return 0
    lines = [line for line in head.decode("utf-8", "replace").splitlines() if line.strip()]
    return 70 if lines and 2 * sum(_RECORD.fullmatch(line[:MAX_LINE]) is not None for line in lines) > len(lines) else 0


def rows(artefact: Artefact) -> Iterator[Item]:
    """A device event of each fault, loss of power and start of the host, dated in its text."""
    lines = Lines(artefact)
    columns: dict[str, list[Any]] = defaultdict(list)
    taken_back: set[tuple[str, str]] = set()
    for number, whole in lines:
        found = _RECORD.fullmatch(whole[:MAX_LINE].rstrip())
        kind = _kind(found["event"]) if found else None
        if found is None or kind is None:
            continue
        if len(columns["kind"]) >= MAX_EVENTS:
            yield Problem(f"more than {MAX_EVENTS} events; the rest was left out", f"line={number}")
            break
        if found["way"] == "Deasserted":
            taken_back.add((found["sensor"], found["event"]))
            continue
        row = {"locator": number, "time_ns": None, "host": artefact.host, "device": found["sensor"], "kind": kind, "code": None}
        for name, value in {**row, "text": f"{_date(found)} {found['event']}"}.items():
            columns[name].append(value)
    kept = [
        at
        for at, (sensor, text) in enumerate(zip(columns["device"], columns["text"], strict=True))
        if (sensor, text.partition(" ")[2]) not in taken_back
    ]
    if kept:
        yield Batch("device_events", {name: [values[at] for at in kept] for name, values in columns.items()})
    if lines.problem is not None:
        yield lines.problem


def _kind(event: str) -> str | None:
    named = (("host_fault", _FAULT), ("host_off", _OFF), ("host_started", _BOOT))
    return next((kind for kind, form in named if form.search(event)), None)


def _date(found: re.Match[str]) -> str:
    """In ISO 8601, as the board has it."""
    form = f"%m/%d/{'%Y' if len(found['date']) == 10 else '%y'} {'%I:%M:%S %p' if found['half'] else '%H:%M:%S'}"
    try:
        return datetime.strptime(" ".join(filter(None, found.group("date", "time", "half"))), form).isoformat()
    except ValueError:
        return "undated"


INGESTER = Ingester("system_event_log", "system_event_log", sniff, rows, most=70)
