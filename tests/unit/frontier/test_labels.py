"""Labels of a window: every one of Table 12 where it belongs, and the downgrades."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from forensics.rules.reductions.frontier.gates import Gates
from forensics.rules.reductions.frontier.labels import examine
from forensics.rules.reductions.frontier.matrix import Column
from tests.unit.frontier.jobs import MS, job, judged, labels, matrix

STRONG = {"direct_exposure", "sync_wait_dependent", "likely_sync_wait", "forward_device_supported"}


def test_two_equal_paths_may_be_a_wait_or_two_bottlenecks() -> None:
    """StageFrontier section 4: charged to data, and both stay in question."""
    sharp = np.tile(np.array([[[10.0, 0.0], [0.0, 10.0]]]), (20, 1, 1))
    found = judged(matrix(sharp)).examined
    assert found.shares is not None and found.shares[0] == 1.0
    assert found.has("co_critical") and not any(found.has(label) for label in STRONG)
    assert set(found.ambiguity_set) == {"data", "backward"}


def test_two_stages_of_equal_share_are_tied() -> None:
    tied = np.tile(np.array([[[10.0] * 4, [10.0] * 4]]), (10, 1, 1))
    assert "co_critical" in labels(matrix(tied))


def test_ranks_of_two_parts_are_not_compared() -> None:
    parts = np.tile(np.array([[[1.0] * 8, [40.0] * 4 + [90.0] * 4, [60.0] * 8]]), (20, 1, 1))
    assert "role_aware_needed" in labels(matrix(parts))


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("ranks", [8, 32])
def test_a_sound_job_gets_no_strong_label_and_accuses_nobody(ranks: int, seed: int) -> None:
    found = judged(job(ranks=ranks, seed=seed))
    assert not {label for label, _, _ in found.examined.labels} & STRONG
    assert found.attribution.culprits == ()


def test_direct_exposure_needs_an_excess_over_a_baseline() -> None:
    values = np.full((40, 3, 4), 10.0)
    values[:, 1, 2] = 60.0
    found = judged(matrix(values)).examined
    assert found.has("direct_exposure")
    assert found.gains_by_baseline["cohort_median"][1] > 0.5 > found.gains_by_baseline["window_median"][1]


def test_a_reference_without_a_stall_is_a_baseline() -> None:
    slow = matrix(np.full((40, 3, 4), 10.0) * np.array([1.0, 8.0, 1.0])[None, :, None])
    reference = np.full((4, 4), 10.0) * MS
    reference[3] = 0
    assert not examine(slow, Gates()).has("direct_exposure")
    assert examine(slow, Gates(), reference=reference).has("direct_exposure")


def test_a_share_that_depends_on_waiting_needs_a_sign_of_waiting() -> None:
    slow = job("forward", delay_ms=200)
    assert {"sync_wait_dependent", "likely_sync_wait"} <= labels(slow)
    assert "sync_wait_dependent" not in labels(replace(slow, ends=None))
    assert "co_critical" in labels(replace(slow, ends=None))


def test_telemetry_limits_strong_labels() -> None:
    slow = job("forward", delay_ms=200)
    for limited in (
        replace(slow, walls=slow.walls * 1.2),
        replace(slow, walls=slow.walls * 0.9),
        replace(slow, missing=(8,)),
        replace(slow, is_ordered=False),
    ):
        found = labels(limited)
        assert "telemetry_limited" in found and not found & STRONG


def test_one_rank_gives_no_evidence_across_ranks() -> None:
    found = judged(matrix(np.full((10, 3, 1), 5.0)))
    assert found.examined.has("telemetry_limited") and found.examined.leader is None
    assert found.attribution.culprits == ()


def test_below_the_floor_advances_stand_without_percentages() -> None:
    found = judged(matrix(np.full((3, 3, 2), 1e-5))).examined
    assert found.shares is None and found.advances_ns[0] > 0


def test_parts_that_were_added_up_are_ambiguous() -> None:
    assert "gradient_accumulation_ambiguous" in labels(replace(job(), collapsed=True))


def with_device(forward_ms: float, device_ms: float, ready: int = 20) -> set[str]:
    values = np.full((20, 3, 4), 20.0)
    values[:, 1] = forward_ms
    values[:, 2] = 100.0
    device = np.full((20, 4), np.nan)
    device[:ready] = device_ms * MS
    return labels(matrix(values, device={"forward": device}, asked={"forward": 80}))


def test_device_times_tell_forward_work_from_host_overhead_and_spillover() -> None:
    assert "forward_device_supported" in with_device(200, 190)
    assert "forward_host_overhead_suspected" in with_device(200, 10)
    assert "forward_spillover_suspected" in with_device(20, 90)
    assert "forward_event_scope_limited" in with_device(200, 190, ready=4)


def test_steps_without_a_sample_say_nothing_of_the_device() -> None:
    values = np.full((40, 3, 4), 20.0)
    values[:, 1], values[:, 2] = 200.0, 100.0
    device = np.full((40, 4), np.nan)
    device[::20] = 190 * MS
    assert "forward_device_supported" in labels(matrix(values, device={"forward": device}, asked={"forward": 8}))


@pytest.mark.parametrize(("device_ms", "label"), [(None, "co_critical"), (130.0, "co_critical"), (10.0, "direct_exposure")])
def test_a_backward_that_became_longer_on_all_ranks_may_be_work_of_forward(device_ms: float | None, label: str) -> None:
    """Without device times, or with long ones of forward; a short forward on the device clears it."""
    values = np.tile(np.array([5.0, 60.0, 220.0])[None, :, None], (40, 1, 8))
    stated = {} if device_ms is None else {"device": {"forward": np.full((40, 8), device_ms * MS)}, "asked": {"forward": 320}}
    reference = np.array([5.0, 60.0, 100.0, 0.0])[:, None] * MS
    found = examine(matrix(values, **stated), Gates(), reference=reference)
    assert found.has(label) and not found.has({"co_critical", "direct_exposure"}.difference({label}).pop())
    assert set(found.ambiguity_set) == ({"forward", "backward"} if label == "co_critical" else {"backward"})


def test_one_rank_long_in_backward_is_exposed_directly() -> None:
    values = np.tile(np.array([5.0, 60.0, 100.0])[None, :, None], (40, 1, 8))
    values[:, 2, 3] = 220.0
    assert examine(matrix(values), Gates()).has("direct_exposure")


def test_accumulation_stays_unfolded_until_it_is_reported() -> None:
    """Two microsteps, another rank late in each: folded, the second delay would hide behind the first."""
    columns = (Column("forward"), Column("backward"), Column("forward", "", 1), Column("backward", "", 1))
    values = np.full((10, 4, 4), 10.0)
    values[:, 0, 1] = 50.0
    found = judged(matrix(values, columns=columns)).examined
    assert found.stages == ("forward", "backward", "other")
    assert found.shares is not None and np.isclose(sum(found.shares), 1)


def test_routing_takes_the_fewest_stages_that_reach_the_threshold() -> None:
    values = np.zeros((5, 5, 4))
    values += np.array([10.0, 30.0, 50.0, 6.0, 4.0])[None, :, None]
    assert judged(matrix(values)).examined.routing_set == ("backward", "forward")
    assert judged(matrix(values), routing=0.85).examined.routing_set == ("backward", "forward", "data")
