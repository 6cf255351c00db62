"""One file a rank: whether the one rank without a timeout counted on while the others gave up, by clocks that are one.

Lines of two files have no order. Times without a zone are compared where both files are of one host, or where both ranks
counted the same steps at the same times: a zone shifts by a quarter of an hour at least.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime

from duckdb import DuckDBPyConnection

_POINTS = """
SELECT p.series, p.part, p.at_s, p.text, s.path || '#line=' || p.locator FROM log_progress p JOIN sources s USING (source_id)
WHERE p.rank = ? AND p.clock = 'line' AND s.rank = p.rank ORDER BY p.series, p.part, p.at_s, p.locator
"""
_SHARED = """
SELECT count(DISTINCT a.step), max(abs(a.at_s - b.at_s)) FROM log_progress a JOIN log_progress b
ON regexp_replace(a.series, '^[0-9]+ ?', '') = regexp_replace(b.series, '^[0-9]+ ?', '')
    AND a.step = b.step AND a.total IS NOT DISTINCT FROM b.total
WHERE a.rank = ? AND b.rank = ? AND a.clock = 'line' AND b.clock = 'line'
"""
_HOSTS = "SELECT DISTINCT rank, host FROM sources WHERE rank IS NOT NULL AND kind = 'training_log'"
_COUNTED_ON = """
SELECT count(*) FROM log_progress p
JOIN (SELECT unnest(?::BIGINT[]) AS source_id, unnest(?::BIGINT[]) AS line) g USING (source_id) WHERE p.locator > g.line
"""
_GLOG = re.compile(r"\[[EWIF](\d{1,2})(\d\d) (\d\d):(\d\d):(\d\d)")
_ISO = re.compile(r"\d{4}-\d\d-\d\d[T ]\d\d:\d\d:\d\d")
_LEAST_SHARED = 2
_SAME_CLOCK_S = 60
_MARGIN_S = 5
_LEAST_BEFORE = 2

GaveUp = Mapping[int, tuple[int, int, str]]
"""Of each waiting rank: its source, and line and text of its first timeout."""


def counted_on(connection: DuckDBPyConnection, rank: int, gave_up: GaveUp) -> tuple[str, str, str] | None:
    """Text, source and reason of the last line that the rank counted on with below the first timeout of its peers."""
    sources, lines = [each[0] for each in gave_up.values()], [each[1] for each in gave_up.values()]
    if connection.execute(_COUNTED_ON, [sources, lines]).fetchall()[0][0]:
        return None
    series: dict[tuple[str, int], list[tuple[float, str, str]]] = {}
    for name, part, *point in connection.execute(_POINTS, [rank]).fetchall():
        series.setdefault((name, part), []).append((point[0], point[1], point[2]))
    if not series:
        return None
    points = max(series.values(), key=lambda each: each[-1][0])
    first = min(_times(connection, rank, gave_up, points), default=None)
    if first is None:
        return None
    before = sum(at < first for at, _, _ in points)
    at, text, source = points[-1]
    if before < _LEAST_BEFORE or at <= first + _MARGIN_S:
        return None
    return text, source, f"written {at - first:.0f} s after the first peer had given up, by clocks that agree"


def _times(
    connection: DuckDBPyConnection, rank: int, gave_up: GaveUp, points: Sequence[tuple[float, str, str]]
) -> Iterator[float]:
    """When peers gave up, by the clock of the rank; where two clocks may differ, as late as they allow."""
    hosts = dict(connection.execute(_HOSTS).fetchall())
    for peer, (_, _, text) in gave_up.items():
        at = _time(text, points[-1][0])
        shared, apart = connection.execute(_SHARED, [rank, peer]).fetchall()[0]
        same_host = hosts.get(rank) is not None and hosts.get(rank) == hosts.get(peer)
        agree = shared >= _LEAST_SHARED and apart <= _SAME_CLOCK_S
        if at is not None and (agree or (same_host and not shared)):
            yield at + (apart if agree else 0)


def _time(text: str, near_s: float) -> float | None:
    """Seconds from 1970 as if the time were UTC; glog leaves out the year."""
    iso, glog = _ISO.search(text), _GLOG.search(text)
    try:
        if glog is None:
            return datetime.fromisoformat(f"{iso[0]}+00:00").timestamp() if iso else None
        month, day, hour, minute, second = map(int, glog.groups())
        year = datetime.fromtimestamp(near_s, UTC).year
        return datetime(year, month, day, hour, minute, second, tzinfo=UTC).timestamp()
    except ValueError:
        return None
