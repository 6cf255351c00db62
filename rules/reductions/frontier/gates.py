"""The numbers on which labels and accusations of the frontier depend, with their defaults and reasons."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields


@dataclass(frozen=True, slots=True)
class Gates:
    """StageFrontier Table 13 first, then what the attribution adds; shares are of the exposed time unless said otherwise."""

    closure_share: float = 0.05
    overlap_share: float = 0.01
    missing_ranks: float = 0.0
    event_ready: float = 0.8
    event_samples: float = 5.0
    dominance: float = 0.4
    static_gain: float = 0.1
    tie: float = 0.05
    leader_gap: float = 0.02
    leader_switches: float = 0.3
    leader_eligible: float = 0.5
    routing: float = 0.8
    least_exposed_ms: float = 1.0
    aligned_share: float = 0.02
    aligned_ratio: float = 0.4
    excess_share: float = 0.02
    rank_share: float = 0.05
    stage_share: float = 0.1
    recurrence: float = 0.6
    least_steps: float = 5.0
    absorbed_slope: float = 0.3
    onset_rise: float = 1.15
    repeats: float = 3.0
    cause_share: float = 0.5
    absorbed_errors: float = 3.0
    throughout: float = 0.6
    periodic: float = 0.9
    waiting_spread: float = 0.002
    waiting_slope: float = 0.5
    waiting_correlation: float = 0.7
    camp_gap: float = 0.2
    camp_apart: float = 3.0
    least_accounted: float = 0.8
    share_from_start: float = 0.15
    least_from_start: float = 0.1
    most_share_of_first: float = 0.25

    @staticmethod
    def of(thresholds: Mapping[str, float]) -> Gates:
        """The gates with overrides; names that are no gate are left out."""
        known = {field.name for field in fields(Gates)}
        return Gates(**{name: value for name, value in thresholds.items() if name in known})


REASONS: Mapping[str, str] = {
    "closure_share": "StageFrontier Table 13: beyond it the stages do not explain the step, and no strong label is given",
    "overlap_share": "StageFrontier Table 13: stages that overlap were nested or counted twice",
    "missing_ranks": "StageFrontier Table 13: labels about the group need the whole group",
    "event_ready": "StageFrontier Table 13: device labels need most of the sampled pairs",
    "event_samples": "StageFrontier Table 13: one ready event is no evidence",
    "dominance": "StageFrontier Table 13: a strong label needs a stage that leads the exposed time",
    "static_gain": "StageFrontier Table 13: parts direct exposure from a share that depends on waiting",
    "tie": "StageFrontier Table 13: shares or gains this near to each other are a tie",
    "leader_gap": "ours: a leader by less than a fiftieth of the step is chance, and a scheduler's tick at 200 ms",
    "leader_switches": "ours: two ranks in turn switch every time, one rank never; below a third the leader is mostly one rank",
    "leader_eligible": "ours: with a confident leader in less than half of the steps there is no leader to speak of",
    "routing": "StageFrontier Table 13",
    "least_exposed_ms": "ours: below a millisecond a window, percentages are those of the clock",
    "aligned_share": "ours: ranks that leave a stage within a fiftieth of a step leave it together",
    "aligned_ratio": "ours: on a noisy host, a stage that ranks leave this much closer to each other than they entered it",
    "excess_share": "ours: a step counts as affected when it lost a fiftieth of the usual step",
    "rank_share": "ours: jitter of 32 equal ranks costs three per cent of a step; what ranks beyond five cost is none",
    "stage_share": "ours: without a recurring rank, the loss must be of the size that StageFrontier calls direct exposure",
    "recurrence": "ours: of the affected steps that one rank must cause before it is named",
    "least_steps": "ours: affected steps before anything is named",
    "absorbed_slope": "ours: a delay that the group's step time does not follow was absorbed",
    "share_from_start": "ours: a smaller lag from the first recorded step on may be how the job is made; then a suspect",
    "least_from_start": "ours: without a smaller lag of a host a step needs more than nine tenths of its time (VenusTrace 5.3)",
    "most_share_of_first": "ours: short steps of sound jobs log for up to a sixth of the time",
    "least_accounted": "ours: of the time by which steps became longer that stages must explain before a cause is named",
    "onset_rise": "ours: a lasting rise of the step time by a sixth is a change, and the steps before it the reference",
    "repeats": "ours: affected steps that speak for a large loss, and steps that one rank must cause; two are chance",
    "cause_share": "ours: of a step's loss, or of the latest rank's excess: who has it is one of those that cause it",
    "absorbed_errors": "ours: standard errors by which a slope may be larger than measured",
    "throughout": "ours: a loss in this share of the steps is in all of them, but for jitter",
    "periodic": "ours: of the distances between affected steps that must be equal before they are called a period",
    "waiting_spread": "ours: of a step; ranks that come closer together show no waiting for each other",
    "waiting_slope": "ours: time in a meeting grows by as much as a rank comes early, half more or less by jitter",
    "waiting_correlation": "ours: what only waits for the late rank moves with it; half of its variance is shared",
    "camp_gap": "ours: of a step; ranks whose usual times of a stage lie further apart play different parts",
    "camp_apart": "ours: times the spread inside a camp; nearer camps are one kind of rank with jitter",
}
