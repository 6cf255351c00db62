"""Ranks by the GPUs of a host, where a job on one host has a rank for each of them in order."""

from __future__ import annotations

import re

from duckdb import DuckDBPyConnection

from forensics.case.alignment import stated_world_sizes
from forensics.rules.reductions.ranks.owners import Place

_GPUS = """
SELECT d.host, d.pci, try_cast(regexp_extract(d.device, '^GPU-([0-9]{1,4})$', 1) AS INTEGER)
FROM devices d JOIN sources s USING (source_id) WHERE d.kind = 'gpu' AND d.pci IS NOT NULL AND s.parser = 'gpu_table'
"""
_ELSEWHERE = """
SELECT (SELECT count(*) FROM job_config WHERE key LIKE '%CUDA_VISIBLE_DEVICES%')
    + (SELECT count(*) FROM log_events WHERE kind = 'several_nodes')
    + greatest(0, (SELECT count(DISTINCT host) FROM (
        SELECT host FROM sources UNION SELECT host FROM device_events UNION SELECT host FROM log_events
      ) WHERE host IS NOT NULL) - 1)
"""
_FUNCTION = re.compile(r"\.\d$")


def devices_in_order(connection: DuckDBPyConnection) -> dict[Place, int]:
    """Ranks by host and address without the function, where the one stated size of the job is the number of GPUs."""
    rows = connection.execute(_GPUS).fetchall()
    numbers: dict[Place, int] = {(host, _FUNCTION.sub("", pci)): index for host, pci, index in rows}
    is_whole = bool(rows) and stated_world_sizes(connection) == {len(numbers)} and {*numbers.values()} == {*range(len(numbers))}
    return numbers if is_whole and connection.execute(_ELSEWHERE).fetchall() == [(0,)] else {}
