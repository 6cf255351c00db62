"""When ranks made their calls, as far as it shows whether they stand still: the newest ones, and pauses that are usual."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from itertools import chain

from forensics.rules.reductions.calls.issued import issued
from forensics.rules.reductions.calls.shim_calls import Calls
from forensics.rules.reductions.interface import reduction
from forensics.rules.reductions.progress.stays import Stays, places_of, seldom_stays
from forensics.rules.reductions.waits.graph import WaitGraph


@dataclass(frozen=True, slots=True)
class Rhythm:
    """Of the calls that count and whose time is known (ns): the newest of each rank and of each artefact, and usual pauses.

    `pauses` are the second longest between two calls of each rank, `pauses_within` of the member that paused longest in each
    communicator. `stays` are the earlier ones at the places at which ranks wait.
    """

    newest: Mapping[int, int]
    newest_of_sources: Mapping[int, int]
    pauses: Mapping[int, int]
    pauses_within: Mapping[str, int]
    stays: Stays


@reduction
def rhythm(calls: Calls, graph: WaitGraph) -> Rhythm:
    """Read when the calls were made; their columns are given up at once, for those of a large job are larger than the case."""
    found = issued(calls)
    return Rhythm(
        newest=found.newest(),
        newest_of_sources=found.newest_of_sources(),
        pauses=found.recurring_pauses(),
        pauses_within=found.recurring_pauses_within(),
        stays=seldom_stays(found, chain.from_iterable(map(places_of, graph.waits))),
    )
