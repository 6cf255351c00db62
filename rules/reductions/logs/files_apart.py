"""One file a rank: which ranks without a timeout were there, and whether the one counted on while the others gave up.

Lines of two files have no order. Times without a zone are compared where both files are of one host, or where both ranks
counted the same steps at the same times: a zone shifts by a quarter of an hour at least.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime

from duckdb import DuckDBPyConnection

from forensics.case.database import rows_of
from forensics.rules.reductions.logs.positions import ATTEMPT, LATEST_ATTEMPT


def _words(series: str) -> str:
    """SQL of the name of a series without the rank in front: the same in the logs of all ranks."""
    return f"regexp_replace({series}, '^[0-9]+ ?', '')"


_POINTS = """
SELECT p.series, p.part, p.at_s, p.step, p.total, p.text, s.path || '#line=' || p.locator
FROM log_progress p JOIN sources s USING (source_id)
WHERE p.rank = ? AND p.clock = 'line' AND s.rank = p.rank ORDER BY p.series, p.part, p.at_s, p.locator
"""
_SHARED = f"""
SELECT count(DISTINCT a.step), max(abs(a.at_s - b.at_s)) FROM log_progress a JOIN log_progress b
ON {_words("a.series")} = {_words("b.series")}
    AND a.step = b.step AND a.total IS NOT DISTINCT FROM b.total
WHERE a.rank = ? AND b.rank = ? AND a.clock = 'line' AND b.clock = 'line'
"""
_SHAPE = "regexp_replace(path, '[0-9]+', '#', 'g')"
_WITH_LOGS = f"""
WITH gave_up AS (
    SELECT DISTINCT s.rank, {_SHAPE} AS shape FROM log_positions p JOIN sources s USING (source_id)
    WHERE p.origin = 'watchdog' AND p.timed_out IS NOT NULL AND p.rank = s.rank
    UNION SELECT s.rank, {_SHAPE} FROM log_events e JOIN sources s USING (source_id)
    WHERE e.kind IN ('transfer_timeout', 'store_timeout') AND e.rank = s.rank
), other AS (
    SELECT DISTINCT rank, path FROM sources
    WHERE kind = 'training_log' AND rank NOT IN (SELECT rank FROM gave_up) AND rank_method <> 'guessed'
        AND status IN ('ok', 'partial') AND {LATEST_ATTEMPT} AND {_SHAPE} IN (SELECT shape FROM gave_up)
), counted AS (
    SELECT rank, {_words("series")} AS series, step, total, at_s FROM log_progress
    WHERE clock = 'line' AND rank IN (SELECT rank FROM other UNION ALL SELECT min(rank) FROM gave_up)
), peer AS (
    SELECT *, max(at_s) OVER () AS newest_s FROM counted WHERE rank NOT IN (SELECT rank FROM other)
)
SELECT rank FROM other WHERE {ATTEMPT} IS NOT NULL UNION
SELECT c.rank FROM counted c JOIN peer p ON c.series = p.series AND c.step = p.step AND c.total IS NOT DISTINCT FROM p.total
WHERE c.rank IN (SELECT rank FROM other) GROUP BY c.rank, p.newest_s
HAVING count(DISTINCT c.step) >= ? AND max(abs(c.at_s - p.at_s)) <= ?
    AND (SELECT max(at_s) FROM counted o WHERE o.rank = c.rank) <= p.newest_s + ?
"""
_HOSTS = "SELECT DISTINCT rank, host FROM sources WHERE rank IS NOT NULL AND kind = 'training_log'"
_COUNTED_ON = """
SELECT count(*) FROM log_progress p
JOIN (SELECT unnest(?::BIGINT[]) AS source_id, unnest(?::BIGINT[]) AS line) g USING (source_id) WHERE p.locator > g.line
"""
_GLOG = re.compile(r"\[[EWIF](\d{1,2})(\d\d) (\d\d):(\d\d):(\d\d)")
_ISO = re.compile(r"\d{4}-\d\d-\d\d[T ]\d\d:\d\d:\d\d")
_FURTHEST = f"""
SELECT max(step) FROM log_progress
WHERE rank IN (SELECT unnest(?::INTEGER[])) AND {_words("series")} = {_words("?")} AND total IS NOT DISTINCT FROM ?
"""
_OF_RANKS = "SELECT DISTINCT rank, kind = 'training_log' FROM sources WHERE rank IS NOT NULL"
_LEAST_SHARED = 2
_SAME_CLOCK_S = 60
_MARGIN_S = 5
_LEAST_BEFORE = 2


def with_logs_of_the_run(connection: DuckDBPyConnection) -> frozenset[int]:
    """Ranks whose own logs have no timeout, are called as those in which peers gave up, and are of the same run.

    They are where torchrun made the logs of one attempt, or where the rank counted the same steps at the same times, and
    nothing long after its peers: a log that goes on may be of a later run.
    """
    sources = connection.execute(_OF_RANKS).fetchall()
    if len({rank for rank, _ in sources}) < 2 or not any(is_log for _, is_log in sources):
        return frozenset()
    limits = [_LEAST_SHARED, _SAME_CLOCK_S, _SAME_CLOCK_S]
    return frozenset(rank for (rank,) in rows_of(connection, "log_events", _WITH_LOGS, limits))


GaveUp = Mapping[int, tuple[int, int, str]]
"""Of each waiting rank: its source, and line and text of its first timeout."""


@dataclass(frozen=True, slots=True)
class _Point:
    """One line that counts; `at_s` by the clock of its log, in seconds from 1970 as if it were UTC."""

    series: str
    part: int
    at_s: float
    step: int
    total: int | None
    text: str
    source: str


def counted_on(connection: DuckDBPyConnection, rank: int, gave_up: GaveUp) -> tuple[str, str, str] | None:
    """Text, source and reason of the last line that the rank counted on with below the first timeout of its peers."""
    sources, lines = [each[0] for each in gave_up.values()], [each[1] for each in gave_up.values()]
    if connection.execute(_COUNTED_ON, [sources, lines]).fetchall()[0][0]:
        return None
    series: dict[tuple[str, int], list[_Point]] = {}
    for row in connection.execute(_POINTS, [rank]).fetchall():
        point = _Point(*row)
        series.setdefault((point.series, point.part), []).append(point)
    if not series:
        return None
    points = max(series.values(), key=lambda each: each[-1].at_s)
    last = points[-1]
    first = min(_times(connection, rank, gave_up, last.at_s), default=None)
    if first is None or _is_later_run(connection, last, gave_up):
        return None
    before = sum(point.at_s < first for point in points)
    if before < _LEAST_BEFORE or last.at_s <= first + _MARGIN_S:
        return None
    return last.text, last.source, f"written {last.at_s - first:.0f} s after the first peer had given up, by clocks that agree"


def _is_later_run(connection: DuckDBPyConnection, last: _Point, gave_up: GaveUp) -> bool:
    """Whether it counted what its peers count, and further: nobody does more steps than those that it waits for in each."""
    ((furthest,),) = connection.execute(_FURTHEST, [list(gave_up), last.series, last.total]).fetchall()
    return furthest is not None and last.step > furthest


def _times(connection: DuckDBPyConnection, rank: int, gave_up: GaveUp, near_s: float) -> Iterator[float]:
    """When peers gave up, by the clock of the rank; where two clocks may differ, as late as they allow."""
    hosts = dict(connection.execute(_HOSTS).fetchall())
    for peer, (_, _, text) in gave_up.items():
        at = _time(text, near_s)
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
