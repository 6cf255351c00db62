"""Which of those who held up long steps are the roots, and who only passes on what it waited itself."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping, Sequence

from forensics.rules.reductions.frontier.duties import first_ranks
from forensics.rules.reductions.pipeline.delay import Delay, Delays
from forensics.rules.reductions.ranks.roster import Roster

# Of times that differ by chance, with an exponential tail: the longest of seventy hardly ever is so many times the next one.
FAR = 3.0

Blame = tuple[tuple[int, ...], bool, bool]
"""Ranks, whether it was a transfer, whether bit by bit: a step held up at once stays one beside others with a little each."""


def roots_of(
    delays: Delays, blamed: Mapping[Blame, list[Delay]], roster: Roster, least: Mapping[str, float]
) -> list[list[Delay]]:
    """Leave out what adds up bit by bit but not in most long steps, and who waits so himself where his host is not late."""
    first = first_ranks(roster.hosts)
    found = [each for each in blamed.values() if not each[0].is_spread or 2 * len(_held(each, blamed, first)) > delays.long]
    sure = [each for each in found if all(_is_root(delays, delay, roster, least) for delay in each)]
    hosts = Counter(roster.host_of(each[0].ranks[0]) for each in found if each[0].is_spread)
    sizes = Counter(roster.host_of(rank) for rank in delays.ranks)
    slow = {host for host, late in hosts.items() if host is not None and 2 * late > sizes[host]}
    slow &= {roster.host_of(each[0].ranks[0]) for each in sure}
    return [each for each in found if each in sure or roster.host_of(each[0].ranks[0]) in slow]


def few_of(found: Sequence[list[Delay]], roster: Roster, most: float) -> Sequence[list[Delay]]:
    """All that held up steps, where they have `most` roots at most; else those whose longest steps are far beyond the others'.

    Where steps wait for somebody else each time nobody holds the job up; that explains no step which is unlike all of these.
    """
    roots = {roster.host_of(each[0].ranks[0]) if len(each[0].ranks) == 1 else each[0].ranks for each in found}
    if len(roots) <= most:
        return found
    ordered = sorted(found, key=_longest, reverse=True)[: int(most) + 1]
    apart = (at for at in range(1, len(ordered)) if _longest(ordered[at - 1]) >= FAR * _longest(ordered[at]))
    return ordered[: next(apart, 0)]


def _longest(found: Sequence[Delay]) -> float:
    return max(delay.excess_ns for delay in found)


def _held(found: Sequence[Delay], blamed: Mapping[Blame, list[Delay]], first: Collection[int]) -> set[int]:
    """The steps that ranks held up bit by bit, and those beside them that they held up at once: one moment may span two steps.

    First ranks of hosts save and log between steps, which is no sign of what they do in them.
    """
    steps = {delay.step for delay in found}
    if set(first) & set(found[0].ranks):
        return steps
    at_once = blamed.get((found[0].ranks, False, False), ())
    return steps | {delay.step for delay in at_once if steps & {delay.step - 1, delay.step + 1}}


def _is_root(delays: Delays, delay: Delay, roster: Roster, least: Mapping[str, float]) -> bool:
    """Whether a rank waited for little of what others waited for it, or, where all ranks were seen, clearly least of all.

    In a pipeline its lateness comes back to it with the gradients; its equals in step receive the same, and wait for its own,
    and what it was in no call was no wait.
    """
    own = max(delay.equals_ns, delay.own_ns) >= least["least_own"] * delay.excess_ns
    if own or delay.passed_on <= least["most_passed_on"]:
        return True
    others = [each.passed_on for each in delays.found if each.step == delay.step and each.ranks != delay.ranks]
    most = least["least_apart"] * min(others, default=0.0)
    return delay.is_spread and delay.passed_on <= most and delays.timed >= set(roster.ranks)
