"""Numbers the NCCL RAS reports of each host by moment: the text and the JSON of one answer are one."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime

from forensics.bundle.artefact import Artefact
from forensics.case.database import Connection, has_rows
from forensics.case.moments import Taken, grouped, taken

_REPORTS = """
SELECT r.source_id, r.host, r.snapshot, r.taken FROM ras_reports r JOIN sources s USING (source_id)
ORDER BY r.host, s.captured_ns, r.taken, r.snapshot, s.sha256, s.path
"""
_COUNTS = """
SELECT source_id, communicator, comm_rank, kind, max(launched) FROM ras_ranks
WHERE communicator IS NOT NULL AND comm_rank IS NOT NULL AND launched IS NOT NULL AND source_id IN
    (SELECT source_id FROM ras_reports QUALIFY count(*) OVER (PARTITION BY host) > 1)
GROUP BY ALL ORDER BY ALL
"""


@dataclass(frozen=True, slots=True)
class _Report:
    """One report with the calls that it counts, by communicator, rank and kind."""

    source_id: int
    snapshot: int
    taken: Taken
    counts: Mapping[tuple[object, ...], int]

    def is_apart(self, other: _Report) -> bool:
        """By proof of time, or because calls were launched between the two."""
        common = self.counts.keys() & other.counts.keys()
        return self.taken.is_apart(other.taken) or any(self.counts[key] != other.counts[key] for key in common)


def number_reports(connection: Connection, artefacts: Mapping[int, Artefact]) -> None:
    """Give reports of one moment one number, those of different moments numbers in time order."""
    if not has_rows(connection, "ras_reports"):
        return
    for reports in _by_host(connection, artefacts):
        moments = sorted(grouped(reports, _Report.is_apart), key=lambda moment: _order(moment[0]))
        given = [moment[0].taken.number for moment in moments]
        proven = None not in given and len(set(given)) == len(given)
        for place, moment in enumerate(moments):
            number = given[place] if proven else place
            for report in moment:
                if len(reports) > 1 and report.snapshot != number:
                    for table in ("ras_reports", "ras_ranks"):
                        connection.execute(f"UPDATE {table} SET snapshot = ? WHERE source_id = ?", [number, report.source_id])


def _by_host(connection: Connection, artefacts: Mapping[int, Artefact]) -> list[list[_Report]]:
    counts: dict[int, dict[tuple[object, ...], int]] = defaultdict(dict)
    for source_id, *key, launched in connection.execute(_COUNTS).fetchall():
        counts[source_id][tuple(key)] = launched
    found: dict[str | None, list[_Report]] = defaultdict(list)
    for source_id, host, snapshot, written in connection.execute(_REPORTS).fetchall():
        artefact = artefacts[source_id]
        time_ns = _nanoseconds(written) if artefact.captured_ns is None else None
        report = _Report(source_id, snapshot or 0, taken(artefact, {}, time_ns), counts.get(source_id, {}))
        found[host].append(report)
    return list(found.values())


def _order(report: _Report) -> tuple[int, int, int]:
    return report.taken.time_ns or 0, report.taken.number or 0, sum(report.counts.values())


def _nanoseconds(written: str | None) -> int | None:
    """The wall clock of the service; it is only compared with that of the same service."""
    try:
        return int(datetime.fromisoformat(written).replace(tzinfo=UTC).timestamp()) * 10**9 if written else None
    except ValueError:
        return None
