"""How fast a host moves collectives over its NICs, by sizes and times of calls alone."""

from __future__ import annotations

from dataclasses import replace

import pytest

from forensics.case.database import new_case
from forensics.rules.reductions.network.call_paces import CallPace, CallPaces
from forensics.rules.reductions.network.line_uses import LineUse
from forensics.rules.reductions.network.recorded_uses import RecordedUses, filled, recorded_uses
from forensics.rules.reductions.ranks.roster import RankFacts, Roster

ROSTER = Roster({rank: RankFacts(rank, host=f"n{rank // 2}") for rank in range(4)}, 4)
CALL = CallPace("dp", "all_reduce", (0, 2), 0.1e9, 10, 4e9, "0.fr", hosts=2, bytes=1 << 30)
PORTS = (
    "INSERT INTO devices (source_id, host, device, kind, parent, rate_bytes_per_s) "
    "SELECT 0, 'n' || h, 'm' || d || '/1', 'port', 'm' || d, 25e9 FROM range(2) a(h), range(2) b(d)"
)


def parts(*calls: CallPace) -> dict[tuple[str, str], tuple[float, float]]:
    """GB/s and share of the time of each NIC."""
    connection = new_case()
    connection.execute(PORTS)
    found = recorded_uses(connection, CallPaces(calls), ROSTER)
    assert all(use.ranks == (0, 1) and use.peers == ("n1",) for use in found if use.host == "n0")
    return {(use.host, use.nic): (use.rate / (1 << 30), use.busy) for use in found}


def test_groups_of_one_host_share_its_nics() -> None:
    """Each of two groups moves 2 (s - 1) / s of 1 GiB in 0.1 s, over two NICs together."""
    both = parts(CALL, replace(CALL, communicator="other", ranks=(1, 3)))
    assert both.keys() == {("n0", "m0"), ("n0", "m1"), ("n1", "m0"), ("n1", "m1")}
    assert all(each == pytest.approx((10.0, 0.25)) for each in both.values())


@pytest.mark.parametrize(
    "call",
    [replace(CALL, hosts=1), replace(CALL, bytes=1 << 20), replace(CALL, kind="send")],
    ids=["on one host", "small", "a message"],
)
def test_calls_that_tell_no_rate(call: CallPace) -> None:
    assert not parts(call)


def use(host: str, rate: float) -> LineUse:
    return LineUse(host, "m", (0,), rate, 0.2, 25e9, "x")


@pytest.mark.parametrize(
    ("shown", "hosts"),
    [((6.5e9, 6e9), ["n0", "n1", "n2"]), ((6.5e9, 12e9), ["n0", "n1"]), ((), [])],
    ids=["the same", "not all NICs are in use", "nothing to hold it against"],
)
def test_recorders_tell_of_hosts_that_show_no_nic_where_they_are_right_of_the_others(
    shown: tuple[float, ...], hosts: list[str]
) -> None:
    uses = [use(f"n{at}", rate) for at, rate in enumerate(shown)]
    found = filled(uses, RecordedUses(tuple(use(f"n{at}", 6e9) for at in range(3))))
    assert [each.host for each in found] == hosts
