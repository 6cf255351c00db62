"""Waits that only logs and counters tell: of ranks whose own calls and stacks are not here, or do not say otherwise."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from forensics.rules.reductions.calls.positions import Communicator
from forensics.rules.reductions.ranks.roster import Roster
from forensics.rules.reductions.stacks.samples import Stacks
from forensics.rules.reductions.waits.collective_waits import recorded_waits
from forensics.rules.reductions.waits.empty_places import filled
from forensics.rules.reductions.waits.graph import Wait


def reported_waits(groups: Sequence[Communicator], ranks: Roster, samples: Mapping[int, Stacks]) -> Iterator[tuple[Wait, ...]]:
    """Build them from the strongest to the weakest: a watchdog knows what was completed, others count calls only."""
    known = {
        rank for rank, facts in ranks.ranks.items() if facts.recorded or facts.stopped or (facts.dead and not facts.aborted)
    }
    known |= {rank for rank, found in samples.items() if not (found.communicating or found.below_autograd or found.in_store)}
    units = {group.unit for group in groups}
    for told in ({"work"}, {"opCount"}, units - {"work", "opCount"}):
        yield filled(recorded_waits([group for group in groups if group.unit in told], (), ignore=known), groups, ranks.ranks)
