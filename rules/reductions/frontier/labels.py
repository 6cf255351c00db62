"""Labels of a window (StageFrontier Table 12) by the gates of Table 13: what its accounting does and does not support."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace

import numpy as np

from forensics.rules.reductions.frontier.accounting import Accounting, Floats, account, gain, over_ranks, over_steps
from forensics.rules.reductions.frontier.device import BACKWARD, FORWARD, device_labels, event_ready, hides_forward
from forensics.rules.reductions.frontier.gates import Gates
from forensics.rules.reductions.frontier.matrix import StageMatrix
from forensics.rules.reductions.frontier.roles import roles_differ

_MS = 1e6
# Shares that add up to the threshold may fall short of it in their last digits.
_ROUNDING = 1e-9


@dataclass(frozen=True, slots=True)
class Leader:
    """Who attains the frontier at the leading stage: tied ranks, lag and gap in ns a step, switches of confident leaders."""

    ranks: tuple[int, ...]
    lag_ns: float
    delta_lag_ns: float
    gap_ns: float
    switches: int
    eligible: int


@dataclass(frozen=True, slots=True)
class Examined:
    """A window's accounting by broad stage, in ns, with its evidence and labels.

    `gains` is the best of the baselines `gains_by_baseline` (window_median, cohort_median, reference), as shares. `labels`
    are triples of label, stage or None, and reason. `closure` and `overlap` are shares of the wall time. `parts` are stage,
    substage and advance of what refines a stage.
    """

    stages: tuple[str, ...]
    advances_ns: tuple[float, ...]
    shares: tuple[float, ...] | None
    exposed_ns: float
    gains: tuple[float, ...]
    gains_by_baseline: Mapping[str, tuple[float, ...]]
    routing_set: tuple[str, ...]
    ambiguity_set: tuple[str, ...]
    leader: Leader | None
    closure: float
    overlap: float
    event_ready: float | None
    labels: tuple[tuple[str, str | None, str], ...]
    maxima: tuple[float, ...]
    means: tuple[float, ...]
    parts: tuple[tuple[str, str, float], ...] = ()

    def has(self, label: str) -> bool:
        """Whether a label was given."""
        return any(name == label for name, _, _ in self.labels)


def examine(matrix: StageMatrix, gates: Gates, waits_in: str | None = None, reference: Floats | None = None) -> Examined:
    """Account for a window and label it.

    `waits_in` is the model-fit indicator: a stage of which side evidence says that ranks wait there for each other.
    `reference` are durations without a stall (`[stage, rank]`, or any shape that fits), when there are some.
    """
    durations = matrix.closed()
    accounting = account(durations)
    stages = matrix.stage_list()
    parts = [matrix.members(stage) for stage in stages]
    exposed = accounting.exposed
    advances = tuple(float(accounting.advances[:, part].sum()) for part in parts)
    is_measurable = exposed >= gates.least_exposed_ms * _MS
    shares = tuple(value / exposed for value in advances) if is_measurable else None
    by_baseline = _gains(durations, parts, exposed, reference) if is_measurable else {}
    gains = tuple(max(values) for values in zip(*by_baseline.values(), strict=True)) if by_baseline else (0.0,) * len(stages)
    known = shares or (0.0,) * len(stages)
    maxima = tuple(float(accounting.highest[part].sum()) for part in parts)
    highest = tuple(value / max(exposed, 1.0) for value in maxima)
    first = int(np.argmax(known))
    draft = Examined(
        stages=stages,
        advances_ns=advances,
        shares=shares,
        exposed_ns=exposed,
        gains=gains,
        gains_by_baseline=by_baseline,
        routing_set=_routing(stages, known, gates) if shares else (),
        ambiguity_set=_ambiguity(stages, known, gains, highest, gates) if shares else (),
        leader=_leader(matrix, accounting, parts[first], gates) if len(matrix.ranks) > 1 and shares else None,
        closure=_share_of_walls(np.maximum(matrix.residual, 0.0), matrix),
        overlap=_share_of_walls(np.maximum(-matrix.residual, 0.0), matrix),
        event_ready=event_ready(matrix),
        labels=(),
        maxima=maxima,
        means=tuple(float(accounting.mean[part].sum()) for part in parts),
        parts=_refined(matrix, accounting),
    )
    hidden = hides_forward(matrix, draft, gates)
    if hidden:
        both = {*draft.ambiguity_set, FORWARD, BACKWARD}
        draft = replace(draft, ambiguity_set=tuple(stage for stage in stages if stage in both))
    labels = (
        ("frontier_accounting", None, "advances of the frontier add up to the exposed time"),
        *_labels(matrix, draft, gates, waits_in, hidden=hidden),
    )
    return replace(draft, labels=labels)


def _refined(matrix: StageMatrix, accounting: Accounting) -> tuple[tuple[str, str, float], ...]:
    """The account of substages, those of one name added up."""
    found: dict[tuple[str, str], float] = {}
    for place, column in enumerate(matrix.columns):
        if column.substage:
            key = (column.stage, column.substage)
            found[key] = found.get(key, 0.0) + float(accounting.advances[:, place].sum())
    return tuple((stage, part, advance) for (stage, part), advance in found.items())


def _gains(durations: Floats, parts: list[list[int]], exposed: float, reference: Floats | None) -> dict[str, tuple[float, ...]]:
    """Clipped static gain of each broad stage as a share, by baseline."""
    baselines = {"window_median": over_steps(durations)}
    if durations.shape[2] > 1:
        baselines["cohort_median"] = over_ranks(durations)
    if reference is not None:
        baselines["reference"] = np.broadcast_to(reference, durations.shape[1:])[None]
    return {
        name: tuple(float(gain(durations, part, baseline[:, part]).sum()) / exposed for part in parts)
        for name, baseline in baselines.items()
    }


def _routing(stages: tuple[str, ...], shares: tuple[float, ...], gates: Gates) -> tuple[str, ...]:
    """The smallest set of leading stages whose shares reach the threshold together."""
    chosen: list[str] = []
    total = 0.0
    for index in sorted(range(len(stages)), key=lambda i: (-shares[i], i)):
        if total >= gates.routing - _ROUNDING:
            break
        chosen.append(stages[index])
        total += shares[index]
    return tuple(chosen)


def _ambiguity(
    stages: tuple[str, ...], shares: tuple[float, ...], gains: tuple[float, ...], highest: tuple[float, ...], gates: Gates
) -> tuple[str, ...]:
    """Stages at the top by share, and those at the top by gain that take some rank a material part of the exposed time."""
    by_share = {s for s, value in zip(stages, shares, strict=True) if value >= max(shares) - gates.tie}
    top = max(gains) - gates.tie
    by_gain = {s for s, value, high in zip(stages, gains, highest, strict=True) if value >= top and high >= gates.static_gain}
    return tuple(stage for stage in stages if stage in by_share | by_gain)


def _leader(matrix: StageMatrix, accounting: Accounting, part: list[int], gates: Gates) -> Leader:
    boundary = max(part)
    frontier, gap, lead = accounting.frontier[:, boundary], accounting.gap[:, boundary], accounting.leader[:, boundary]
    lag = accounting.lag[:, boundary]
    before = accounting.lag[:, min(part) - 1] if min(part) else np.zeros_like(lag)
    confident = gap >= gates.leader_gap * np.maximum(accounting.frontier[:, -1], 1.0)
    leaders = lead[confident]
    prefix = np.cumsum(matrix.closed(), axis=1)[:, boundary].sum(axis=0)
    tied = prefix >= prefix.max() - gates.leader_gap * float(frontier.sum())
    return Leader(
        ranks=tuple(rank for rank, is_tied in zip(matrix.ranks, tied.tolist(), strict=True) if is_tied),
        lag_ns=float(lag.mean()),
        delta_lag_ns=float((lag - before).mean()),
        gap_ns=float(gap.mean()),
        switches=int((leaders[1:] != leaders[:-1]).sum()),
        eligible=int(confident.sum()),
    )


def _share_of_walls(values: Floats, matrix: StageMatrix) -> float:
    total = float(matrix.walls.sum())
    return float(values.sum()) / total if total else 0.0


def _labels(
    matrix: StageMatrix, found: Examined, gates: Gates, waits_in: str | None, *, hidden: bool
) -> Iterator[tuple[str, str | None, str]]:
    limits = list(_limits(matrix, found, gates))
    yield from (("telemetry_limited", None, reason) for reason in limits)
    if matrix.collapsed:
        yield "gradient_accumulation_ambiguous", None, "ranks record parts of a stage differently: they were added up"
    mixed = roles_differ(matrix, gates, waits_in)
    if mixed:
        yield "role_aware_needed", mixed, f"ranks fall into camps by their time in {mixed}: they play different parts"
    if found.shares is None or len(matrix.ranks) == 1:
        return
    yield from device_labels(matrix, found, gates)
    if not limits and not mixed:
        yield from _stage_labels(found, gates, waits_in, len(matrix.steps), hidden=hidden)


def _limits(matrix: StageMatrix, found: Examined, gates: Gates) -> Iterator[str]:
    if len(matrix.ranks) == 1:
        yield "one rank alone gives no evidence across ranks"
    if found.shares is None:
        yield "the window is too short for percentages: advances are given in time"
    if found.closure > gates.closure_share:
        yield f"{100 * found.closure:.1f} % of the time lies in no stage"
    if found.overlap > gates.overlap_share:
        yield f"stages overlap by {100 * found.overlap:.1f} % of the time"
    if len(matrix.missing) > gates.missing_ranks:
        yield f"{len(matrix.missing)} ranks of the group are missing"
    if not matrix.is_ordered:
        yield "ranks do not agree on the order of their stages"


def _stage_labels(
    found: Examined, gates: Gates, waits_in: str | None, steps: int, *, hidden: bool
) -> Iterator[tuple[str, str | None, str]]:
    """Direct exposure, dependence on waiting, or several stages that may all be the bottleneck."""
    shares = found.shares or ()
    first = max(range(len(shares)), key=lambda i: (shares[i], -i))
    stage, share, gained = found.stages[first], shares[first], found.gains[first]
    tied = [s for s, value in zip(found.stages, shares, strict=True) if value >= share - gates.tie]
    leader = found.leader
    switching = (
        leader
        and leader.eligible >= gates.leader_eligible * steps
        and leader.switches > gates.leader_switches * max(leader.eligible - 1, 1)
    )
    waits = waits_in not in (None, stage) and found.maxima[first] - found.means[first] >= gates.static_gain * found.exposed_ns
    rivals = [
        s
        for s, value in zip(found.stages, found.gains, strict=True)
        if s != stage and value >= max(gained - gates.tie, gates.static_gain)
    ]
    if share > gates.dominance and gained >= gates.static_gain and len(tied) == 1 and not rivals:
        if switching:
            yield "co_critical", stage, "the leading rank changes from step to step"
        elif hidden:
            yield (
                "co_critical",
                None,
                "all ranks were as long in backward: what a device does for forward may be seen there too",
            )
        else:
            yield (
                "direct_exposure",
                stage,
                f"{100 * gained:.0f} % of the exposed time would go with its excess over its baseline",
            )
    elif share > gates.dominance and gained < gates.static_gain and len(tied) == 1 and waits and not rivals:
        yield (
            "sync_wait_dependent",
            stage,
            "its share is high and its own gain low: others wait in a later stage for what happens here",
        )
        if leader and not switching and len(leader.ranks) == 1:
            yield "likely_sync_wait", stage, f"rank {leader.ranks[0]} leads, and the others' waiting follows it"
    elif len(tied) > 1 or rivals or (share > gates.dominance and _has_tail(found, gates)):
        yield "co_critical", None, f"{', '.join(found.ambiguity_set or tied)} may each remain the bottleneck"


def _has_tail(found: Examined, gates: Gates) -> bool:
    """Whether ranks differ materially anywhere: a leading stage that all ranks share evenly is only a long stage."""
    spread = sum(high - mean for high, mean in zip(found.maxima, found.means, strict=True))
    return spread > gates.static_gain * found.exposed_ns
