"""Flows that share the line of a NIC accuse nobody; a NIC that lost its rate does, and so do flows that do not add up."""

from __future__ import annotations

from collections.abc import Collection, Mapping

import pytest

from forensics.rules.reductions.network.line_sharing import shares_its_line
from forensics.rules.reductions.network.pair_rates import PairRate
from forensics.rules.reductions.network.slow_ends import Blame, Link
from forensics.rules.reductions.network.slowness import Slowness

USUAL = 5.2e9
INWARD, OUTWARD = (11, 7), (7, 23)


def _pair(link: Link, rate: float) -> PairRate:
    return PairRate(
        link[0], link[1], f"mlx5_0/{link[0]}{link[1]}", "mlx5_0", 1, 500, rate, USUAL, 12, 1e9, 0.04, "7.frx#entry=1"
    )


def _shares(
    rates: Mapping[Link, float],
    ranks: tuple[int, ...] = (11,),
    sound: Collection[Link] = (INWARD, OUTWARD),
    single: bool = True,
) -> bool:
    slowness = Slowness(pairs=tuple(_pair(link, rate) for link, rate in rates.items() if rate))
    return shares_its_line(Blame(ranks, tuple(rates), (), single), slowness, sound)


def test_two_flows_that_together_move_what_one_does_share_a_line() -> None:
    assert _shares({(7, 11): 2.73e9, (27, 11): 2.89e9})
    assert _shares({(11, 7): 2.73e9, (11, 27): 2.6e9}, sound=[(7, 11)])
    assert _shares({(7, 11): 2.73e9, (27, 11): 2.89e9, (0, 12): 2.7e9, (28, 12): 2.86e9}, (11, 12))


@pytest.mark.parametrize(
    ("rates", "sound"),
    [
        ({(7, 11): 2.1e9, (27, 11): 2.1e9}, [INWARD]),
        ({(7, 11): 4.0e9, (27, 11): 1.5e9}, [INWARD]),
        ({(7, 11): 2.73e9, (27, 11): 2.89e9}, [OUTWARD]),
        ({(7, 11): 2.73e9, (11, 27): 2.89e9}, [INWARD]),
        ({(7, 11): 2.73e9, (27, 11): 0.0}, [INWARD]),
        ({(7, 11): 2.73e9, (27, 11): 2.89e9, (43, 11): 2.8e9}, [INWARD]),
        ({(7, 11): 2.73e9}, [INWARD]),
    ],
    ids=[
        "a NIC at two fifths", "one is far slower", "nothing shows its other direction", "slow in both directions",
        "one is not counted", "three at half the rate", "one alone",
    ],
)  # fmt: skip
def test_what_does_not_add_up_is_a_fault(rates: Mapping[Link, float], sound: Collection[Link]) -> None:
    assert not _shares(rates, sound=sound)


def test_a_link_of_which_no_end_is_known_is_judged_as_before() -> None:
    assert not _shares({(7, 11): 2.73e9, (27, 11): 2.89e9}, (7, 11), single=False)
