"""Lines that all ranks but a few in a row wrote once each, alike but for numbers, when they had come to the same place.

`rank 9 wrote its shard in 8.8 s` of ranks 0 to 15 and 24 to 31: those of a host that stands still are the ones that lack it. It
is a place to begin where the job is known to have stood still; a log may have been cut, or filtered.
"""

from __future__ import annotations

import re
from collections import defaultdict

from forensics.ingest._job_logs.event_rows import Events
from forensics.ingest._job_logs.line_origin import Origin

_RANK = re.compile(r"(?<![A-Za-z_])(?:global[ _-]?)?rank[ _:=#]{0,2}(\d{1,5})\b(?! ?/)", re.IGNORECASE)
_LONGEST = 512
_LEAST, _MOST_FORMS = 4, 4096
# What tells that a job stood still.
STANDS = frozenset(
    {"job_cancelled", "watchdog_timeout", "barrier_timeout", "store_timeout", "stall_report", "transfer_timeout"}
)
_SHOWN = 80


class RankRolls:
    """Collects such lines, by what they say."""

    def __init__(self) -> None:
        self._forms: dict[str, dict[int, list[int]]] = defaultdict(lambda: defaultdict(list))
        self._last: dict[int, int] = {}

    def feed(self, number: int, line: str) -> None:
        """Take one line that may speak of a rank."""
        found = _RANK.search(line[:_LONGEST])
        if found is None:
            return
        form, rank = re.sub(r"\d[\d.,:]*", "N", line[found.start() : _LONGEST]).strip(), int(found[1])
        self._last[rank] = number
        if form in self._forms or len(self._forms) < _MOST_FORMS:
            self._forms[form][rank].append(number)

    def add_to(self, events: Events) -> None:
        """The few ranks in a row that lack the last of such lines, and wrote nothing since the others began to."""
        rolls = {form: said for form, said in self._forms.items() if len(said) >= _LEAST}
        if not rolls or not STANDS & {*events.columns["kind"]}:
            return
        form, said = max(rolls.items(), key=lambda roll: max(max(lines) for lines in roll[1].values()))
        missing = sorted({*range(max(self._last) + 1)} - said.keys())
        once = all(len(lines) == 1 for lines in said.values())
        first, last = min(min(lines) for lines in said.values()), max(max(lines) for lines in said.values())
        in_a_row = bool(missing) and missing[-1] - missing[0] + 1 == len(missing) and 2 * len(missing) <= len(said)
        if once and in_a_row and all(self._last.get(rank, 0) < first for rank in missing):
            which = f"{missing[0]}-{missing[-1]}" if len(missing) > 1 else f"{missing[0]}"
            subject = f"ranks={which} others={len(said)} wrote: {form[:_SHOWN]}"
            events.add(last, "roll_lacks", subject, form, None, Origin(None, None, "", 0))
