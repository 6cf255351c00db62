"""The one log of several that lacks the line which all others wrote last, of a job that somebody or something ended.

Ranks that write the same lines are compared by what they say and the first whole number in it (`step 412 backward started`).
Only lines whose form stands in every log count: the first rank has lines of its own. Of a job that goes on, one rank is always
the last to write a line: there, and where nothing tells, only a line counts that each of the others wrote once, as the last of
all, and that has no like in the one log.
"""

from __future__ import annotations

import re
from collections import Counter, deque
from collections.abc import Iterable, Iterator, Mapping
from typing import NamedTuple

from forensics.bundle.artefact import Artefact
from forensics.case.database import Connection, has_rows, insert_rows
from forensics.ingest._job_logs.front import front
from forensics.ingest._shared.content import Lines

_ENDED = ("job_cancelled", "watchdog_timeout", "barrier_timeout", "store_timeout", "stall_report", "transfer_timeout")
_FINISHED = ("job_finished",)
_LOGS = """
SELECT source_id, rank FROM sources WHERE kind = 'training_log' AND status IN ('ok', 'partial')
    AND source_id NOT IN (SELECT source_id FROM log_events WHERE kind = 'process_exit') ORDER BY source_id
"""
_LEAST_OTHERS, _MOST_LOGS = 3, 1 << 12
_MOST_BYTES = 1 << 20
_LINES = 1024
"""At the end of each log: what a watchdog and a traceback add behind the last line of the training is less."""
_LONGEST, _SHOWN = 512, 120
_WHOLE = re.compile(r"(?<![\w.,:/-])\d{1,12}(?![\w:/-]|[.,]\d)")
# Stands for the number in a form; logs are read without control characters.
_PLACE = "\x00"
_NUMBER = re.compile(r"\d[\d.,:]*")


class _Said(NamedTuple):
    """A line by its form and the first whole number in it."""

    form: str
    number: int


class _Log(NamedTuple):
    """Where each line of the end of a log stands last, and its last line."""

    places: Mapping[_Said, int]
    last: int


def mark_the_one_behind(connection: Connection, artefacts: Mapping[int, Artefact]) -> None:
    """Add `not_reached` for that log."""
    if has_rows(connection, "log_events", _FINISHED):
        return
    has_ended = has_rows(connection, "log_events", _ENDED)
    ranks = dict(connection.execute(_LOGS).fetchall())
    small = [source_id for source_id in ranks if artefacts[source_id].stored_bytes <= _MOST_BYTES]
    if not _LEAST_OTHERS < len(small) <= _MOST_LOGS or len(small) < len(ranks):
        return
    logs = {source_id: _read(artefacts[source_id]) for source_id in small}
    for source_id, said in (_behind if has_ended else _without_the_last)(logs):
        text = said.form.replace(_PLACE, str(said.number))
        subject = f"{len(logs) - 1} others wrote: {text[:_SHOWN]}"
        row = (source_id, logs[source_id].last, ranks[source_id], "not_reached", subject, text)
        insert_rows(connection, "log_events", "source_id locator rank kind subject text", [row])


def _behind(logs: Mapping[int, _Log]) -> Iterator[tuple[int, _Said]]:
    """The log, and the line that all others end with."""
    shared = set.intersection(*({said.form for said in log.places} for log in logs.values()))
    ends = {source_id: _last(log.places, shared) for source_id, log in logs.items()}
    (reached, count), *_ = Counter(ends.values()).most_common(1)
    behind = [source_id for source_id, end in ends.items() if end != reached]
    if reached is not None and count == len(logs) - 1 and reached not in logs[behind[0]].places:
        earlier = max(said.number for said in logs[behind[0]].places if said.form == reached.form)
        yield from [(behind[0], reached)] if earlier < reached.number else []


def _without_the_last(logs: Mapping[int, _Log]) -> Iterator[tuple[int, _Said]]:
    """The log that ends by a line of a form that all have, without the form by which all others end, once in each."""
    ends = {source_id: max(log.places, key=lambda said: log.places[said], default=None) for source_id, log in logs.items()}
    (form, count), *_ = Counter(end.form for end in ends.values() if end is not None).most_common(1) or [("", 0)]
    behind = [source_id for source_id, end in ends.items() if end is None or end.form != form]
    if count != len(logs) - 1 or (own := ends[behind[0]]) is None:
        return
    times = {source_id: sum(said.form == form for said in log.places) for source_id, log in logs.items()}
    common = all(any(said.form == own.form for said in log.places) for log in logs.values())
    if common and all(number == (source_id != behind[0]) for source_id, number in times.items()):
        yield behind[0], next(end for end in ends.values() if end is not None and end.form == form)


def _last(places: Mapping[_Said, int], shared: Iterable[str]) -> _Said | None:
    return max((said for said in places if said.form in shared), key=lambda said: places[said], default=None)


def _read(artefact: Artefact) -> _Log:
    places: dict[_Said, int] = {}
    last = 0
    for number, line in deque(Lines(artefact), maxlen=_LINES):
        origin = front(line[:_LONGEST])
        text = origin.bare[origin.text :].strip()
        last = number if text else last
        if counted := _WHOLE.search(text):
            form = f"{_NUMBER.sub('N', text[: counted.start()])}{_PLACE}{_NUMBER.sub('N', text[counted.end() :])}"
            places[_Said(form, int(counted[0]))] = number
    return _Log(places, last)
