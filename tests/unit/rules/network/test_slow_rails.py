"""Slow links that all have an end on NICs of one number are one rail, if something tells it from that of their other end."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from forensics.rules.reductions.network.slow_ends import Blame, Link, blamed
from forensics.rules.reductions.network.slow_rails import on_one_rail, places_of_nics
from forensics.rules.reductions.ranks.nic_users import NicUsers
from forensics.rules.reductions.ranks.roster import RankFacts, Roster

# Four hosts of eight ranks: each link of a ring leads from the second rank of a host to the third one of the next.
RING = ((1, 10), (9, 18), (17, 26), (25, 2))
RAIL = (2, 10, 18, 26)


def place_of(rank: int) -> tuple[str, int]:
    return f"host{rank // 8}", rank % 8


def named(slow: Sequence[Link], sound: Sequence[Link] = ()) -> list[tuple[tuple[int, ...], bool]]:
    found = blamed(dict.fromkeys(slow, 0.4), slow, sound, NicUsers())
    return sorted((blame.ranks, blame.single) for blame in on_one_rail(found, sound, place_of))


def test_a_rank_that_is_slow_both_ways_tells_the_rail() -> None:
    assert named((*RING, (10, 19))) == [(RAIL, True)]


@pytest.mark.parametrize(
    ("slow", "sound"),
    [
        (RING, ()),
        ((*RING, (10, 19)), ((3, 18),)),
        ((*RING, (10, 19)), ((26, 3),)),
        ((*RING[:2], (10, 19)), ()),
        ((*RING, (10, 19), (4, 13)), ()),
        ((*RING, (10, 19), (17, 6)), ()),
    ],
    ids=[
        "no end is told", "a sound link to one of them", "a sound link from one of them", "two hosts",
        "a link of other numbers", "a slow rank of the other rail",
    ],
)  # fmt: skip
def test_what_does_not_tell_a_rail_is_as_many_faults_as_before(slow: Sequence[Link], sound: Sequence[Link]) -> None:
    found = blamed(dict.fromkeys(slow, 0.4), slow, sound, NicUsers())
    assert on_one_rail(found, sound, place_of) == tuple(found) and len(found) > 1


def test_nobody_is_named_that_was_not_before() -> None:
    slow = (*RING, (10, 19))
    before: tuple[Blame, ...] = blamed(dict.fromkeys(slow, 0.4), slow, (), NicUsers())
    after = on_one_rail(before, (), place_of)
    assert {rank for blame in after for rank in blame.ranks} < {rank for blame in before for rank in blame.ranks}


def test_a_rail_has_all_nics_of_its_number_that_have_slow_links_alone() -> None:
    """Three of its NICs are shown by links of several others; a fourth one, on another host, has links with these only."""
    known = ((1, 10), (10, 19), (9, 18), (18, 27), (17, 26), (26, 3))
    slow = dict.fromkeys((*known, (34, 10), (26, 34)), 0.4)
    found = blamed(slow, known, (), NicUsers())
    assert [blame.ranks for blame in on_one_rail(found, (), place_of, slow)] == [(10, 18, 26, 34)]
    sound = ((34, 43),)
    beside = blamed(slow, known, sound, NicUsers())
    assert [blame.ranks for blame in on_one_rail(beside, sound, place_of, slow)] == [(10, 18, 26)]


ALONG = ((3, 11), (11, 19), (19, 27), (27, 3))
BESIDE = ((4, 12), (12, 20), (20, 28), (28, 4))


@pytest.mark.parametrize(
    ("slow", "sound", "is_told"),
    [
        (ALONG, (), False),
        (ALONG, BESIDE, True),
        (ALONG, BESIDE[:1], False),
        (ALONG, (*BESIDE, (3, 12)), False),
        (ALONG[:2], (*BESIDE, *ALONG[2:]), False),
        (ALONG[1:], BESIDE, False),
    ],
    ids=["nothing else is seen", "others are sound", "not on all hosts", "a sound link of one", "one slow NIC", "one is open"],
)
def test_links_along_one_rail_tell_it_where_all_other_numbers_are_sound(
    slow: Sequence[Link], sound: Sequence[Link], is_told: bool
) -> None:
    """Two NICs of four explain them as well, and so do the two others: one switch is nearer than either pair."""
    assert (named(slow, sound) == [((3, 11, 19, 27), True)]) is is_told


CHAIN = ((11, 3), (19, 11), (27, 19), (27, 35), (35, 27), (43, 35))


@pytest.mark.parametrize(
    ("cheap", "sound", "is_told"),
    [
        (((27, 19), (43, 35)), (), True),
        ((), (), False),
        (((27, 19), (43, 36)), (), False),
        (((27, 19), (43, 35)), ((3, 12),), False),
    ],
    ids=["three pairs", "two NICs account for all", "a link of other numbers", "a sound link of one"],
)
def test_a_chain_along_one_rail_tells_it_where_no_two_nics_account_for_it(
    cheap: Sequence[Link], sound: Sequence[Link], is_told: bool
) -> None:
    """Messages of a pipeline of six hosts: of both ends of it one direction is seen, and two links cost little."""
    slow = dict.fromkeys({*CHAIN[:2], *CHAIN[3:5], *cheap}, 0.1)
    clean = [(rank + 1, (rank + 9) % 48) for rank in range(3, 48, 8)]
    found = blamed(slow, [link for link in slow if link not in cheap], [*clean, *sound], NicUsers())
    named = [(blame.ranks, blame.is_rail) for blame in on_one_rail(found, [*clean, *sound], place_of, slow)]
    assert (named == [((3, 11, 19, 27, 35, 43), True)]) is is_told


@pytest.mark.parametrize(
    ("sound", "ends"),
    [
        (((11, 19),), [((3,), True), ((27,), True)]),
        ((), [((3, 11), False), ((27,), True)]),
        (((11, 19), (3, 12)), [((3, 11), False), ((27,), True)]),
    ],
    ids=["one is", "not seen to be", "both are"],
)
def test_an_end_without_a_sound_link_is_distinguished_from_one_with_a_sound_one(
    sound: Sequence[Link], ends: list[tuple[tuple[int, ...], bool]]
) -> None:
    """Two neighbours of a ring of four are slow: the link from one of them to the next rank is no fault of that."""
    slow = {(19, 27): 0.2, (27, 3): 0.3, (3, 11): 0.1}
    found = blamed(slow, tuple(slow), sound, NicUsers())
    assert sorted((blame.ranks, blame.single) for blame in on_one_rail(found, sound, place_of)) == ends


def roster(hosts: dict[int, str | None]) -> Roster:
    return Roster({rank: RankFacts(rank, host=host) for rank, host in hosts.items()}, len(hosts))


@pytest.mark.parametrize("absent", [(), (8,), (9,), (8, 9)], ids=["none", "the first of a host", "one between", "a whole NIC"])
@pytest.mark.parametrize("shared", [False, True], ids=["one each", "two on a NIC"])
def test_nics_keep_their_number_where_a_rank_left_nothing(absent: tuple[int, ...], shared: bool) -> None:
    ranks = roster({rank: None if rank in absent else f"host{rank // 4}" for rank in range(16)})
    pairs = {rank: (rank & ~1, rank | 1) for rank in range(16) if shared and not {rank & ~1, rank | 1} & {*absent}}
    place_of = places_of_nics(ranks, NicUsers(shared=pairs))
    known = [rank for rank in range(16) if rank not in absent]
    assert [place_of(rank) for rank in known] == [(f"host{rank // 4}", (rank % 4) & ~shared) for rank in known]
    assert all(place_of(rank) is None for rank in absent)


def test_ranks_that_are_dealt_out_have_the_order_of_their_host() -> None:
    """Rank 0 on the first host, rank 1 on the second one, and so on: there are no blocks."""
    place_of = places_of_nics(roster({rank: f"host{rank % 4}" for rank in range(16)}), NicUsers())
    assert [place_of(rank) for rank in (0, 5, 15)] == [("host0", 0), ("host1", 1), ("host3", 3)]
