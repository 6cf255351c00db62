"""How far back large logs are read, by the onset that some of them show."""

from __future__ import annotations

import pytest

from forensics.rules.history import needed
from forensics.rules.reductions.network.went_wrong import JobOnset, Onset, Trigger

S = 1_000_000_000


def onset(trigger: Trigger, ago_s: float, step_s: float = 0.5) -> JobOnset:
    ago, step = round(ago_s * S), round(step_s * S)
    return JobOnset(Onset(trigger, 0, "host-0", "dp", 0, ago, step, ago, step, 1 << 20, "0.frx"), (0, 8), step)


@pytest.mark.parametrize(("step_s", "before_s"), [(0.5, 10), (2.0, 12)])
def test_of_a_job_that_halted_ten_seconds_or_six_steps_before_are_needed(step_s: float, before_s: int) -> None:
    assert needed(onset(Trigger.NO_COMPLETION, 30, step_s), 10.0, 5 * S) == (30 + before_s) * S


def test_a_halt_that_may_be_a_pause_needs_all_that_was_before() -> None:
    """One checkpoint of 20 s is in the sampled logs: what excuses 30 s of silence may lie before any window."""
    assert needed(onset(Trigger.NO_COMPLETION, 30), 10.0, 2 * 20 * S) is None


@pytest.mark.parametrize("trigger", [Trigger.INTERVAL, Trigger.THROUGHPUT])
def test_how_much_slower_a_job_became_is_told_by_all_of_its_history(trigger: Trigger) -> None:
    assert needed(onset(trigger, 30), 10.0, 0) is None


def test_without_an_onset_everything_is_read() -> None:
    assert needed(JobOnset(None, (0, 8), S), 10.0, 0) is None
