"""A rank whose main thread needs clearly more processor time than any other in a moving job, for which the others wait."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import accumulate
from pathlib import Path

import numpy as np
import pytest

from forensics.case.build import open_case
from forensics.model import Cause, Confidence, Outcome, Verdict
from forensics.rules.engine import supply_of
from forensics.rules.leads.rounds import busy_signs
from forensics.rules.reductions.pipeline.work_of_equals import MeetingGroups, apart_from_equals
from forensics.rules.reductions.ranks.processor_time import MostUsed, ProcessorTimes
from tests.recordings.collection import Collection
from tests.recordings.job import START_NS
from tests.recordings.places import ALL_REDUCE, BARRIER, BROADCAST, FORWARD, HOST_CODE, OTHER_CODE, RECV, Place
from tests.recordings.verdicts import verdict_of

AT_WORK = (FORWARD, ALL_REDUCE, OTHER_CODE, FORWARD, ALL_REDUCE, HOST_CODE)
NOW_AND_THEN = (ALL_REDUCE, FORWARD, ALL_REDUCE, ALL_REDUCE, FORWARD, ALL_REDUCE)
EVEN = (40, 42, 38, 41, 40)
MORE = (90, 85, 95, 88, 92)


def _verdict(
    used: Mapping[int, Sequence[int]],
    folder: Path,
    *,
    places: Mapping[int, Sequence[Place]] | None = None,
    others: Sequence[Place] = NOW_AND_THEN,
    world: int = 4,
) -> Verdict:
    return verdict_of(_collection(used, places or {2: AT_WORK}, others, world).write(folder))


def _collection(
    used: Mapping[int, Sequence[int]], places: Mapping[int, Sequence[Place]], others: Sequence[Place], world: int
) -> Collection:
    """Six samples of each rank; `used` are hundredths of a second between them, of those that are not even."""
    found = Collection(world, START_NS)
    for rank in range(world):
        found.rank(rank)
        found.samples(rank, count=6, moving=True)
        found.stacks(rank, *places.get(rank, others))
        found.written(rank, list(accumulate([2_000_000] * 5, initial=0)))
        found.worked(rank, list(accumulate(used.get(rank, EVEN), initial=1000)))
    return found


def test_who_needs_most_is_a_suspect_where_two_stacks_do_not_suffice(tmp_path: Path) -> None:
    verdict = _verdict({2: MORE}, tmp_path)
    (suspect,) = verdict.suspects
    assert (verdict.outcome, suspect.ranks, suspect.rules) == (Outcome.SLOWDOWN, (2,), ("FX185",))
    assert (suspect.confidence, suspect.cause) == (Confidence.SUSPECT, Cause.UNKNOWN)
    assert "used 4.5 s of a processor in 10.0 s, that of any other rank 2.0 s at most" in suspect.evidence[0].statement
    assert any(not each.supports for each in suspect.evidence)


@pytest.mark.parametrize(
    "used",
    [
        {},
        {2: (48, 49, 47, 50, 48)},
        {2: (40, 300, 40, 40, 38)},
        {1: MORE, 2: MORE},
        {2: (100, 41, 95, 42, 99)},
        {2: (4, 5, 5, 4, 6), 0: (2, 2, 3, 2, 2), 1: (2, 3, 2, 2, 2), 3: (2, 2, 2, 3, 2)},
    ],
    ids=["even", "little more", "once", "two ranks", "two long steps", "too little to matter"],
)
def test_nobody_is_named_or_led_to_where_ranks_need_as_much(used: Mapping[int, Sequence[int]], tmp_path: Path) -> None:
    verdict = _verdict(used, tmp_path)
    assert verdict.suspects == ()
    assert not any("processor" in lead for lead in verdict.leads)


@pytest.mark.parametrize("call", [BARRIER, BROADCAST, RECV], ids=["barrier", "broadcast", "message"])
def test_who_serves_the_others_is_where_to_begin(call: Place, tmp_path: Path) -> None:
    waits = [call if place is ALL_REDUCE else place for place in NOW_AND_THEN]
    verdict = _verdict({2: MORE}, tmp_path, others=waits)
    assert verdict.suspects == ()
    assert verdict.leads[0].startswith("what takes rank 2 long: ")


def test_the_first_rank_may_have_a_duty(tmp_path: Path) -> None:
    verdict = _verdict({0: MORE}, tmp_path, places={0: AT_WORK})
    assert verdict.suspects == ()
    assert verdict.leads[0].startswith("what takes rank 0 long")


@pytest.mark.parametrize(
    "places",
    [{}, {2: AT_WORK, 1: (FORWARD,) * 6}, {2: (*[ALL_REDUCE] * 5, FORWARD)}],
    ids=["it waits as others do", "one never waits", "at work once"],
)
def test_the_others_must_be_seen_to_wait_for_it(places: Mapping[int, Sequence[Place]], tmp_path: Path) -> None:
    others = (ALL_REDUCE,) * 6
    assert _verdict({2: MORE}, tmp_path, places=places or {2: others}, others=others).suspects == ()


def test_of_two_ranks_nothing_tells_what_is_usual(tmp_path: Path) -> None:
    verdict = _verdict({1: MORE}, tmp_path, places={1: AT_WORK}, world=2)
    assert verdict.suspects == ()


GROUPS = (frozenset({0, 2}), frozenset({1, 3}))


@pytest.mark.parametrize(
    ("seconds", "groups", "stands_out"),
    [
        ((1.0, 1.1, 1.05, 2.4), GROUPS, True),
        ((1.0, 2.3, 1.05, 2.4), GROUPS, False),
        ((1.0, 1.1, 1.6, 2.4), GROUPS, False),
        ((1.0, 1.1, 1.05, 2.4), GROUPS[1:], False),
        ((1.0, 1.1, 1.05, 2.4), (frozenset({0, 3}), frozenset({1, 2})), True),
        ((1.0, 1.1, 1.05, 2.4), (frozenset({0, 3}), frozenset({0, 1})), False),
        ((1.0, 1.1, 2.2, 2.4), (*GROUPS, frozenset({2, 3})), False),
        ((1.0, 1.1, 1.05, 2.4), (), False),
    ],
    ids=["one", "all of its stage", "others differ", "no other group", "any pairs", "overlapping", "one of its equals", "none"],
)
def test_a_stage_is_compared_with_itself_only(seconds: Sequence[float], groups: MeetingGroups, stands_out: bool) -> None:
    times = ProcessorTimes(
        (0, 1, 2, 3), np.array(seconds).reshape(4, 1) / 4 * np.ones((1, 4)), 6.0, dict.fromkeys(range(4), "x")
    )
    found = MostUsed(3, seconds[3], max(seconds[:3]), 6.0, 4, "x")
    assert (apart_from_equals(found, times, groups, 1.3) is not None) == stands_out


@pytest.mark.parametrize(
    ("used", "others", "speaks"),
    [({2: MORE}, NOW_AND_THEN, True), ({}, NOW_AND_THEN, False), ({2: MORE}, (FORWARD,) * 6, False)],
    ids=["most", "even", "nobody waits"],
)
def test_a_job_in_which_the_others_wait_is_not_called_healthy(
    used: Mapping[int, Sequence[int]], others: Sequence[Place], speaks: bool, tmp_path: Path
) -> None:
    """An even speed shows that they always did."""
    found = _collection(used, {2: AT_WORK}, others, 4)
    signs = supply_of(open_case([found.write(tmp_path)])).call(busy_signs)
    assert any("used 4.5 s of a processor" in sign for sign in signs) is speaks
