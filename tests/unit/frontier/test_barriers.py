"""Barriers inside stages: who comes late to one is long in its stage, although all are in it for as long."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from forensics.case.database import insert_rows, new_case
from forensics.rules.engine import find, supply_of, thresholds
from forensics.rules.interface import Thresholds
from forensics.rules.reductions.frontier.barriers import with_barriers
from forensics.rules.reductions.frontier.matrix import StageMatrix
from forensics.rules.reductions.frontier.reading import FrontierWindows
from forensics.rules.reductions.frontier.verdicts import FrontierWindow
from tests.unit.frontier.jobs import MS, blamed, job

CALLBACKS = 3


def held(made: StageMatrix, *, after_ms: float = 0.0) -> StageMatrix:
    """The job with a barrier in its callbacks, which all leave together; rank 5 goes on there for a time."""
    assert made.ends is not None
    came = made.ends[:, CALLBACKS]
    left = came.max(axis=1, keepdims=True) + np.zeros_like(came)
    left[:, 5] += int(after_ms * MS)
    waited = left - came
    own, durations = made.durations[:, CALLBACKS].copy(), made.durations.copy()
    durations[:, CALLBACKS] += waited
    ends = made.ends.copy()
    ends[:, CALLBACKS] = left
    ends[:, CALLBACKS + 1] += waited
    return replace(made, durations=durations, walls=made.walls + waited, ends=ends, barriers={CALLBACKS: own})


def test_who_comes_late_to_a_barrier_is_long_in_its_stage() -> None:
    late = held(job("callbacks"))
    assert blamed(late) == [("callbacks", (3,))]
    assert ("callbacks", (3,)) not in blamed(replace(late, barriers={}))


def test_the_call_is_the_evidence() -> None:
    rule = find("FX170")
    assert rule is not None
    for slow in ("callbacks", "forward"):
        windows = FrontierWindows((FrontierWindow(held(job(slow))),))
        given: dict[object, object] = {FrontierWindows: windows, Thresholds: thresholds(rule, {})}
        (finding,) = [each for each in supply_of(new_case(), None).call(rule.evaluate, given) if each.impact]
        assert (finding.ranks, finding.stage.name) == ((3,), slow)
        assert any("with a barrier" in each.statement for each in finding.evidence) is (slow == "callbacks")


def test_who_is_late_before_the_barrier_is_not_long_in_its_stage() -> None:
    assert blamed(held(job("forward"))) == [("forward", (3,))]


def test_a_sound_job_with_a_barrier_names_nobody() -> None:
    assert blamed(held(job())) == []


def test_work_behind_a_barrier_is_no_wait_for_it() -> None:
    """Ranks do not leave the stage together: what rank 5 does there behind the barrier is its own."""
    assert ("callbacks", (5,)) in blamed(held(job(), after_ms=120))


def test_calls_are_of_the_stage_in_which_they_were_made() -> None:
    made = job(steps=10, ranks=2)
    assert made.ends is not None
    connection = new_case()
    calls: list[tuple[object, ...]] = [
        (rank, kind, "done", int(made.ends[step, stage, rank] - 1_000_000) + made.epoch_ns)
        for rank in range(2)
        for step in range(10)
        for stage, kind in ((2, "all_reduce"), (CALLBACKS, "all_reduce_barrier"))
    ]
    insert_rows(connection, "operations", "rank kind state enqueued_ns", calls)
    (found,) = with_barriers(connection, [made])
    assert list(found.barriers) == [CALLBACKS]
    assert np.allclose(found.barriers[CALLBACKS], made.durations[:, CALLBACKS] - MS, atol=2)
    connection.execute("UPDATE operations SET enqueued_ns = enqueued_ns - 60000000")
    (shifted,) = with_barriers(connection, [made])
    assert not shifted.barriers, "calls and stages are dated by clocks that differ by 60 ms"


def test_steps_in_which_a_call_is_not_known_make_no_rank_long() -> None:
    sound = held(job())
    sound.barriers[CALLBACKS][::5, 6] = np.nan
    assert blamed(sound) == []


def test_a_rank_without_stages_may_be_the_last_one_of_most_steps() -> None:
    """Rank 5, which logs for all, is lost: some steps show that who comes last leaves at once."""
    whole = held(job("callbacks"))
    assert whole.ends is not None
    connection = new_case()
    log_ms = np.where(np.arange(len(whole.steps)) % 4 == 3, 0, 20)
    for missing, wait, known in (((5,), log_ms, True), ((), log_ms, False), ((5,), np.full_like(log_ms, 20), False)):
        behind = (wait * int(MS))[:, None]
        durations, ends = whole.durations.copy(), whole.ends.copy()
        durations[:, CALLBACKS] += behind
        ends[:, CALLBACKS:] += behind[:, None]
        made = replace(whole, durations=durations, ends=ends, missing=missing)
        called = ends[:, CALLBACKS] - durations[:, CALLBACKS].astype(np.int64) + whole.barriers[CALLBACKS].astype(np.int64)
        calls: list[tuple[object, ...]] = [
            (rank, "barrier", "done", int(called[step, place]) + made.epoch_ns)
            for place, rank in enumerate(made.ranks)
            for step in range(len(made.steps))
        ]
        connection.execute("DELETE FROM operations")
        insert_rows(connection, "operations", "rank kind state enqueued_ns", calls)
        (found,) = with_barriers(connection, [made])
        assert (CALLBACKS in found.barriers) is known
