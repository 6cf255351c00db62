"""Which links count as slow, and whom that accuses: on rates in memory."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from forensics.rules.reductions.epochs.gaps import gap_ns, hides
from forensics.rules.reductions.epochs.judged import JudgedLink
from forensics.rules.reductions.epochs.links import LinkRate, LinkRates
from forensics.rules.reductions.epochs.passed_on import not_passed_on
from forensics.rules.reductions.epochs.slow_links import SlowEnd, judged_links, slow_ends, sound_beside_slow
from forensics.rules.reductions.epochs.volumes import LinkCalls
from forensics.rules.reductions.ranks.nic_users import CapturedUsers, NicUsers

Ends = tuple[int, int]
RING = [(rank, (rank + 1) % 4) for rank in range(4)]
TWO_RINGS = [*RING, *((a + 4, b + 4) for a, b in RING)]
EXCHANGE = [(a, b) for a in range(4) for b in range(4) if a != b]


def link(ends: Ends, rate: float, volume: float = 5e9) -> LinkRate:
    return LinkRate(*ends, rate, volume, 10, 10**9, ends[0], "capture")


def named(links: Iterable[Ends], parts: Mapping[int, float], volumes: Mapping[Ends, float] | None = None) -> list[SlowEnd]:
    """Who is named where each link has the rate of its slower end."""
    rates = [link(ends, 46e9 * min(parts.get(rank, 1.0) for rank in ends), (volumes or {}).get(ends, 5e9)) for ends in links]
    return slow_ends(
        judged_links(LinkRates(tuple(sorted(rates, key=lambda each: (each.sender, each.receiver)))), CapturedUsers(NicUsers()))
    )


def ranks(found: Iterable[SlowEnd]) -> list[tuple[int, ...]]:
    return [end.ranks for end in found]


def test_one_of_a_ring_and_one_of_an_exchange() -> None:
    assert ranks(named(RING, {2: 0.5})) == [(2,)]
    assert ranks(named(EXCHANGE, {2: 0.5})) == [(2,)]


def test_links_are_sound_beside_slow_ones_alone() -> None:
    for parts, sound in (({2: 0.5}, {(3, 0), (0, 1)}), ({}, set())):
        rates = [link(ends, 46e9 * min(parts.get(rank, 1.0) for rank in ends)) for ends in RING]
        judged = judged_links(LinkRates(tuple(rates)), CapturedUsers(NicUsers()))
        assert sound_beside_slow(judged) == sound


def test_of_a_ring_whose_epochs_are_too_long_the_slowest_link_is_told_from_the_others() -> None:
    rates = {(0, 1): 6.4e9, (1, 2): 10.6e9, (2, 0): 10.6e9, (3, 4): 12.8e9, (4, 5): 12.8e9, (5, 3): 12.8e9}
    judged = judged_links(LinkRates(tuple(link(ends, rate) for ends, rate in rates.items())), CapturedUsers(NicUsers()))
    assert ranks(slow_ends(judged)) == [(0, 1)]


def test_two_that_are_slow_by_different_amounts() -> None:
    assert ranks(named(TWO_RINGS, {1: 0.3, 6: 0.7})) == [(1,), (6,)]


def test_neighbours_account_for_three_links() -> None:
    assert ranks(named(TWO_RINGS, {1: 0.5, 2: 0.5})) == [(1,), (2,)]


def test_two_opposite_of_a_ring_of_four_cannot_be_distinguished_from_the_other_two() -> None:
    """All four links are slow, and each of its ends may be to blame: all four are kept, none is named."""
    (found,) = named(TWO_RINGS, {1: 0.5, 3: 0.5})
    assert found.ranks == (0, 1, 2, 3)


def test_what_a_slow_one_leaves_to_the_others_accuses_nobody() -> None:
    """Rank 2 has a fifth of its rate; links between two sound ranks seem a little slow, for its slices come late."""
    rates = dict.fromkeys(TWO_RINGS, 46000000000.0) | {(1, 2): 9e9, (2, 3): 9e9, (3, 0): 37e9, (0, 1): 38e9}
    judged = judged_links(LinkRates(tuple(link(ends, rate) for ends, rate in sorted(rates.items()))), CapturedUsers(NicUsers()))
    assert ranks(slow_ends(judged)) == [(2,)]


def test_uneven_routing_changes_volumes_and_no_rates() -> None:
    volumes = {ends: 2e9 * (1 + 0.4 * (ends[1] == 3)) for ends in EXCHANGE}
    assert named(EXCHANGE, {}, volumes) == []


@pytest.mark.parametrize(
    ("rates", "lines", "expected"),
    [
        ((1, 1, 1, 0.5, 0.5, 1), (25, 25, 25, 12.5, 12.5, 25), []),
        ((1, 1, 1, 0.25, 0.25, 1), (25, 25, 25, 12.5, 12.5, 25), [(4,)]),
        ((1, 1, 1, 0.5, 0.5, 1), (25, 25, 25, 25, 25, 25), [(4,)]),
        ((1, 1, 1, 0.5, 0.5, 1), (25, 25, 25, 12.5, None, 25), [(4,)]),
    ],
    ids=["as much as its line carries", "half of its line", "half of a line like others", "one line is not known"],
)
def test_a_nic_is_not_slow_by_what_its_line_does_not_carry(
    rates: tuple[float, ...], lines: tuple[float | None, ...], expected: list[tuple[int, ...]]
) -> None:
    """Hosts of two generations in one job: rank 4 has a slower line, and both links of it with it."""
    ring = [
        replace(link((at, (at + 1) % 6), rate * 23e9), line=line and line * 1e9)
        for at, (rate, line) in enumerate(zip(rates, lines, strict=True))
    ]
    assert ranks(slow_ends(judged_links(LinkRates(tuple(ring)), CapturedUsers(NicUsers())))) == expected


@pytest.mark.parametrize(
    ("parts", "expected"),
    [
        ((1, 1, 0.3, 0.34, 0.6, 1), [(2, 3)]),
        ((1, 1, 0.3, 0.3, 0.6, 1), [(3,)]),
        ((1, 1, 0.3, 1, 1, 1), [(2, 3)]),
        ((1, 0.3, 0.3, 0.3, 0.3, 1), [(2,), (4,)]),
    ],
    ids=["less so from NIC to NIC", "one that is slow both ways and what it hands on", "one link", "two NICs"],
)
def test_a_nic_that_hands_on_what_comes_late_is_not_slow(parts: tuple[float, ...], expected: list[tuple[int, ...]]) -> None:
    """Behind a slow link slices leave one by one at the rate of the line, and long epochs have the gaps in their rate."""
    ring = [link((at, (at + 1) % 6), part * 23e9) for at, part in enumerate(parts)]
    assert ranks(slow_ends(judged_links(LinkRates(tuple(ring)), CapturedUsers(NicUsers())))) == expected


def test_links_of_another_use_are_not_compared() -> None:
    """Messages of a pipeline share the NIC and are slower; a few of them have nobody to be compared with."""
    rates = [*(link(ends, 46e9) for ends in TWO_RINGS), link((0, 4), 20e9, 4e8), link((4, 0), 20e9, 4e8)]
    judged = judged_links(LinkRates(tuple(rates)), CapturedUsers(NicUsers()))
    assert {each.ends for each in judged} == set(TWO_RINGS) and not any(each.is_slow for each in judged)


def test_the_last_of_sixty_sound_nics_accuses_nobody() -> None:
    wide = [(rank, (rank + 1) % 60) for rank in range(60)]
    parts = {rank: 1 - 0.08 * (rank * 7 % 60) / 60 for rank in range(60)}
    assert named(wide, parts | {7: 0.86}) == []
    assert ranks(named(wide, parts | {7: 0.75})) == [(7,)]


@given(st.integers(0, 2**32 - 1), st.floats(0.0, 0.02), st.sampled_from([RING, TWO_RINGS, EXCHANGE]))
def test_nics_that_differ_by_two_per_cent_accuse_nobody(seed: int, spread: float, links: list[Ends]) -> None:
    random = np.random.default_rng(seed)
    parts = {rank: float(np.exp(random.normal(0, spread))) for rank in range(8)}
    assert named(links, parts) == []


@given(st.integers(0, 7), st.floats(0.2, 0.75), st.integers(0, 2**32 - 1))
def test_a_plain_loss_is_found_among_uneven_ones(rank: int, part: float, seed: int) -> None:
    random = np.random.default_rng(seed)
    parts = {other: float(np.exp(random.normal(0, 0.01))) for other in range(8)}
    assert ranks(named(TWO_RINGS, parts | {rank: part * parts[rank]})) == [(rank,)]


def test_the_gap_of_pulse_6_1() -> None:
    """A slice of 1 MiB on two channels takes about 40 us of 400 Gbit/s: half of the rate shows at 32 us, not at 64 us."""
    assert round(gap_ns(50e9, 2.0) / 1e3) == 42
    assert not hides(32_000, 50e9, 2.0) and hides(64_000, 50e9, 2.0) and not hides(1_000_000, 50e9, 25.0)


def named_by_gaps(links: Iterable[Ends], parts: Mapping[Ends, float]) -> set[int]:
    """Who is named where all links are as fast in their busiest epochs, and these parts of that over all with data."""
    rates = [replace(link(ends, 46e9), active_rate=46e9 * parts.get(ends, 1.0)) for ends in sorted(links)]
    return {rank for end in slow_ends(judged_links(LinkRates(tuple(rates)), CapturedUsers(NicUsers()))) for rank in end.ranks}


def test_gaps_of_a_few_nics_accuse_them_and_gaps_of_most_nobody() -> None:
    """Sixteen ranks in one ring, as of a sharded model: where most links have gaps the job sends so."""
    ring = [(rank, (rank + 1) % 16) for rank in range(16)]
    few = {(4, 5): 0.6, (5, 6): 0.6}
    assert named_by_gaps(ring, few) == {5}
    assert named_by_gaps(ring, {ends: 0.68 + 0.01 * (ends[0] % 3) for ends in ring[:12]} | few) == set()


def test_what_ranks_of_one_nic_leave_each_other_accuses_nobody() -> None:
    """Ranks 2n and 2n + 1 have NIC n: those of NIC 1 always move at once, with half of its rate each, the others in turns."""
    users = CapturedUsers(NicUsers({}, {rank: (rank - rank % 2, rank - rank % 2 + 1) for rank in range(8)}))
    rings = [(rank, (rank + 2) % 8) for rank in range(8)]
    nics = tuple(link((rank, (rank + 2) % 8), 46e9, 1e10) for rank in range(0, 8, 2))
    at_once = tuple(link(ends, 23e9 if 2 in ends or 3 in ends else 46e9) for ends in rings)
    assert not any(each.is_slow for each in judged_links(LinkRates(at_once, shared=nics), users))
    slow = tuple(replace(each, rate=each.rate / (1 + (2 in (each.sender, each.receiver)))) for each in nics)
    assert ranks(slow_ends(judged_links(LinkRates(at_once, shared=slow), users))) == [(2,)]
    in_turns = tuple(link(ends, 46e9) for ends in rings)
    assert not any(each.is_slow for each in judged_links(LinkRates(in_turns, shared=slow), users)), "each is as fast as others"


def in_all(
    parts: Mapping[int, float], links: Mapping[Ends, float], alone: Collection[Ends] = ()
) -> list[SlowEnd]:  # fmt: skip
    """Who is named in an exchange in which NICs move these parts of their line in all, both ways, and links those of a third.

    Links of `alone` go on when all others have ended.
    """
    rates = []
    for ends in EXCHANGE:
        sent, got = (46e9 * parts.get(end, 1.0) for end in ends)
        each = replace(link(ends, 15e9 * links.get(ends, 1.0)), sent=sent, got=got)
        rates.append(each if ends in alone else replace(each, sent_steadily=sent, got_steadily=got))
    return slow_ends(
        judged_links(LinkRates(tuple(sorted(rates, key=lambda each: (each.sender, each.receiver)))), CapturedUsers(NicUsers()))
    )


def test_who_has_most_to_move_shares_its_line_for_longest_and_is_not_slow() -> None:
    shared = {ends: 0.8 for ends in EXCHANGE if 0 in ends}
    assert in_all({}, shared) == []
    assert ranks(in_all({0: 0.8}, shared, alone=shared)) == [(0,)]


def test_a_receiver_whose_line_is_full_explains_what_it_gets_of_a_sender_that_moves_less() -> None:
    assert in_all({1: 0.8}, {(1, 2): 0.5, (1, 3): 0.5}) == []


def test_of_a_slow_link_the_end_that_can_do_more_is_not_to_blame() -> None:
    assert ranks(in_all({2: 0.6}, {(1, 2): 0.5}, alone=[(1, 2)])) == [(2,)]
    assert ranks(in_all({1: 0.6, 2: 0.6}, {(1, 2): 0.5})) == [(1, 2)]


def test_a_link_that_goes_on_alone_at_a_part_of_the_rate_is_slow_by_what_lies_between() -> None:
    (found,) = in_all({}, {(1, 2): 0.5}, alone=[(1, 2)])
    assert found.ranks == (1, 2)


@pytest.mark.parametrize(
    ("part", "groups", "named"),
    [
        (0.5, {(1, 5): ("world",), (4, 8): ("world",)}, [(1,)]),
        (0.5, {(1, 5): ("one",), (4, 8): ("other",)}, [(1,), (4,)]),
        (0.3, {(1, 5): ("world",), (4, 8): ("world",)}, [(1,), (4,)]),
    ],
    ids=["in one ring", "in rings of their own", "nearly as slow"],
)
def test_a_nic_behind_one_that_is_far_slower_gets_its_slices_late(
    part: float, groups: dict[tuple[int, int], tuple[str, ...]], named: list[tuple[int, ...]]
) -> None:
    link = LinkRate(0, 1, 0.2, 1.0, 9, 10**9, 0, "0")
    first, second = (
        SlowEnd((end[0],), (JudgedLink(replace(link, sender=end[0], receiver=end[1], rate=rate), 1.0, 9, True),), both=True)
        for end, rate in (((1, 5), 0.2), ((4, 8), part))
    )
    assert ranks(not_passed_on([first, second], LinkCalls(groups=groups))) == named
