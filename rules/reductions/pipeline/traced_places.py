"""Where in a training step the calls are that profilers saw."""

from __future__ import annotations

from typing import NewType

from duckdb import DuckDBPyConnection

from forensics.rules.reductions.interface import reduction
from forensics.rules.reductions.pipeline.call_places import CallPlaces
from forensics.rules.reductions.steps.records import Recorded
from forensics.rules.reductions.steps.traced import TracedRecords

TracedPlaces = NewType("TracedPlaces", CallPlaces)
"""Places of the calls that profilers saw: they say nothing of where a rank stands now."""


@reduction
def traced_places(connection: DuckDBPyConnection, traces: TracedRecords) -> TracedPlaces:
    """Places of the calls in traces."""
    return TracedPlaces(CallPlaces(connection, Recorded(connection, traces)))
