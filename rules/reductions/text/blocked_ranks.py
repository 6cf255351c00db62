"""Ranks that a slow one holds up, as a finding that accuses nobody."""

from __future__ import annotations

from collections.abc import Collection

from forensics.model import Anomaly, Belief, Cause, Confidence, Finding, Role, StageRef


def blocked_ranks(ranks: Collection[int]) -> Finding:
    """The finding for ranks that wait in a job that moves."""
    return Finding(
        ranks=tuple(sorted(ranks)),
        role=Role.VICTIM,
        cause=Cause.UNKNOWN,
        stage=StageRef(),
        belief=Belief.BEHIND_AND_BUSY,
        confidence=Confidence.LIKELY,
        evidence=(),
        anomaly=Anomaly.FAIL_SLOW,
    )
