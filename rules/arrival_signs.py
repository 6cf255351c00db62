"""What arrivals at calls show of a slow job although it is too little to accuse anybody."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator

from forensics.rules.reductions.arrivals.lateness import Latenesses, chance_of_last
from forensics.rules.reductions.network.slowness import Slowness
from forensics.rules.reductions.network.stragglers import Straggler
from forensics.rules.reductions.steps.times import GATE, StepTimes
from forensics.rules.reductions.text.evidence_text import counted, ranks_text

# That one of equal members comes last so often.
_MOST_CHANCE = 0.01
# Of the time: what calls wait for ranks that come last in turn, by more than batches of unequal length make them.
_IN_TURN = 1 / 3
# Operations to which it is last: a log of a large job may hold a single step.
_ONCE = 2
# Steps: a rank that is late in each is late to more than one or two operations of so many; and as many show long ones.
_SPANNED, _MANY = 5, 10
# Members of a group that ties the first stage to the last.
_TIED = 2


def late_ranks(late: Latenesses) -> Iterator[str]:
    """A rank that most calls of one kind wait for, for a tenth of the time or more."""
    often = [each for each in late.found if 2 * each.late > each.calls and each.chance <= _MOST_CHANCE]
    for each in [each for each in often if each.share >= 1 - GATE and not (each.is_duty or each.absorbed)][:1]:
        calls = f"{each.late} of {counted(each.calls, each.kind)}"
        yield f"rank {each.rank} comes last to {calls}, {100 * each.share:.0f} % of the time, by slowness or by more work"


def late_in_turn(late: Latenesses) -> Iterator[str]:
    """Calls that some rank or other comes late to: none of them often enough to be named, and the others wait all the same."""
    shares: dict[tuple[str, str], dict[int, float]] = defaultdict(dict)
    for each in late.found:
        if not (each.is_duty or each.absorbed or each.is_bound):
            of_calls = shares[each.communicator, each.kind]
            of_calls[each.rank] = max(each.share, of_calls.get(each.rank, 0.0))
    (communicator, kind), ranks = max(shares.items(), key=lambda of: sum(of[1].values()), default=(("", ""), {}))
    if len(ranks) > 1 and (lost := sum(ranks.values())) >= _IN_TURN:
        share = f"{100 * min(lost, 1.0):.0f} % of the time"
        yield f"{ranks_text(tuple(sorted(ranks)))} come last in turn to {kind} of {communicator}, {share}"


def awaited_ranks(slowness: Slowness, step_ns: float, times: StepTimes) -> Iterator[str]:
    """A rank for which its equals wait in what little a short log holds: too few to name it, and no sound speed.

    So it is last to all operations, or by a tenth of a step in the one or two that show a lateness. Where these are of several
    steps, none of which was long, it does not recur, and cost nothing.
    """
    for each in sorted(slowness.stragglers, key=lambda each: (-each.typical_ns, each.rank)):
        always = each.late == each.calls and chance_of_last(each.late, each.calls, len(each.members)) <= _MOST_CHANCE
        much = each.late <= _ONCE and 0 < (1 - GATE) * step_ns <= each.typical_ns and not _passed(each, step_ns, times)
        # Of the first stage and the last, tied to each other, one always waits; others have peers that are as far.
        equals = len(each.members) > _TIED or slowness.stages.alike(each.members)
        if equals and (much or (always and each.share >= 1 - GATE)):
            calls = f"{each.late} of {counted(each.calls, each.kind)} of {each.communicator}"
            by = f"by {each.typical_ns / 1e6:.0f} ms"
            yield f"rank {each.rank} came last to {calls}, {by}: too few to know whether that recurs"
            return


def _passed(each: Straggler, step_ns: float, times: StepTimes) -> bool:
    """Whether operations of which a rank was late to one or two span several steps, and none of many steps was long."""
    span_ns = each.lost_ns / each.share if each.share else 0.0
    return span_ns >= _SPANNED * step_ns and len(times.length) >= _MANY and not times.long()
