"""Recorded stages of the case as arrays: one source of each rank, a row for each span of a stage."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from duckdb import DuckDBPyConnection

from forensics.rules.reductions.frontier.matrix import Column

ARRIVED = "arrived"
"""Name of the side channel that shows how long a rank worked in a stage before it only waited for others."""

# One source a rank: of the kind of evidence that most ranks have, and of the newest process of the rank.
_CHOSEN = """
CREATE OR REPLACE TEMP TABLE chosen_stages AS
WITH seen AS (
    SELECT t.source_id, t.rank, s.kind, s.path, max(t.begin_ns) AS newest, count(*) AS steps
    FROM steps t JOIN sources s USING (source_id)
    WHERE t.rank IS NOT NULL AND t.step IS NOT NULL AND t.wall_ns IS NOT NULL AND t.begin_ns IS NOT NULL GROUP BY ALL
), kinds AS (
    SELECT kind FROM seen GROUP BY kind ORDER BY count(DISTINCT rank) DESC, sum(steps) DESC, kind LIMIT 1
)
SELECT source_id, rank, kind, path FROM seen JOIN kinds USING (kind)
QUALIFY row_number() OVER (PARTITION BY rank ORDER BY newest DESC, source_id DESC) = 1
"""
_STEPS = """
SELECT rank, step, min(begin_ns) AS begin_ns, sum(wall_ns) AS wall_ns FROM steps JOIN chosen_stages USING (source_id, rank)
WHERE step IS NOT NULL GROUP BY rank, step ORDER BY step, rank
"""
_KEYS = """
CREATE OR REPLACE TEMP TABLE stage_keys AS
SELECT row_number() OVER (ORDER BY stage, substage, substep) - 1 AS key, * FROM (
    SELECT DISTINCT stage, coalesce(substage, '') AS substage, coalesce(substep, 0) AS substep
    FROM stage_spans JOIN chosen_stages USING (source_id, rank) WHERE NOT coalesce(side_channel, false))
"""
# Spans of one stage in one step are added up in the arrays: a fleet has millions, and grouping them took most of the time.
_SPANS = """
SELECT p.rank, p.step, k.key, hash(p.schema_hash) >> 1 AS schema, p.order_index AS place,
    p.duration_ns AS duration, p.begin_ns + p.duration_ns AS ended, p.device_ns AS device
FROM stage_spans p JOIN chosen_stages USING (source_id, rank)
JOIN stage_keys k ON k.stage = p.stage AND k.substage = coalesce(p.substage, '') AND k.substep = coalesce(p.substep, 0)
WHERE NOT coalesce(p.side_channel, false) AND p.duration_ns >= 0
"""
_SIDES = f"""
SELECT p.rank, p.step, p.stage, coalesce(p.substage, '') = '{ARRIVED}' AS arrived,
    sum(p.duration_ns) AS duration, sum(p.device_ns) AS device, bool_or(p.device_ready IS NOT NULL) AS asked
FROM stage_spans p JOIN chosen_stages USING (source_id, rank)
WHERE p.side_channel AND (p.device_ready IS NOT NULL OR p.device_ns IS NOT NULL OR p.substage = '{ARRIVED}')
GROUP BY ALL ORDER BY ALL
"""


@dataclass(frozen=True, slots=True)
class RecordedSpans:
    """Rows of the case as arrays by column name: times in ns, `key` a place in `keys`."""

    steps: Mapping[str, Any]
    spans: Mapping[str, Any]
    sides: Mapping[str, Any]
    keys: tuple[Column, ...]


def recorded_spans(connection: DuckDBPyConnection) -> RecordedSpans | None:
    """Read the spans of all ranks, None where there are none; the table `chosen_stages` then has the source of each rank."""
    connection.execute(_CHOSEN)
    connection.execute(_KEYS)
    rows = connection.execute("SELECT stage, substage, substep FROM stage_keys ORDER BY key").fetchall()
    steps, spans, sides = (connection.execute(sql).fetchnumpy() for sql in (_STEPS, _SPANS, _SIDES)) if rows else ({}, {}, {})
    connection.execute("DROP TABLE stage_keys")
    return RecordedSpans(steps, spans, sides, tuple(Column(*row) for row in rows)) if rows else None
