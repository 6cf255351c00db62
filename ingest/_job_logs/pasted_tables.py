"""Tables that people put into a ticket beside a log, or instead of one: of pairs of hosts, and of the steps of ranks."""

from __future__ import annotations

from forensics.ingest._job_logs.event_rows import Events
from forensics.ingest._job_logs.pair_tables import PairTables
from forensics.ingest._job_logs.status_tables import StatusTables


class PastedTables:
    """All of them, of a file of `size` bytes."""

    def __init__(self, size: int) -> None:
        self._tables = PairTables(), StatusTables(size)

    def survey(self, number: int, block: bytes) -> None:
        """Take whole lines, the first of which has this number."""
        for table in self._tables:
            table.survey(number, block)

    def add_to(self, events: Events) -> None:
        """What stands out in them."""
        for table in self._tables:
            table.add_to(events)
