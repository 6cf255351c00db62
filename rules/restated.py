"""Which account of a fault says no more than another: that one of several ranks is to blame, where the other tells more."""

from __future__ import annotations

from forensics.model import Anomaly, Belief, Cause, Confidence, Finding, Granularity, Members
from forensics.rules.explain import Hypothesis

_CONFIDENCES = tuple(Confidence)
# Parts of one way between two ranks: which of them is slow is another question than whose it is.
_OF_A_WAY = {Cause.NETWORK_SLOW, Cause.NETWORK_CONGESTION, Cause.NIC_OR_PCIE_SLOW, Cause.PCIE_DEGRADED}


def says_less(symptom: Hypothesis, first: Hypothesis) -> bool:
    """Whether it only says that somebody among its ranks is to blame, where the first says who, or has a record of it.

    Who waits for one of several that the first names one of waits for that one, whichever of the others it is seen to wait for.
    """
    found, best = symptom.finding, first.finding
    if not symptom.restates or found.anomaly is not best.anomaly:
        return False
    # That one of several ranks is to blame adds nothing to what is wrong between two of them.
    named = (found.cause is Cause.UNKNOWN and _lies_among(first, symptom)) or names_one_of(best, found)
    recorded = best.belief is Belief.DIRECT_RECORD and best.confidence is Confidence.CONFIRMED
    return named or (symptom.explains <= first.explains and (recorded or set(best.ranks) < set(found.ranks)))


def leaves_open(each: Hypothesis, first: Hypothesis) -> bool:
    """Whether it says that one of several ranks is at fault, by the same or not by what, where the first names some of these.

    Of one that stopped it has to explain no more than the first, and by the same cause. Whose way is slow is said by the first
    where that is surer, whichever part of the way the other takes to be slow.
    """
    open_, named = each.finding, first.finding
    slow = open_.anomaly is named.anomaly is Anomaly.FAIL_SLOW
    stopped = open_.anomaly is named.anomaly and open_.cause is named.cause and each.explains <= first.explains
    sure, less_sure = (_CONFIDENCES.index(each.confidence) for each in (named, open_))
    one_way = slow and sure < less_sure and {named.cause, open_.cause} <= _OF_A_WAY
    why = one_way or (open_.cause in (Cause.UNKNOWN, named.cause) and named.cause is not Cause.UNKNOWN)
    return (slow or stopped) and why and sure <= less_sure and not first.contradictions and names_one_of(named, open_)


def names_one_of(best: Finding, found: Finding) -> bool:
    """Whether the other finding says that one of several ranks is to blame, and this one names some of these, and not all."""
    stated, open_ = set(best.ranks), set(found.ranks)
    is_open = found.members is Members.ONE_OF and best.members is Members.EACH
    return is_open and not stated.isdisjoint(open_) and not open_ <= stated


def _lies_among(best: Hypothesis, found: Hypothesis) -> bool:
    """Whether it names one of the ranks that the other names one of: of all of them, or of a link that other evidence shows."""
    ranks, among = set(best.finding.ranks), set(found.finding.ranks)
    is_link = best.finding.granularity is Granularity.LINK and best.finding.confidence is not Confidence.SUSPECT
    shown = is_link and bool(best.families - found.families) and not best.contradictions
    return best.finding.members is Members.ONE_OF and (ranks == among or (shown and ranks < among))
