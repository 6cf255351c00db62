"""NICs that are slow each by itself are one rail, where no NIC of their number is sound; else as many faults."""

from __future__ import annotations

from collections.abc import Collection

import pytest

from forensics.rules.reductions.epochs.judged import JudgedLink
from forensics.rules.reductions.epochs.links import LinkRate
from forensics.rules.reductions.epochs.slow_links import JudgedLinks, SlowEnd, slow_ends
from forensics.rules.reductions.network.epoch_rails import in_rails

GB = 10**9
# Rings of NICs 0 and 2 of four hosts of three; NIC 1 of each exchanges data with both.
SOUND = ((0, 3), (3, 6), (6, 9), (2, 5), (5, 8), (8, 11))


def link(ends: tuple[int, int], slow: Collection[int]) -> JudgedLink:
    is_slow = not {*ends}.isdisjoint(slow)
    rate = (10 if is_slow else 45) * GB
    return JudgedLink(LinkRate(*ends, rate, GB, 10, 10**9, ends[0], "x"), 45 * GB, 8, is_slow)


def found_in(sound: tuple[tuple[int, int], ...], slow: Collection[int]) -> list[SlowEnd]:
    both = [(one, one + step) for one in (1, 4, 7, 10) for step in (-1, 1)]
    judged = JudgedLinks(tuple(link(each, slow) for ends in (*sound, *both) for each in (ends, ends[::-1])))
    return in_rails(slow_ends(judged), judged, lambda rank: (f"h{rank // 3}", rank % 3))


@pytest.mark.parametrize(
    ("slow", "named"),
    [
        ((1, 4, 7, 10), [(1, 4, 7, 10)]),
        ((1, 4, 7), [(1,), (4,), (7,)]),
        ((1, 4), [(1,), (4,)]),
        ((1, 4, 8), [(1,), (4,), (8,)]),
    ],
    ids=["all of a number", "one of them is sound", "two", "of two numbers"],
)
def test_slow_nics_of_one_number_are_a_rail_where_none_of_it_is_sound(
    slow: tuple[int, ...], named: list[tuple[int, ...]]
) -> None:
    found = found_in(SOUND, slow)
    assert sorted(end.ranks for end in found) == named
    assert [end.is_rail for end in found if len(end.ranks) > 1] == [True] * (len(named) == 1)


def test_a_host_of_which_no_other_nic_is_sound_may_be_slow_itself() -> None:
    assert [end.ranks for end in found_in(SOUND[1:3] + SOUND[4:], (1, 4, 7, 10))] == [(1,), (4,), (7,), (10,)]
