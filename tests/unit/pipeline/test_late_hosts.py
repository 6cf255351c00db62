"""Hosts that wait in calls themselves: who is late again and again by its own work, and who only wanted for a core."""

from __future__ import annotations

from collections.abc import Mapping

import pytest

from forensics.case.database import new_case
from forensics.rules.reductions.pipeline.call_places import CallPlaces
from forensics.rules.reductions.pipeline.delay import Delay, Delays
from forensics.rules.reductions.pipeline.late_hosts import is_brief, stands_out
from forensics.rules.reductions.steps.records import Recorded

MS = 1_000_000
HOSTS: Mapping[int, str | None] = dict.fromkeys(range(4), "host")
AGAIN, STEPS_LOST = 3, 3
NOWHERE = CallPlaces(new_case(), Recorded(new_case(), {}))
"""Nothing tells of which pass a call is."""


def delay(rank: int, step: int, ms: int) -> Delay:
    """A host that came late to the first call of a step."""
    return Delay(step, ms * MS, (rank,), "all", step, "all_reduce", 0, (0, step), ms * MS, by_arrivals=True, before_step=True)


BURST = [delay(2, step, 150) for step in (20, 21, 22, 23, 60, 61, 62, 63)]


@pytest.mark.parametrize(
    ("others_ms", "rank", "messages", "timed", "is_named"),
    [
        ([30] * 20, 2, False, 4, True),
        ([30] * 20, 2, True, 4, False),
        ([30] * 20, 2, False, 3, False),
        ([30] * 20, 0, False, 4, False),
        ([140] * 9, 2, False, 4, False),
    ],
    ids=["beside short ones", "or by a message", "a rank was not seen", "first rank", "beside as many as long"],
)
def test_a_rank_that_is_late_for_a_moment_again_and_again(
    others_ms: list[int], rank: int, messages: bool, timed: int, is_named: bool
) -> None:
    """A GPU that is throttled for moments: several steps on end, then none for a while. A busy host delays many a little."""
    found = [delay(rank, each.step, 150) for each in BURST]
    delays = Delays(
        tuple(found), 300, 280, 95 * MS, len(others_ms), frozenset(range(4)), frozenset(range(timed)),
        tuple(float(ms * MS) for ms in others_ms), may_have_messages=messages,
    )  # fmt: skip
    assert stands_out(delays, found, NOWHERE, HOSTS, AGAIN, STEPS_LOST) is is_named


def test_three_steps_of_one_rank_may_be_chance() -> None:
    """Of four ranks one is last to all of three long steps in one job of sixteen."""
    found = [delay(2, step, 150) for step in (4, 9, 30)]
    everybody = frozenset(range(4))
    delays = Delays(tuple(found), 300, 290, 95 * MS, 0, everybody, everybody, may_have_messages=False)
    assert not stands_out(delays, found, NOWHERE, HOSTS, AGAIN, STEPS_LOST)


class Amid(CallPlaces):
    """Each call has others of its kind on both sides in its step."""

    __slots__ = ()

    def is_amid(self, rank: int, communicator: str, sequence: int) -> bool:
        return True


@pytest.mark.parametrize(("beside", "is_named"), [(0, True), (1, True), (4, False)])
def test_steps_in_which_another_rank_is_late_too_count_against_many_others(beside: int, is_named: bool) -> None:
    """Its messages might come late from that rank, or both wanted for a core."""
    found = [delay(2, step, 600) for step in range(20)]
    also = [delay(1, step, 300) for step in range(beside)]
    everybody = frozenset(range(4))
    delays = Delays((*found, *also), 40, 20, 500 * MS, 0, everybody, everybody, may_have_messages=True)
    places = Amid(new_case(), Recorded(new_case(), {}))
    assert stands_out(delays, found, places, HOSTS, AGAIN, STEPS_LOST) is is_named


@pytest.mark.parametrize(
    ("ms", "steps", "brief"),
    [((900,), 20, True), ((1400,), 20, False), ((1400,), 50, True), ((1400, 1400), 50, False), ((3100,), 500, False)],
    ids=["short", "a long one", "in a long record", "twice", "too long for any"],
)
def test_a_pause_is_brief_by_itself_or_for_the_record(ms: tuple[int, ...], steps: int, brief: bool) -> None:
    found = [delay(2, 7 + number, each) for number, each in enumerate(ms)]
    ranks = frozenset(range(4))
    delays = Delays(tuple(found), steps, steps - len(found), 400 * MS, 0, ranks, ranks)
    assert is_brief(delays, found, 1000 * MS, 3000 * MS) is brief
