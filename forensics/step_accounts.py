"""Where the time of training steps went, as the verdict shows it; import these from forensics.model."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class LeaderRow:
    """Ranks that attain the frontier at the leading stage; times in ns a step, `switches` between confident leaders."""

    ranks: tuple[int, ...]
    lag_ns: int
    delta_lag_ns: int
    gap_ns: int
    switches: int


@dataclass(frozen=True, slots=True)
class LossRow:
    """A stage that cost the group time, and the ranks that did (empty: all, or changing ones); `lost_ns` over all steps."""

    stage: str
    substage: str | None
    ranks: tuple[int, ...]
    lost_ns: int
    share: float
    affected_steps: int
    typical_ns: int
    compared_with: str
    pattern: str


@dataclass(frozen=True, slots=True)
class AttributionRow:
    """Our reading of a window, from one meeting of the ranks to the next; `reason` says why there is none."""

    meet_in: str | None
    found_by: str | None
    waiting_from: str | None
    steps: int
    step_ns: int
    onset_step: int | None
    losses: tuple[LossRow, ...]
    reason: str | None


@dataclass(frozen=True, slots=True)
class FrontierRow:
    """One window: the exact accounting, what limits it, and the attribution beside it.

    `advances_ns` and the lists after it go with `stages`. `excess_ns` has a row for each rank: its mean time a step in each
    stage beyond that of its peers, without the waiting where that is known. `parts` are stage, substage and advance (ns) of
    what refines a stage.
    """

    group: str
    role: str | None
    source: str
    first_step: int
    last_step: int
    steps: int
    ranks: tuple[int, ...]
    stages: tuple[str, ...]
    advances_ns: tuple[int, ...]
    exposed_ns: int
    shares: tuple[float, ...] | None
    gains: tuple[float, ...]
    gains_by_baseline: tuple[tuple[str, tuple[float, ...]], ...]
    routing_set: tuple[str, ...]
    ambiguity_set: tuple[str, ...]
    labels: tuple[tuple[str, str | None, str], ...]
    leader: LeaderRow | None
    closure: float
    overlap: float
    missing_ranks: tuple[int, ...]
    event_ready: float | None
    excess_ns: tuple[tuple[int, ...], ...]
    attribution: AttributionRow
    parts: tuple[tuple[str, str, int], ...] = ()
