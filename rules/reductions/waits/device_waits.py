"""Ranks that wait for their devices, which may be in a collective.

Who launches the kernels of a collective waits for them in the next call that needs a result.
"""

from __future__ import annotations

from typing import NewType

from forensics.rules.reductions.interface import reduction
from forensics.rules.reductions.ranks.roster import Roster
from forensics.rules.reductions.stacks.samples import StacksByRank
from forensics.rules.reductions.waits.messages import MessageWaits

# One device may be at fault; several at once rather wait for others.
_SEVERAL = 2

DeviceWaits = NewType("DeviceWaits", frozenset[int])
"""Ranks whose devices may wait for others."""


@reduction
def device_waits(roster: Roster, stacks: StacksByRank, messages: MessageWaits) -> DeviceWaits:
    """Ranks that every sample found waiting for their device, where there are several or a rank is in none of all waits.

    Where a single rank waits for its device, and all others wait in communication, it is that device which may be at fault.
    """
    at_device = {rank for rank, found in stacks.items() if found.at_device and not roster.rank(rank).stopped}
    others = [found for rank, found in stacks.items() if rank not in at_device and rank not in messages]
    elsewhere = any(not (found.waits_now or found.below_autograd) for found in others)
    return DeviceWaits(frozenset(at_device if elsewhere or len(at_device) >= _SEVERAL else ()))
