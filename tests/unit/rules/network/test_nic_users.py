"""Which ranks have a NIC together, by queue pairs that are made up."""

from __future__ import annotations

from collections.abc import Sequence

import duckdb
import pytest

from forensics.rules.reductions.ranks import nic_users
from forensics.rules.reductions.ranks.nic_users import NicUsers, captured_users

A, B = ("n0", "mlx5_0", "10.0.0.1"), ("n0", "mlx5_1", "10.0.0.2")
ELSEWHERE = ("n0", "mlx5_0", "10.0.1.1")
"""A NIC of another host with the same name."""


def users(
    monkeypatch: pytest.MonkeyPatch, *uses: tuple[tuple[str, str, str], int], peers: Sequence[tuple[int, str]] = ()
) -> NicUsers:
    """By queue pairs on NICs, and ranks with the addresses that queue pairs of others lead to."""

    def rows(_connection: object, _table: str, query: str) -> Sequence[tuple[object, ...]]:
        return peers if "remote_nic" in query else [(*nic, rank) for nic, rank in uses]

    monkeypatch.setattr(nic_users, "rows_of", rows)
    return nic_users.nic_users(duckdb.connect())


def test_ranks_whose_queue_pairs_are_on_one_nic_share_it(monkeypatch: pytest.MonkeyPatch) -> None:
    found = users(monkeypatch, (A, 0), (A, 1), (B, 2))
    assert found.by_nic == {("n0", "mlx5_0"): (0, 1), ("n0", "mlx5_1"): (2,)}
    assert (found.of([1, 2]), found.first(1), found.first(2)) == ((0, 1, 2), 0, 2)
    assert (found.together(0, {0, 1, 2}), found.together(0, {0, 2}), found.together(2, {2})) == ((0, 1), (0,), (2,))


def test_a_rank_that_has_another_nic_beside_is_no_end_of_the_first(monkeypatch: pytest.MonkeyPatch) -> None:
    found = users(monkeypatch, (A, 0), (A, 1), (B, 1))
    assert not found.shared and found.by_nic == {("n0", "mlx5_1"): (1,)}


def test_hosts_of_one_name_have_no_nic_together(monkeypatch: pytest.MonkeyPatch) -> None:
    """A container whose host is called localhost everywhere: addresses tell the NICs apart."""
    found = users(monkeypatch, (A, 0), (ELSEWHERE, 8))
    assert not found.shared and not found.by_nic


def test_who_is_stated_without_an_address_as_well_shares_its_nic_nevertheless(monkeypatch: pytest.MonkeyPatch) -> None:
    """A map of queue pairs that has only one of the two ranks, and no address."""
    found = users(monkeypatch, (A, 0), (A, 1), (("n0", "mlx5_0", ""), 0))
    assert found.shared == {0: (0, 1), 1: (0, 1)}


def test_a_rank_without_a_log_is_on_the_nic_that_queue_pairs_of_others_lead_to(monkeypatch: pytest.MonkeyPatch) -> None:
    found = users(monkeypatch, (A, 0), (B, 2), peers=[(1, A[2]), (3, "10.9.9.9"), (2, A[2])])
    assert found.shared == {0: (0, 1), 1: (0, 1)}, "an address that no log has is of no known NIC, and who has a log says it"
    both = users(monkeypatch, (A, 0), (B, 2), peers=[(1, A[2]), (1, B[2])])
    assert not both.shared


def test_a_rank_of_which_nothing_is_known_may_have_the_nic_of_another_one() -> None:
    shared = NicUsers({("n0", "mlx5_0"): (0, 1), ("n1", "mlx5_0"): (8,)}, {0: (0, 1), 1: (0, 1)})
    assert shared.are_apart([0, 8]) and not shared.are_apart([0, 1])
    assert not shared.are_apart([8, 9]), "some ranks have a NIC together"
    assert NicUsers({("n0", "mlx5_0"): (0,)}).are_apart([8, 9])


def test_nics_that_ranks_use_crosswise_are_each_shown_by_a_rank_of_their_own(monkeypatch: pytest.MonkeyPatch) -> None:
    """A ring enters by one rank and leaves by the next one, on the NIC of its channel."""
    found = captured_users(users(monkeypatch, (A, 0), (A, 1), (B, 1), (B, 2)))
    assert found.by_nic == {("n0", "mlx5_0"): (0, 1), ("n0", "mlx5_1"): (1, 2)}
    assert (found.of([0]), found.of([1]), found.first(1), found.first(2)) == ((0, 1), (1, 2), 1, 2)


def test_nics_that_the_same_ranks_have_are_each_shown_by_a_rank_of_their_own(monkeypatch: pytest.MonkeyPatch) -> None:
    found = captured_users(users(monkeypatch, (A, 0), (A, 1), (B, 0), (B, 1)))
    assert found.by_nic == {("n0", "mlx5_0"): (0, 1), ("n0", "mlx5_1"): (1, 0)}
    alone = captured_users(users(monkeypatch, (A, 0), (B, 0)))
    assert alone.by_nic == {("n0", "mlx5_0"): (0,), ("n0", "mlx5_1"): (0,)}, "of several NICs of one rank it stands for all"


def test_hosts_of_one_name_use_no_nic_crosswise(monkeypatch: pytest.MonkeyPatch) -> None:
    assert not captured_users(users(monkeypatch, (A, 0), (B, 0), (ELSEWHERE, 8))).crossed
