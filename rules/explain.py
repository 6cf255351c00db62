"""The search for an explanation: how much of what was observed each hypothesis accounts for, and in which order they stand.

A verdict is the explanation with the fewest faults that accounts for the symptoms (parsimonious covering, Reggia 1983). Two
hypotheses are ordered without weights: fewest contradictions by direct facts, most waits explained, most other symptoms, most
independent families of evidence, most specific cause.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass

from forensics.model import Anomaly, Belief, Cause, Family, Finding, Members, SymptomKind
from forensics.rules.facts.families import SourceFamilies, behind
from forensics.rules.facts.symptoms import Symptoms
from forensics.rules.reductions.calls.positions import Communicators
from forensics.rules.reductions.ranks.roster import Roster
from forensics.rules.reductions.waits.graph import RootKind, Wait, WaitGraph

_BELIEFS = tuple(Belief)
# What a cause says beyond that a rank, or its host, is to blame.
_NOTHING = frozenset({Cause.UNKNOWN, Cause.OTHER})
_GENERAL = frozenset({Cause.HOST_STALL, Cause.DEADLOCK})
# Where a rank is late, and not why; what its transfers take is no part of that.
_PLACES = frozenset({Cause.HOST_STALL, Cause.COMPUTE_SLOW})
_OF_TRANSFERS = frozenset({Cause.NETWORK_SLOW, Cause.NETWORK_CONGESTION, Cause.NIC_OR_PCIE_SLOW, Cause.PROXY_DELAY})

Atom = tuple[int, int]
"""One symptom of one rank: the symptom's place in `Symptoms.found`, and the rank."""


@dataclass(frozen=True, slots=True)
class Hypothesis:
    """A finding as an explanation: with the rules that came to it, what it accounts for and what stands behind it."""

    finding: Finding
    rules: tuple[str, ...]
    waits: frozenset[Atom]
    others: frozenset[Atom]
    families: frozenset[Family]

    @property
    def explains(self) -> frozenset[Atom]:
        """All symptoms it accounts for."""
        return self.waits | self.others

    @property
    def contradictions(self) -> tuple[str, ...]:
        """Statements against it that were read somewhere; a doubt without a source contradicts nothing."""
        return contradictions(self.finding)

    @property
    def restates(self) -> bool:
        """Whether it only says that some of those who wait are to blame, or that all are slow, at most where, and not why.

        That explains nothing yet.
        """
        found = self.finding
        nameless = not found.ranks and found.cause in _NOTHING | _PLACES
        return found.belief is Belief.GROUP_SYMPTOM and (found.members is Members.ONE_OF or nameless)

    @property
    def gain(self) -> float:
        """Share of a slow job's time that would be won without it, as its rule measured it; 0 for what is not slow."""
        slow, impact = self.finding.anomaly is Anomaly.FAIL_SLOW, self.finding.impact
        return impact.share or 0.0 if slow and impact else 0.0

    @property
    def order(self) -> tuple[object, ...]:
        """Sorts the better explanation first; what was so before a standstill comes behind all that accounts for it."""
        return (
            self.finding.of_past,
            len(self.contradictions),
            self.restates,
            -len(self.waits),
            -self.gain,
            -len(self.others),
            len(self.finding.rivals),
            -len(self.families),
            _BELIEFS.index(self.finding.belief),
            *less_specific(self.finding),
            self.finding.rule,
            self.finding.ranks,
        )


def specificity(finding: Finding) -> tuple[bool, int, int, int]:
    """How much a finding says: whether it names each of its ranks, how narrow its cause is, how few ranks, how many facts."""
    narrow = 0 if finding.cause in _NOTHING else 1 if finding.cause in _GENERAL else 2
    return finding.members is Members.EACH, narrow, -len(finding.ranks), len(finding.evidence)


def less_specific(finding: Finding) -> tuple[int, ...]:
    """Sorts the more specific finding first."""
    return tuple(-value for value in specificity(finding))


def agree(one: Finding, other: Finding) -> bool:
    """Whether one fault of the same ranks is behind both: of what slows them, one says at most where they are late, not why."""
    if one.cause is other.cause:
        return one.ranks == other.ranks
    if not one.ranks or one.anomaly is not Anomaly.FAIL_SLOW or _whom(one) != _whom(other):
        return False
    causes = {one.cause, other.cause}
    return bool(causes & _NOTHING or (causes & _PLACES and causes.isdisjoint(_OF_TRANSFERS)))


def less_telling(finding: Finding) -> tuple[int, ...]:
    """Sorts what says why its ranks are slow before what says where, and behind it what was read against, or says nothing."""
    vague = 2 if finding.cause in _NOTHING else 1 if finding.cause in _PLACES else 0
    return vague // 2, len(contradictions(finding)), vague


def contradictions(finding: Finding) -> tuple[str, ...]:
    """Statements against it that were read somewhere; a doubt without a source contradicts nothing."""
    return tuple(item.statement for item in finding.evidence if not item.supports and item.source)


def _whom(finding: Finding) -> tuple[object, ...]:
    return finding.ranks, finding.members, finding.anomaly, finding.of_past


@dataclass(frozen=True, slots=True)
class Observed:
    """What explanations are measured against: waits, symptoms, the family of each source, and who may be a silent victim.

    `unseen` are ranks that left nothing to see what they do by; `shared` are the members of the communicators in use; `sinks`
    are waits in which all have come and are held up by nobody else.
    """

    graph: WaitGraph
    symptoms: Symptoms
    families: SourceFamilies
    unseen: frozenset[int]
    shared: tuple[frozenset[int], ...]
    sinks: frozenset[Wait]


def observed_in(graph: WaitGraph, found: Symptoms, known: SourceFamilies, roster: Roster, groups: Communicators) -> Observed:
    """What explanations of a case are measured against."""
    unseen = frozenset(rank for rank, facts in roster.ranks.items() if facts.unseen)
    shared = tuple(frozenset(group.members) for group in groups if group.positions)
    sinks = frozenset(wait for root in graph.roots if root.kind is RootKind.ALL_JOINED for wait in root.waits)
    return Observed(graph, found, known, unseen, shared, sinks)


def hypothesis(finding: Finding, rules: tuple[str, ...], observed: Observed) -> Hypothesis:
    """Work out what a finding accounts for."""
    inside = frozenset() if finding.of_past else frozenset(joined(finding, observed.graph))
    reach = set[int]() if finding.of_past else _reached(finding, inside, observed)
    return Hypothesis(
        finding,
        rules,
        frozenset(_waits(finding, inside, reach, observed)),
        frozenset(_others(finding, reach, observed.symptoms)),
        behind(finding.evidence, observed.families),
    )


def _waits(finding: Finding, inside: Collection[int], reach: set[int], observed: Observed) -> Iterator[Atom]:
    """The waits that end in its ranks or in its operation, directly or through others.

    A slow rank accounts for waits that are not proven to stand still only, and what was so before a standstill for none.
    """
    slow = finding.anomaly is Anomaly.FAIL_SLOW
    for index, place in observed.symptoms.of_wait.items():
        wait = observed.graph.waits[index]
        if slow and index in observed.symptoms.still:
            continue
        if index in inside or not reach.isdisjoint(wait.missing):
            yield from ((place, rank) for rank in wait.waiting)
        elif not wait.missing and wait not in observed.sinks:
            yield from ((place, rank) for rank in wait.waiting if rank in reach)


def _reached(finding: Finding, inside: Collection[int], observed: Observed) -> set[int]:
    """The ranks of a finding, those that are in its operation, and all that wait for them."""
    ranks = {*finding.ranks, *(rank for index in inside for rank in observed.graph.waits[index].waiting)}
    return _with_silent_victims(set(finding.ranks), ranks, observed)


def _with_silent_victims(named: set[int], ranks: set[int], observed: Observed) -> set[int]:
    """Ranks that wait for `ranks`, with the unseen ones among them: each shares a communicator with one that waits.

    A rank of which nothing is seen would wait too, if only something showed what it does. It explains nobody else's wait away
    when it is the accused itself.
    """
    reached = ranks | blocked(observed.graph, ranks)
    silent = set() if named <= observed.unseen else set(observed.unseen) - ranks
    while silent:
        used = set[int]().union(*(members for members in observed.shared if not members.isdisjoint(reached)))
        found = silent & used
        if not found:
            break
        silent -= found
        reached |= found | blocked(observed.graph, found)
    return reached


def joined(finding: Finding, graph: WaitGraph) -> Iterator[int]:
    """Waits, by index, that a finding is about although nobody is missing: all entered it, or it is a circle.

    One that failed, or called something else, holds up all who are in the operation with it; so does a flow whose ends are.
    """
    ranks, peers = set(finding.ranks), set(finding.resource.peer_ranks if finding.resource else ())
    broken = finding.belief in (Belief.DIRECT_RECORD, Belief.MISMATCH) or finding.resource is not None
    named = finding.stage.communicator
    for index, wait in enumerate(graph.waits):
        whole = wait.waiting.keys() <= ranks and ranks.issuperset(wait.missing)
        same = named in (None, wait.communicator) or not peers.isdisjoint(wait.waiting)
        inside = broken and same and not ranks.isdisjoint((*wait.waiting, *wait.unended))
        if whole or (not wait.missing and (inside or (named and wait.communicator == named))):
            yield index


def blocked(graph: WaitGraph, ranks: Collection[int]) -> set[int]:
    """Ranks that wait for one of `ranks`, directly or through others."""
    reached: set[int] = set()
    newest = set(ranks)
    while newest:
        newest = {rank for rank, whom in graph.waits_for.items() if rank not in reached and not newest.isdisjoint(whom)}
        newest -= set(ranks)
        reached |= newest
    return reached


def _others(finding: Finding, reach: Collection[int], symptoms: Symptoms) -> Iterator[Atom]:
    """Deaths, errors and silence of its own ranks, lateness that it measures, and that those who wait are not elsewhere."""
    slow = finding.anomaly is Anomaly.FAIL_SLOW
    for place, symptom in enumerate(symptoms.found):
        if symptom.kind in (SymptomKind.ABSENT, SymptomKind.SILENT):
            yield from ((place, rank) for rank in symptom.ranks if rank in reach)
        elif (symptom.kind is SymptomKind.LATE) is slow and symptom.kind is not SymptomKind.WAITS:
            yield from ((place, rank) for rank in symptom.ranks if rank in finding.ranks)


def tied(finding: Finding, graph: WaitGraph) -> tuple[Wait, ...]:
    """The waits that a finding stands on: those in which its ranks are missing, else those that they are inside."""
    missing = dict.fromkeys(wait for rank in finding.ranks for wait in graph.waiting_for(rank))
    return tuple(missing) or tuple(graph.waits[index] for index in joined(finding, graph))


def faults(hypotheses: Iterable[Hypothesis], unseen: Collection[int]) -> list[list[Hypothesis]]:
    """Group hypotheses into faults, best explanation first; those behind the first of a fault are its alternatives.

    A further fault accounts for symptoms that the others leave over, and has evidence of its own that was read somewhere: of
    ranks that are `unseen` there is none but what they are measured to cost. What is no fault of its own is an alternative of
    the one that it shares most with.
    """
    found: list[list[Hypothesis]] = []
    covered: set[Atom] = set()
    given = list(hypotheses)
    for each in sorted(given, key=lambda item: (item.finding.of_past, _is_covered(item, given, unseen), item.order)):
        home = next((fault for fault in found if not set(each.finding.ranks).isdisjoint(_ranks(fault))), None)
        own = each.families and (each.finding.impact or not set(each.finding.ranks) <= set(unseen))
        if home is None and found and not (own and each.explains - covered and not each.restates):
            home = max(found, key=lambda fault: len(each.explains & fault[0].explains))
        if home is None:
            found.append([each])
        else:
            home.append(each)
        covered |= each.explains if home is None else set()
    return found


def is_silent(each: Hypothesis, unseen: Collection[int]) -> bool:
    """Whether it names ranks only of which nothing is seen: that they are missing is all that speaks for it."""
    return bool(each.finding.ranks) and set(each.finding.ranks) <= set(unseen)


def _is_covered(each: Hypothesis, given: Iterable[Hypothesis], unseen: Collection[int]) -> bool:
    """Whether something that is seen accounts for all that silent ranks would account for, and for more: they may wait too."""
    return is_silent(each, unseen) and any(
        each.explains < other.explains and not is_silent(other, unseen) and not (other.finding.of_past or other.contradictions)
        for other in given
    )


def by_cause(fault: list[Hypothesis]) -> list[Hypothesis]:
    """Of what makes the same ranks slow first what more sources show, then what says more.

    How much each rule saw a job lose to them is no reason to believe its cause.
    """
    first = fault[0]
    same = [each for each in fault if _slows_the_same(each, first)]
    best = min(
        same, key=lambda each: (len(each.contradictions), -len(each.families), *less_specific(each.finding)), default=first
    )
    return [best, *(each for each in fault if each is not best)]


def _slows_the_same(each: Hypothesis, first: Hypothesis) -> bool:
    found, best = each.finding, first.finding
    alike = (found.ranks, found.members, found.anomaly) == (best.ranks, best.members, Anomaly.FAIL_SLOW)
    return alike and bool(each.explains >= first.explains) and not (each.restates or found.of_past)


def _ranks(fault: Sequence[Hypothesis]) -> set[int]:
    return {rank for each in fault for rank in each.finding.ranks}
