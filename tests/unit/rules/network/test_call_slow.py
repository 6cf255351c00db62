"""Messages that take several times as long as others, and what looks like them: a recording of one slow NIC, changed."""

from __future__ import annotations

from dataclasses import replace

import pytest
from duckdb import DuckDBPyConnection

from forensics.model import Cause, Finding, Granularity, Mechanism, Members, Role
from forensics.rules.engine import run, supply_of
from forensics.rules.interface import Thresholds
from forensics.rules.reductions.network.call_paces import CallPace, CallPaces, _compared, call_paces
from forensics.rules.reductions.network.slow_members import slow_members
from forensics.rules.reductions.ranks.roster import RankFacts, Roster
from forensics.rules.reductions.steps.times import step_times
from forensics.rules.reductions.steps.traced import TracedRecords
from forensics.rules.slow.call_slow import RULE
from tests.recordings.scenarios import changed, recorded

LATE_NS = 40_000_000
OF_NINE = "kind = 'recv' AND rank IN (1, 17) AND peer = 1"


def longer(where: str, factor: float = 1.0, added_ns: int = 0) -> str:
    """Other times inside some calls."""
    return f"UPDATE operations SET duration_ns = CAST(duration_ns * {factor} AS BIGINT) + {added_ns} WHERE {where}"


ALL_FAST = longer("is_p2p AND rank IN (5, 13, 21)", 0.15)


def tried(statements: str) -> tuple[list[Finding], str]:
    with changed("call-slow", statements) as case:
        found, outcomes = run(supply_of(case), [RULE], {})
        return [finding for finding in found if finding.role is Role.ROOT], outcomes[0].status


def findings(statements: str) -> list[Finding]:
    return tried(statements)[0]


@pytest.mark.slow
def test_the_rank_that_all_slow_links_share_is_named() -> None:
    (finding,) = findings("SELECT 1")
    assert (finding.ranks, finding.members, finding.granularity) == ((13,), Members.EACH, Granularity.NIC)


@pytest.mark.slow
@pytest.mark.parametrize(
    "statements",
    [
        longer("is_p2p AND communicator <> '30'", 6.0),
        ALL_FAST,
        "UPDATE operations SET duration_ns = NULL WHERE rank IN (5, 21)",
        "UPDATE operations SET backend = 'gloo'",
    ],
    ids=["all are slow", "as fast as others", "one end is not timed", "hosts wait themselves"],
)
def test_nobody_is_named_where_it_cannot_be_stated(statements: str) -> None:
    assert findings(statements) == []


ONE_NIC = (
    "INSERT INTO queue_pairs (source_id, rank, host, queue_pair, nic) "
    "SELECT min(s.source_id), r.rank, 'dgx-i01-u06', r.rank, 'm0' "
    "FROM sources s, (SELECT unnest([12, 13]) AS rank) r GROUP BY r.rank"
)


@pytest.mark.slow
def test_one_with_the_same_nic_whose_calls_are_fast_says_that_it_is_not_the_nic() -> None:
    (finding,) = findings(ONE_NIC)
    assert (finding.ranks, finding.cause, finding.granularity) == ((13,), Cause.NIC_OR_PCIE_SLOW, Granularity.RANK)
    assert finding.mechanism == Mechanism("late_end", "local")
    assert "rank 12, on the same NIC, are as fast" in finding.evidence[-1].statement


@pytest.mark.slow
def test_one_with_the_same_nic_that_is_slow_as_well_is_named_with_it() -> None:
    found = findings(f"{ONE_NIC}; {longer('is_p2p AND rank IN (4, 12, 20)', 6.0)}")
    assert {finding.ranks for finding in found} == {(12, 13)}
    assert {(finding.cause, finding.granularity) for finding in found} == {(Cause.NETWORK_SLOW, Granularity.NIC)}


def test_one_with_the_same_nic_whose_record_ends_before_says_nothing_of_it() -> None:
    """Its calls were fast until its record ends; those of the rank beside it are compared later."""
    before = "UPDATE operations SET enqueued_ns = enqueued_ns - 600000000000 WHERE rank = 12"
    (finding,) = findings(f"{ONE_NIC}; {before}")
    assert (finding.ranks, finding.cause) == ((12, 13), Cause.NETWORK_SLOW)


def test_a_rank_for_which_the_others_wait_has_no_slow_calls() -> None:
    """Its peers are in their calls for longer, it is not: who comes last shows how long the transfer takes."""
    assert findings(f"{ALL_FAST}; {longer(OF_NINE, added_ns=LATE_NS)}") == []


@pytest.mark.slow
@pytest.mark.parametrize(
    ("statements", "status"),
    [
        (ALL_FAST, "ruled_out"),
        (longer("is_p2p AND rank IN (5, 13, 21)", 0.25), "silent"),
        (f"{ALL_FAST}; UPDATE operations SET duration_ns = NULL WHERE rank = 7", "silent"),
    ],
    ids=["all were compared", "one is slower, by less than accuses", "a rank was not"],
)
def test_it_is_ruled_out_where_calls_of_every_rank_are_as_fast(statements: str, status: str) -> None:
    assert tried(statements) == ([], status)


def test_a_record_without_hosts_compares_nothing() -> None:
    ranks = Roster({rank: RankFacts(rank) for rank in range(32)}, 32)
    assert not call_paces(recorded("call-slow"), ranks, TracedRecords({}), step_times({}))


def pace(*ranks: int, took_ms: float = 8.0, kind: str = "send", share: float = 0.1) -> CallPace:
    return CallPace("pp", kind, ranks, took_ms * 1e6, round(share * 1e3 / max(took_ms - 2, 0.1)), 1e9, "0.fr", 2e6, 9)


@pytest.mark.parametrize(
    ("slow", "sound", "blamed"),
    [
        ([(0, 4), (4, 8)], [(0, 8)], [(4,)]),
        ([(0, 4), (4, 0)], [], [(0, 4)]),
        ([(0, 4), (4, 8)], [(4, 12)], [(4,)]),
        ([(0, 4), (4, 8), (8, 0)], [], [(0, 4, 8)]),
        ([(0, 4), (4, 8), (1, 5), (5, 9)], [], [(4,), (5,)]),
    ],
    ids=["both links of a rank", "one link", "another link of it is fast", "a circle", "two ranks"],
)
def test_one_of_those_that_cannot_be_distinguished(
    slow: list[tuple[int, int]], sound: list[tuple[int, int]], blamed: list[tuple[int, ...]]
) -> None:
    paces = CallPaces((*(pace(*ends) for ends in slow), *(pace(*ends, took_ms=2) for ends in sound)))
    assert sorted(each.ranks for each in slow_members(paces, 1.8, 0.05)) == sorted(blamed)


@pytest.mark.parametrize(
    ("slow", "sound", "hosts", "blamed"),
    [
        (((11, 19), (19, 27), (27, 35)), ((3, 11), (35, 3)), 2, [(19,), (27,)]),
        (((11, 19), (19, 27), (27, 35)), ((3, 11), (35, 3)), 1, [(11, 19, 27, 35)]),
        (((11, 19), (19, 27), (27, 35)), ((3, 11),), 2, [(11, 19, 27, 35)]),
        (((11, 19), (19, 27), (27, 35)), ((3, 11), (35, 3), (19, 3)), 2, [(11, 19, 27, 35)]),
        (((11, 19), (19, 27), (27, 35)), ((3, 11, 12), (35, 3)), 2, [(11, 19, 27, 35)]),
    ],
    ids=["the ends are fast elsewhere", "on one host", "one end is not seen elsewhere", "a middle one is fast", "PXN"],
)  # fmt: skip
def test_two_neighbours_are_shown_by_ends_that_are_fast_elsewhere(
    slow: tuple[tuple[int, ...], ...], sound: tuple[tuple[int, ...], ...], hosts: int, blamed: list[tuple[int, ...]]
) -> None:
    calls = (*(pace(*ends) for ends in slow), *(pace(*ends, took_ms=2) for ends in sound))
    paces = CallPaces(tuple(replace(each, hosts=hosts) for each in calls))
    assert sorted(each.ranks for each in slow_members(paces, 1.8, 0.05)) == blamed


def test_what_loses_little_accuses_nobody() -> None:
    paces = CallPaces((pace(0, 4, share=0.02), pace(4, 8, share=0.02)))
    assert slow_members(paces, 1.8, 0.05) == []


@pytest.mark.slow
def test_one_with_the_same_nic_that_is_slow_in_other_calls_does_not_clear_it() -> None:
    """Each of the two has slow calls of its own, and a fast one beside: that may be too short to show a slow NIC."""
    slow = [pace(12, 4), pace(20, 12), pace(13, 5), pace(21, 13)]
    fast = [pace(rank, 0, took_ms=2.0) for rank in (12, 13)]
    thresholds = {each.name: each.default for each in RULE.thresholds}
    with changed("call-slow", ONE_NIC) as case:
        given: dict[object, object] = {CallPaces: CallPaces((*slow, *fast)), Thresholds: thresholds}
        found = [each for each in supply_of(case).call(RULE.evaluate, given) if each.role is Role.ROOT]
    assert {(each.ranks, each.cause) for each in found} == {((12, 13), Cause.NETWORK_SLOW)}


@pytest.mark.parametrize(("hosts", "is_said"), [((2, 2), True), ((2, 1), False)])
def test_only_calls_that_were_compared_are_ruled_out(hosts: tuple[int, int], *, is_said: bool) -> None:
    """Where links inside a host were compared with nothing, one of them may be slow."""
    fast = [pace(0, 1, took_ms=2.0), pace(2, 3, took_ms=2.0)]
    compared = tuple(replace(each, hosts=count) for each, count in zip(fast, hosts, strict=True))
    assert RULE.clears is not None
    said = RULE.clears(CallPaces(compared), Roster({rank: RankFacts(rank) for rank in range(4)}, 4))
    assert said is not None and ("with other hosts" in said) is is_said


def named(case: DuckDBPyConnection, *calls: CallPace) -> list[tuple[int, ...]]:
    """Ranks of what is found by some paces alone."""
    thresholds = {each.name: each.default for each in RULE.thresholds}
    given: dict[object, object] = {CallPaces: CallPaces(calls), Thresholds: thresholds}
    return [each.ranks for each in supply_of(case).call(RULE.evaluate, given) if each.role is Role.ROOT]


def test_one_of_four_groups_is_said_however_large_its_part_of_the_job_is() -> None:
    group = replace(pace(*range(8), kind="all_reduce"), others=3)
    case = recorded("call-slow")
    assert named(case, group) == [tuple(range(8))]
    assert named(case, replace(group, others=2)) == []
    assert named(case, group, replace(group, communicator="dp")) == [], "two groups may have more than these ranks in common"


@pytest.mark.parametrize(("factors", "slow"), [((1, 1, 1, 4), 1), ((1, 1, 4), 0), ((1, 1, 4, 4), 0), ((1, 1, 1.6, 4), 0)])
def test_three_others_that_are_alike_show_what_is_usual(factors: tuple[float, ...], slow: int) -> None:
    groups = [replace(pace(*range(8 * n, 8 * n + 8), took_ms=2 * each), usual_ns=0.0) for n, each in enumerate(factors)]
    compared = tuple(_compared(groups))
    assert len(CallPaces(compared).slow(1.8, 0.05)) == slow
    assert all(each.others >= 3 for each in compared), "of sound ones two others say too little"
