"""Which ranks come late because calls of theirs take long: their devices are in these meanwhile, and compute no longer.

A slow transfer holds up all members of its call, and each of them comes late to whatever it does with others, by as much. Who
computes for too long makes no call longer in which all members are there (Mycroft section 5.4).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from forensics.model import Cause, Component, Evidence, Finding
from forensics.rules.reductions.arrivals.lateness import Lateness, Latenesses
from forensics.rules.reductions.epochs.slow_links import JudgedLinks, slow_ends
from forensics.rules.reductions.network.call_paces import LEAST_FACTOR, LEAST_SHARE, CallPaces
from forensics.rules.reductions.network.slow_members import slow_members

# Of what a lateness costs: what slow calls of the rank lose at least, that accounts for it.
_LEAST_OF_LATENESS = 0.5
# Of what the lateness of one member costs: what that of each other one does, where they are late by the same.
_ALIKE = 0.8
# Of the calls to which a member is late.
_MOST_CALLS = 0.5


def is_late_by_calls(late: Lateness, lateness: Latenesses, paces: CallPaces) -> bool:
    """Whether a call with others takes so long, once all are there, that all of its members come late elsewhere alike."""
    least = _LEAST_OF_LATENESS * late.share
    slow = (each for each in paces.slow(LEAST_FACTOR, LEAST_SHARE) if late.rank in each.ranks and each.share >= least)
    return any(
        call.communicator != late.communicator
        and all(_is_late_too(rank, call.communicator, late, lateness) for rank in {*call.ranks} - {late.rank})
        for call in slow
    )


def _is_late_too(rank: int, communicator: str, late: Lateness, lateness: Latenesses) -> bool:
    """Whether a member is late by as much, to others than those of the slow call."""
    return any(
        each.rank == rank
        and each.communicator != communicator
        and each.late >= _MOST_CALLS * each.calls
        and each.share >= _ALIKE * late.share
        for each in lateness.found
    )


def in_slow_transfers(finding: Finding, paces: CallPaces, judged: JudgedLinks) -> Finding:
    """A rank late on its device whose transfers are known to be slow: whether it computed for longer is not known then."""
    if finding.cause is not Cause.COMPUTE_SLOW or len(finding.ranks) != 1 or finding.impact is None:
        return finding
    least = _LEAST_OF_LATENESS * (finding.impact.share or 1.0)
    found = next((item for share, item in _slow_transfers(finding.ranks[0], paces, judged) if share >= least), None)
    if found is None:
        return finding
    stage = replace(finding.stage, component=Component.UNKNOWN)
    return replace(finding, cause=Cause.UNKNOWN, stage=stage, evidence=(*finding.evidence, found))


def _slow_transfers(rank: int, paces: CallPaces, judged: JudgedLinks) -> Iterator[tuple[float, Evidence]]:
    """What all slow transfers of a rank lose of the time, where it is known that it is the slow end of them."""
    for each in slow_members(paces, LEAST_FACTOR, LEAST_SHARE):
        if each.ranks == (rank,):
            lost = f"its calls with others lose up to {100 * each.share:.0f} % of the time once all are there"
            yield each.share, Evidence(f"{lost}: its device may have waited in them", each.calls[0].source)
    for end in slow_ends(judged):
        if end.ranks == (rank,):
            # What it sends and what it receives may move at one time.
            cost = max(sum(link.cost for link in end.links if link.ends[way] == rank) for way in (0, 1))
            lost = f"what its NIC moves takes {100 * cost:.0f} % of the time longer than on others"
            yield cost, Evidence(f"{lost}: its device may have waited for that", end.links[0].link.source)
