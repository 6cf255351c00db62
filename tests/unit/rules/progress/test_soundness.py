"""Signs of a slow job that accuse nobody, and take the word healthy away."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest

from forensics.model import Anomaly, Belief, Cause, Confidence, Finding, Impact, StageName, StageRef, WaitKind
from forensics.rules.comparison import Cleared, Comparison, comparison
from forensics.rules.facts.symptoms import Findings
from forensics.rules.reductions.arrivals.lateness import Lateness, Latenesses
from forensics.rules.reductions.epochs.captures import NicCapture
from forensics.rules.reductions.epochs.links import LinkRate, LinkRates
from forensics.rules.reductions.frontier.messages import UnrecordedMessages, unrecorded_messages
from forensics.rules.reductions.frontier.reading import FrontierWindows
from forensics.rules.reductions.logs.finished import Finished
from forensics.rules.reductions.network.call_paces import CallPace, CallPaces
from forensics.rules.reductions.network.channel_flows import ChannelFlows
from forensics.rules.reductions.network.line_peaks import LinePeaks
from forensics.rules.reductions.network.line_uses import LineUse, LineUses
from forensics.rules.reductions.network.pair_rates import PairRate
from forensics.rules.reductions.network.slowness import Slowness
from forensics.rules.reductions.network.stragglers import Straggler
from forensics.rules.reductions.pipeline.own_work import Excess, OwnWork
from forensics.rules.reductions.progress.liveness import Liveness, Motion
from forensics.rules.reductions.progress.speed import Pace, Speed
from forensics.rules.reductions.progress.unusual_silence import UnusualSilence
from forensics.rules.reductions.ranks.roster import RankFacts, Roster
from forensics.rules.reductions.stacks.activity import Activity
from forensics.rules.reductions.stacks.samples import Sample, Stacks, StacksByRank
from forensics.rules.reductions.steps.times import StepTimes
from forensics.rules.reductions.text.seen import Seen
from forensics.rules.soundness import NOT_COMPARED, SlownessSigns, UnrecordedRanks, slowness_signs, sound, speed_of_sound
from tests.recordings.cases import new_case

MS = 1e6
NOTHING_ELSE = (
    LineUses(()),
    LinePeaks({}),
    UnrecordedMessages(frozenset()),
    FrontierWindows(()),
    CallPaces(),
    Latenesses(),
    Speed(Pace.NOT_MEASURED, ""),
    UnusualSilence(()),
)


def steps_of(long: dict[int, float], number: int = 40) -> StepTimes:
    """Steps of a second each, but for some (ms)."""
    length = np.full(number, 1000 * MS)
    for step, took_ms in long.items():
        length[step] = took_ms * MS
    return StepTimes({}, np.arange(number), length)


def known(lost_ms: float) -> Findings:
    """A finding on a duty that sound jobs have too, which cost so much."""
    impact = Impact(round(lost_ms * MS), 0.1, 1, "arrival")
    return Findings((
        Finding(
            ranks=(3,), cause=Cause.HOST_STALL, stage=StageRef(), belief=Belief.BEHIND_AND_BUSY, confidence=Confidence.SUSPECT,
            evidence=(), anomaly=Anomaly.FAIL_SLOW, impact=impact, by_design="it saves",
        ),
    ))  # fmt: skip


@pytest.mark.parametrize(
    ("long", "findings", "is_sign"),
    [
        ({}, Findings(()), False),
        ({7: 1500}, Findings(()), True),
        ({7: 1200}, Findings(()), False),
        ({7: 1500}, known(500), False),
        ({7: 1500, 23: 1600}, known(500), True),
        (dict.fromkeys(range(3, 40, 4), 2000), Findings(()), False),
        (dict.fromkeys(range(26, 40), 1160), Findings(()), True),
        (dict.fromkeys(range(7, 40), 1160), Findings(()), True),
        (dict.fromkeys(range(7, 40), 1080), Findings(()), False),
        (dict.fromkeys(range(2, 40), 1160), Findings(()), False),
    ],
    ids=[
        "none", "one", "a trifle", "a duty", "a duty and another", "every fourth", "from one on", "most of them",
        "most of them by a trifle", "all but the first two",
    ],
)  # fmt: skip
def test_long_steps_that_nothing_accounts_for_speak_against_a_sound_job(
    long: dict[int, float], findings: Findings, is_sign: bool
) -> None:
    assert bool(slowness_signs(steps_of(long), Slowness(), findings, LinkRates(), *NOTHING_ELSE)) is is_sign


@pytest.mark.parametrize(("took_ms", "lost_ms", "is_sign"), [(1500, 0, True), (1200, 0, False), (1500, 400, False)])
def test_so_does_one_step_that_lost_a_third_of_its_time_however_long_the_record_is(
    took_ms: float, lost_ms: float, is_sign: bool
) -> None:
    findings = known(lost_ms) if lost_ms else Findings(())
    assert bool(slowness_signs(steps_of({7: took_ms}, 400), Slowness(), findings, LinkRates(), *NOTHING_ELSE)) is is_sign


@pytest.mark.parametrize(
    ("steps", "lost_ms", "in_log", "is_sign"),
    [(0, 400, False, True), (0, 200, False, False), (1, 400, False, True), (40, 400, False, False), (0, 400, True, False)],
)
def test_so_does_a_long_time_between_calls_where_no_whole_step_tells_what_it_was(
    steps: int, lost_ms: float, in_log: bool, is_sign: bool
) -> None:
    speed = Speed(Pace.STEADY, "", by="all_gather of dp", steps=30, step_ns=1000 * MS, lost_ns=lost_ms * MS, in_log=in_log)
    found = slowness_signs(
        steps_of({}, steps), Slowness(), Findings(()), LinkRates(), *NOTHING_ELSE[:6], speed, NOTHING_ELSE[7]
    )
    assert bool(found) is is_sign


def test_a_job_of_which_no_whole_step_is_known_has_no_long_ones() -> None:
    assert slowness_signs(steps_of({}, 0), Slowness(), Findings(()), LinkRates(), *NOTHING_ELSE) == ()


@pytest.mark.parametrize(("share", "slow", "is_sign"), [(0.0985, 10, True), (0.01, 10, False), (0.0985, 2, False)])
def test_a_link_that_loses_time_again_and_again_does_too(share: float, slow: int, is_sign: bool) -> None:
    channel = ChannelFlows("dp", "all_reduce", 0, 4, 0, 1 << 20, 10, slow, 1e6, 2e6, 1e7, share, 1e9, 1.2e9, None, 3, "0.frx")
    signs = slowness_signs(steps_of({}), Slowness(channels={(0, 4): (channel,)}), Findings(()), LinkRates(), *NOTHING_ELSE)
    assert [sign.startswith("chunks from rank 0 to rank 4 take longer") for sign in signs] == [True] * is_sign


@pytest.mark.parametrize(("slow", "slowdown", "is_sign"), [(2, None, True), (1, None, False), (2, 1.1, False), (2, 2.0, True)])
def test_a_link_that_was_never_fast_in_a_short_record_is_no_sound_one(slow: int, slowdown: float | None, is_sign: bool) -> None:
    channel = ChannelFlows("dp", "all_gather", 0, 4, 0, 1 << 20, 2, slow, 1e6, 9e6, 1e7, 0.3, 1e9, 1.2e9, None, 3, "0.frx")
    pairs = () if slowdown is None else (PairRate(0, 4, "n/1", "n", 1, 99, 1e9, slowdown * 1e9, 5, 0.0, 0.0, "0.frx"),)
    known = Slowness(channels={(0, 4): (channel,)}, pairs=pairs)
    assert bool(slowness_signs(steps_of({}), known, Findings(()), LinkRates(), *NOTHING_ELSE)) is is_sign


@pytest.mark.parametrize(
    ("late", "counted", "members", "share", "by_ms", "is_sign"),
    [(4, 4, 8, 0.8, 5, True), (3, 4, 8, 0.8, 5, False), (4, 4, 2, 0.8, 5, False), (4, 4, 8, 0.05, 5, False),
     (1, 1, 8, 0.8, 300, True), (1, 1, 8, 0.8, 5, False)],
    ids=["always", "not to all", "chance of two", "little", "once, much", "once, little"],
)  # fmt: skip
def test_a_rank_for_which_all_of_few_operations_wait_does_too(
    late: int, counted: int, members: int, share: float, by_ms: int, is_sign: bool
) -> None:
    """A log of a large job holds a step or four: too few to name anybody, and enough not to call it sound."""
    ranks, by = tuple(range(members)), by_ms * 1e6
    one = Straggler(1, "dp", "all_reduce", ranks, 4, late, counted, by, 1e5, 4 * by, share, 0.0, 0.0, 0.0, 0.0, 0.0, "1.frx")
    speed = Speed(Pace.STEADY, "", steps=9, step_ns=1.8e9)
    signs = slowness_signs(
        steps_of({}, 0), Slowness(stragglers=(one,)), Findings(()), LinkRates(), *NOTHING_ELSE[:6], speed, NOTHING_ELSE[7]
    )
    assert [sign.startswith(f"rank 1 came last to {late} of 4 all_reduces of dp") for sign in signs] == [True] * is_sign


@pytest.mark.parametrize(
    ("spanned", "steps", "long", "is_sign"),
    [(30, 30, {}, False), (3, 30, {}, True), (30, 3, {}, True), (30, 30, {7: 1300}, True)],
    ids=["of many steps", "of few", "steps are not known", "one was longer"],
)
def test_a_rank_that_was_late_once_in_many_steps_does_not_where_none_was_longer(
    spanned: int, steps: int, long: dict[int, float], is_sign: bool
) -> None:
    by = 193 * MS
    share = by / (spanned * 1000 * MS)
    one = Straggler(1, "dp", "all_reduce", tuple(range(8)), 31, 1, 31, by, 0.0, by, share, 0, 0, 0, 0, 0, "1.frx")
    speed = Speed(Pace.STEADY, "", steps=30, step_ns=1000 * MS)
    signs = slowness_signs(
        steps_of(long, steps), Slowness(stragglers=(one,)), Findings(()), LinkRates(), *NOTHING_ELSE[:6], speed, NOTHING_ELSE[7]
    )
    assert any(sign.startswith("rank 1 came last to 1 of 31") for sign in signs) is is_sign


@pytest.mark.parametrize(("rate", "line", "is_sign"), [(12e9, 25e9, True), (23e9, 25e9, False), (12e9, None, False)])
def test_nics_that_all_stay_far_below_their_lines_do_too(rate: float, line: float | None, is_sign: bool) -> None:
    captures = tuple(NicCapture(n, 0, f"{n}.epochs", n, f"n{n}", "n", 32_000, line_rate=line) for n in range(4))
    links = tuple(LinkRate(n, (n + 1) % 4, rate, 1e9, 9, 10**9, n, f"{n}.epochs") for n in range(4))
    signs = slowness_signs(steps_of({}), Slowness(), Findings(()), LinkRates(links, captures, 32_000), *NOTHING_ELSE)
    assert [sign.startswith("no NIC reaches more than 48 % of the rate of its line") for sign in signs] == [True] * is_sign


@pytest.mark.parametrize("ranks", [range(4), ()])
def test_messages_that_no_recorder_keeps_do_too(ranks: Sequence[int]) -> None:
    unseen = UnrecordedMessages(frozenset(ranks))
    signs = slowness_signs(
        steps_of({}), Slowness(), Findings(()), LinkRates(), LineUses(()), LinePeaks({}), unseen, *NOTHING_ELSE[3:]
    )
    assert [sign.startswith("messages of ranks 0-3 are in no recorder") for sign in signs] == [True] * bool(ranks)


@pytest.mark.parametrize(("recorded", "unseen"), [(False, {1, 2}), (True, {2})])
def test_stacks_tell_of_messages_of_a_group_without_collectives(recorded: bool, unseen: set[int]) -> None:
    """gloo records nothing of a group that has messages alone; the numbers of other calls of rank 2 have gaps."""
    case = new_case()
    if recorded:
        case.execute("INSERT INTO operations (source_id, rank, state, is_p2p) VALUES (1, 1, 'done', true)")
    wait = Sample(0, 1, 1, True, False, Activity(StageName.UNKNOWN, WaitKind.POINT_TO_POINT, ()), "rank1.txt")
    roster = Roster({rank: RankFacts(rank, calls_unrecorded=rank == 2) for rank in range(4)}, 4)
    assert {*unrecorded_messages(case, roster, StacksByRank({1: Stacks((wait,), (), ())}))} == unseen


@pytest.mark.parametrize(
    ("rate", "line", "busy", "sign"),
    [
        (11e9, 25e9, 0.2, "no NIC moves more than 44 % of the rate of its line while it has work"),
        (23e9, 25e9, 0.2, ""),
        (11e9, 25e9, 0.05, ""),
        (11e9, None, 0.2, "the lines of the NICs have no known rate"),
        (11e9, None, 0.05, ""),
    ],
    ids=["slow", "as fast as its line", "little to do", "line not known", "little to do on an unknown line"],
)
def test_so_do_work_requests_of_all_nics(rate: float, line: float | None, busy: float, sign: str) -> None:
    uses = LineUses(tuple(LineUse(f"n{n // 2}", f"m{n}", (n,), rate, busy, line, f"{n}.frx") for n in range(4)))
    signs = slowness_signs(steps_of({}), Slowness(), Findings(()), LinkRates(), uses, *NOTHING_ELSE[1:])
    assert [each.startswith(sign) for each in signs] == [True] * bool(sign)


@pytest.mark.parametrize(("rate", "peak", "is_sign"), [(11e9, 22e9, False), (11e9, 14e9, True), (18e9, 14e9, True)])
def test_nics_that_fill_their_lines_at_a_stretch_do_not(rate: float, peak: float, is_sign: bool) -> None:
    """Collectives that share a NIC may each be in its way for so long that all of them seem to leave half of it.

    What its queue pairs move in turn is a bound from above: at a stretch it may move less.
    """
    uses = LineUses(tuple(LineUse(f"n{n // 2}", f"m{n}", (n,), rate, 0.2, 25e9, f"{n}.frx") for n in range(4)))
    peaks = LinePeaks({(use.host, use.nic): peak for use in uses})
    signs = slowness_signs(steps_of({}), Slowness(), Findings(()), LinkRates(), uses, peaks, *NOTHING_ELSE[2:])
    assert bool(signs) is is_sign


@pytest.mark.parametrize(
    ("took_ms", "sign"), [(8, "messages or collectives of rank 1 take longer"), (5, "")], ids=["twice", "a quarter more"]
)
def test_so_do_messages_that_take_longer_than_others(took_ms: float, sign: str) -> None:
    links = ((0, 1), (1, 2))
    paces = CallPaces(tuple(CallPace("pp", "send", link, took_ms * MS, 20, 1e9, "0.fr", 4 * MS, 9) for link in links))
    signs = slowness_signs(steps_of({}), Slowness(), Findings(()), LinkRates(), *NOTHING_ELSE[:4], paces, *NOTHING_ELSE[5:])
    assert [each.startswith(sign) for each in signs] == [True] * bool(sign)


SECONDS_10 = 10 * 10**9


@pytest.mark.parametrize(
    ("late", "share", "is_duty", "is_sign"),
    [(18, 0.15, False, True), (18, 0.05, False, False), (6, 0.15, False, False), (18, 0.15, True, False)],
    ids=["a seventh of the time", "a trifle", "now and then", "a duty"],
)
def test_so_does_a_rank_that_most_calls_wait_for(late: int, share: float, is_duty: bool, is_sign: bool) -> None:
    """Too little to accuse it: its work may be more than that of the others."""
    lost = int(share * SECONDS_10)
    item = Lateness(3, "dp", "all_reduce", (0, 1, 2, 3), 20, late, lost, share, lost // late, "3.fr", is_duty=is_duty)
    signs = slowness_signs(
        steps_of({}), Slowness(), Findings(()), LinkRates(), *NOTHING_ELSE[:5], Latenesses((item,)), *NOTHING_ELSE[6:]
    )
    assert [sign.startswith(f"rank 3 comes last to {late} of 20 all_reduces") for sign in signs] == [True] * is_sign


@pytest.mark.parametrize(
    ("share", "ranks", "is_duty", "is_sign"),
    [(0.2, 4, False, True), (0.05, 4, False, False), (0.4, 1, False, False), (0.2, 4, True, False)],
    ids=["most of the time", "batches of unequal length", "one rank, now and then", "duties"],
)
def test_so_do_ranks_that_calls_wait_for_in_turn(share: float, ranks: int, is_duty: bool, is_sign: bool) -> None:
    """None of them is late often enough to be named, and the steps are as long from the begin of the record to its end."""
    late = Latenesses(
        tuple(
            Lateness(rank, "dp", "all_gather", (0, 1, 2, 3), 20, 5, 1, share, 200_000_000, "0.fr", is_duty=is_duty)
            for rank in range(ranks)
        )
    )
    signs = slowness_signs(steps_of({}), Slowness(), Findings(()), LinkRates(), *NOTHING_ELSE[:5], late, *NOTHING_ELSE[6:])
    assert [sign.startswith("ranks 0-3 come last in turn to all_gather of dp, 80 %") for sign in signs] == [True] * is_sign


NOT_MEASURED = Speed(Pace.NOT_MEASURED, "no rhythm")
COMPARED, NO_LONG_STEP = Comparison("none of 4 ranks is last in most"), Cleared({"FX175": "none took longer"})


@pytest.mark.parametrize(
    ("long", "number", "compared", "pace"),
    [
        ({3: 1100}, 6, COMPARED, Pace.STEADY),
        ({3: 1100}, 6, Comparison(), Pace.NOT_MEASURED),
        ({3: 1300}, 6, COMPARED, Pace.NOT_MEASURED),
        ({}, 4, COMPARED, Pace.NOT_MEASURED),
    ],
    ids=["alike", "ranks were not compared", "one is longer", "too few"],
)
def test_a_few_steps_that_are_alike_tell_a_speed_where_a_late_rank_would_have_shown(
    long: dict[int, float], number: int, compared: Comparison, pace: Pace
) -> None:
    assert speed_of_sound(NOT_MEASURED, steps_of(long, number), compared, NO_LONG_STEP).pace is pace


def test_a_few_alike_steps_tell_none_where_a_long_one_might_not_show() -> None:
    found = speed_of_sound(NOT_MEASURED, steps_of({}, 6), COMPARED, Cleared({"FX160": "in time"}))
    assert found.pace is Pace.NOT_MEASURED
    assert "whole steps are known, of 1000 ms to 1000 ms" in found.reason, "they say more than times between calls do"


@pytest.mark.parametrize(
    ("long", "compared", "pace"),
    [
        ({7: 1100}, COMPARED, Pace.STEADY),
        ({7: 1100}, Comparison(), Pace.NOT_MEASURED),
        (dict.fromkeys(range(12, 16), 1400), COMPARED, Pace.NOT_MEASURED),
        ({14: 1400, 15: 1400}, COMPARED, Pace.NOT_MEASURED),
    ],
    ids=["alike", "ranks were not compared", "longer in the end", "longest at last"],
)
def test_usual_steps_between_evaluations_tell_a_speed_where_a_late_rank_would_have_shown(
    long: dict[int, float], compared: Comparison, pace: Pace
) -> None:
    assert speed_of_sound(NOT_MEASURED, steps_of(long, 16), compared, NO_LONG_STEP).pace is pace


def test_what_became_slower_stays_so() -> None:
    slower = Speed(Pace.SLOWER, "since then")
    assert speed_of_sound(slower, steps_of({}, 6), COMPARED, NO_LONG_STEP) is slower


LATE = Excess(1, (0, 2, 3), 9, 9, 2e8, 1e9, 1e9, None, "1.fr#entry=0")


@pytest.mark.parametrize(
    ("cleared", "own", "by"),
    [
        ({"FX160": "by arrivals", "FX170": "by stages"}, OwnWork(), "no rank is late to calls (FX160)"),
        ({"FX170": "by stages"}, OwnWork(), "no stage is slow on one rank (FX170)"),
        ({"FX172": "inside operations"}, OwnWork(), "no rank is awaited inside operations (FX172)"),
        ({"FX175": "no step took longer", "FX178": "calls take as long"}, OwnWork(), None),
        ({}, OwnWork(compared=frozenset(range(4))), "ranks with the same work need as long for it in every step"),
        ({}, OwnWork(compared=frozenset(range(3))), None),
        ({}, OwnWork((LATE,), frozenset(range(4))), None),
    ],
    ids=["arrivals", "stages", "inside operations", "history alone", "own work", "a rank has no equal", "one works longer"],
)
def test_only_what_holds_all_ranks_against_each_other_shows_one_that_was_always_slow(
    cleared: dict[str, str], own: OwnWork, by: str | None
) -> None:
    """A job whose steps are alike, and whose transfers are as fast as others, may wait for one rank in each of them."""
    nobody: frozenset[int] = frozenset()
    seen = Seen(frozenset(range(4)), True, nobody, nobody, nobody, nobody, nobody, nobody, grouped=True, finished=True)
    found = comparison(Cleared(cleared), own, seen).by
    assert found == by


@pytest.mark.parametrize(("compared", "withheld"), [(COMPARED, None), (Comparison(), "steps of one length; " + NOT_COMPARED)])
def test_a_job_whose_ranks_nothing_compares_is_not_called_sound(compared: Comparison, withheld: str | None) -> None:
    moves, steady = Liveness(Motion.MOVING, "it moves", progress="on"), Speed(Pace.STEADY, "steps of one length")
    found = sound(moves, steady, (), UnrecordedRanks(frozenset()), SlownessSigns(()), compared, Finished(None, None))
    assert found.withheld == (withheld and f"it moves (on); {withheld}")
