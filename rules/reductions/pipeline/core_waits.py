"""Late ranks of a host short of cores that lacked a core, and nothing else that their stacks or processor times show."""

from __future__ import annotations

import numpy as np

from forensics.rules.reductions.arrivals.lateness import Lateness
from forensics.rules.reductions.hardware.cpu import HostCpu, waits_for_cores
from forensics.rules.reductions.ranks.processor_time import LEAST_RATIO, ProcessorTimes
from forensics.rules.reductions.ranks.roster import Roster
from forensics.rules.reductions.stacks.samples import Stacks
from forensics.vocabulary import WaitKind

_COMPUTES = frozenset({WaitKind.RUNNING, WaitKind.UNKNOWN})
# Of two ranks nothing shows how much two that are alike differ.
_LEAST_BESIDE = 2


def only_lacked_a_core(
    late: Lateness, cpu: HostCpu, roster: Roster, times: ProcessorTimes, stacks: Stacks | None, least_lost_ns: float
) -> bool:
    """Whether it is late since moments only on such a host, or computed as long as all others there and waited for nothing.

    `least_lost_ns` is what lateness that began in the record must have cost to be more than a moment.
    """
    if not any(waits_for_cores(cpu, roster, (late.rank,))):
        return False
    is_moment = late.since_ns is not None and late.lost_ns < least_lost_ns
    return is_moment or (_worked_alike(late.rank, roster, times) and not _waited(stacks))


def _worked_alike(rank: int, roster: Roster, times: ProcessorTimes) -> bool:
    """Whether its main thread used as much of processors as those beside it, as far as equal ones differ."""
    used = dict(zip(times.ranks, times.used_s.sum(axis=1), strict=True)) if times else {}
    beside = [seconds for other, seconds in used.items() if other != rank and roster.host_of(other) == roster.host_of(rank)]
    if rank not in used or len(beside) < _LEAST_BESIDE:
        return False
    return bool(max(used[rank], *beside) <= LEAST_RATIO * min(used[rank], float(np.median(beside))))


def _waited(stacks: Stacks | None) -> bool:
    """Whether it waits for something of its own in half of its stacks outside communication; without stacks it may have."""
    own = [sample.activity.wait for sample in stacks.main if not sample.activity.communicating] if stacks else []
    return 2 * sum(wait not in _COMPUTES for wait in own) >= len(own)
