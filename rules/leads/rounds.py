"""Whom to sample first where rounds of stacks show one rank at work while all others wait, and nothing shows a fault.

A rank that is the last of a sound job leaves the same: whether its work is too long, only somebody who knows the job can say.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import replace

from forensics.rules.reductions.ranks.processor_time import ProcessorTimes, most_used
from forensics.rules.reductions.stacks.call_paths import CallPath
from forensics.rules.reductions.stacks.rounds import LEAST_ROUNDS, alone_at_work, waits_beside
from forensics.rules.reductions.stacks.samples import Sample, StacksByRank, job_frames

# Of the samples: a frame that so many have in common says where it is; what differs below it is a part of the same work.
_MOST = 2 / 3


def processor_leads(stacks: StacksByRank, times: ProcessorTimes) -> Iterator[str]:
    """The rank whose main thread needs clearly more processor time than any other, where rounds of stacks do not show it."""
    alone, most = alone_at_work(stacks), most_used(times)
    if most is not None and (alone is None or alone.rank != most.rank):
        yield f"what takes rank {most.rank} long: {most.describe()}; if the job is slow, it begins there"


def busy_signs(stacks: StacksByRank, times: ProcessorTimes) -> Iterator[str]:
    """That the others wait for such a rank: an even speed shows that they always did, and not that they should."""
    if (most := most_used(times)) is None:
        return
    waits = waits_beside(most.rank, stacks)
    if 2 * waits.waits >= waits.samples > 0:
        yield f"rank {most.rank} works most: {most.describe()}; {waits.of_waits}"


def round_leads(stacks: StacksByRank) -> Iterator[str]:
    """The rank, in how many rounds, and where it is in most of them."""
    if found := alone_at_work(stacks):
        where = _where(found.samples(stacks[found.rank]))
        more = "" if found.sampled >= LEAST_ROUNDS else "; `forensics collect --samples 6` may decide"
        often = f"in {len(found.rounds)} of {found.sampled} rounds of stacks it alone is at work{where}"
        others = f"{len(stacks) - 1} other ranks wait in communication"
        yield (
            f"what takes rank {found.rank} long: {often} while {others}; if the job is slow, or stands, it begins there{more}"
        )


def _where(samples: Sequence[Sample]) -> str:
    """The innermost frame of the job's own code that most samples share, and how many do; else by functions, without lines."""
    exact = job_frames(samples)
    count, path = _shared(exact)
    if len(path) <= 1:
        count, path = _shared([tuple(replace(frame, line=None) for frame in own) for own in exact])
    place = " > ".join(map(str, reversed(path[:2])))
    return f" ({count} times in {place})" if path else ""


def _shared(paths: Sequence[CallPath]) -> tuple[int, CallPath]:
    """The longest end of a path that most have, and how many do."""
    shared: Counter[CallPath] = Counter()
    for own in paths:
        shared.update(own[-depth:] for depth in range(1, len(own) + 1))
    common = [path for path, count in shared.items() if count > _MOST * len(paths)]
    path = max(common, key=len, default=())
    return shared[path], path
