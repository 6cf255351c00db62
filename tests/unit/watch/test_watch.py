"""When a watched job is collected from, and how often: worlds with a clock of their own."""

from __future__ import annotations

import pytest

from forensics.watch.loop import Settings
from forensics.watch.rhythm import Reading
from forensics.watch.trigger import MOST_SAMPLED, sample
from tests.unit.watch.made_world import LIMITS, Look, MadeWorld, changing, stack_of, steady


def test_a_job_that_moves_is_left_alone() -> None:
    world = MadeWorld({rank: steady(2.0) for rank in range(4)}, until_s=3600)
    assert world.alarms() == []
    assert world.run()[-1] == {"event": "end", "reason": "interrupted"}


def test_a_standstill_is_collected_once_when_it_outlasts_the_threshold() -> None:
    ((kind, at_s),) = MadeWorld({rank: steady(2.0, until_s=600) for rank in range(4)}, until_s=3600).alarms()
    assert kind == "standstill" and 660 <= at_s <= 680


def test_a_pause_as_the_job_makes_them_is_no_standstill() -> None:
    """A checkpoint of 100 s every 10 minutes: the first may be collected, the others are known."""
    saving: Look = lambda at_s: int(at_s // 600 * 1000 + min(at_s % 600, 500) * 2)  # noqa: E731
    found = MadeWorld({0: saving, 1: saving}, until_s=7200).alarms()
    assert [kind for kind, _ in found] == ["standstill"]


def test_one_counted_rank_tells_and_one_idle_stack_does_not() -> None:
    assert MadeWorld({0: steady(2.0, until_s=600), 1: steady(2.0)}, until_s=1200).alarms()[0][0] == "standstill"
    assert MadeWorld({0: stack_of(0, 600), 1: stack_of(1, 9999)}, until_s=1200).alarms() == []
    assert MadeWorld({0: stack_of(0, 600), 1: stack_of(1, 600)}, until_s=1200).alarms()[0][0] == "standstill"


def test_a_longer_standstill_is_collected_again_up_to_the_cap() -> None:
    """Pauses of 100, 300, 900 and 2700 s: each is longer than any before."""
    pauses = {500: 100, 1000: 300, 2000: 900, 4000: 2700}

    def pausing(at_s: float) -> int:
        return int(2 * at_s - 2 * sum(min(max(0.0, at_s - begin), length) for begin, length in pauses.items()))

    world = MadeWorld({0: pausing}, until_s=8000)
    events = world.run(Settings(most=2, limits=LIMITS))
    made = [event["event"] for event in events if event["event"] in ("bundle", "no_bundle")]
    assert made == ["bundle", "bundle", "no_bundle", "no_bundle"]


def test_half_the_throughput_is_a_slowdown_and_is_stated_once() -> None:
    ((kind, at_s),) = MadeWorld({0: changing(10.0, 1200, 4.0)}, until_s=3600).alarms()
    assert kind == "slowdown" and 1200 < at_s <= 1450
    assert MadeWorld({0: changing(10.0, 1200, 6.0)}, until_s=3600).alarms() == []


def test_bytes_tell_of_a_slowdown_that_operations_do_not_show() -> None:
    def thinner(at_s: float) -> Reading:
        return Reading(0, at_s, "shim log", int(at_s), int(1e6 * min(at_s, 1200) + 3e5 * max(0.0, at_s - 1200)))

    world = MadeWorld({0: thinner}, until_s=2400)
    assert [kind for kind, _ in world.alarms()] == ["slowdown"]
    assert "bytes a second" in world.collected[0][1].reason


def test_a_stall_right_after_a_slowdown_is_collected_too() -> None:
    def fading(at_s: float) -> int:
        return int(10 * min(at_s, 1200) + 2 * min(max(0.0, at_s - 1200), 230))

    assert [kind for kind, _ in MadeWorld({0: fading}, until_s=3600).alarms()] == ["slowdown", "standstill"]


def test_a_job_that_never_began_is_given_the_time_of_a_start() -> None:
    ((kind, at_s),) = MadeWorld({0: lambda at_s: 0, 1: lambda at_s: 0}, until_s=3600).alarms()
    assert kind == "standstill" and at_s >= LIMITS.first_s


def test_stacks_of_the_start_are_no_rhythm_of_counters() -> None:
    def starting(at_s: float) -> Reading:
        source = {"source": "stack", "stack": f"{at_s}"} if at_s < 100 else {"source": "flight recorder", "completed": 0}
        return Reading(0, at_s, **source)

    assert MadeWorld({0: starting}, until_s=600).alarms() == []


def test_a_rank_that_is_gone_is_collected_while_the_others_run_on() -> None:
    world = MadeWorld({rank: steady(2.0) for rank in range(4)}, until_s=1200, ends={2: 300})
    assert [(kind, found.ranks) for kind, found in ((one[0], world.collected[0][1]) for one in world.alarms())] == [
        ("gone", (2,))
    ]


@pytest.mark.parametrize("apart_s", [0.0, 9.0])
def test_a_job_that_ends_is_no_alarm(apart_s: float) -> None:
    world = MadeWorld({0: steady(2.0), 1: steady(2.0)}, ends={0: 300.0, 1: 300.0 + apart_s})
    events = world.run()
    assert world.collected == [] and events[-1] == {"event": "end", "reason": "job ended"}


def test_a_watch_waits_for_a_job_as_long_as_it_is_stated() -> None:
    first, last = MadeWorld({0: steady(2.0)}, starts_s=9999).run(Settings(wait_s=60))
    assert (first["reason"], last["reason"]) == ("searched in vain", "no job")
    events = MadeWorld({0: steady(2.0)}, starts_s=300, until_s=600).run(Settings(wait_s=400))
    assert [event["event"] for event in events[:3]] == ["waiting", "job", "reading"]


def test_a_watch_that_stays_waits_for_the_next_job() -> None:
    events = MadeWorld({0: steady(2.0)}, ends={0: 100.0}, until_s=300).run(Settings(stays=True))
    assert [event["reason"] for event in events if event["event"] == "end"] == ["job ended", "interrupted"]


def test_ranks_that_give_nothing_accuse_nobody_of_anything() -> None:
    assert MadeWorld({0: lambda at_s: None, 1: steady(2.0)}, until_s=3600).alarms() == []


def test_ten_ranks_are_sampled_evenly() -> None:
    assert sample(range(4)) == (0, 1, 2, 3)
    chosen = sample(range(1000))
    assert len(chosen) == MOST_SAMPLED and (chosen[0], chosen[-1]) == (0, 999)
